//! Every name that Knoll writes to the cluster or looks up there.

/// The API group of the kinds.
pub const GROUP: &str = "knoll.dev";
/// The version of the kinds.
pub const VERSION: &str = "v1alpha1";
/// The group and version of the kinds, as `apiVersion` has it.
pub const API_VERSION: &str = "knoll.dev/v1alpha1";

/// Whether a text is a DNS label: the form of the names of namespaces and service accounts.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether a text is one segment of an API path, and stays one on the way: clients paste names into paths unescaped.
///
/// It is stricter than Kubernetes, which also takes names that have to be escaped; nothing that Knoll writes needs one.
#[must_use]
pub fn is_path_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(plain) && text != "." && text != ".."
}

/// Types of conditions.
pub mod condition {
    /// The object is in its desired state (kstatus).
    pub const READY: &str = "Ready";
    /// A controller is working on the object (kstatus).
    pub const RECONCILING: &str = "Reconciling";
    /// No progress without intervention of a user (kstatus).
    pub const STALLED: &str = "Stalled";
    /// The Run has started outside of the windows of a Policy, because its user may do so.
    pub const WINDOW_OVERRIDDEN: &str = "WindowOverridden";
    /// The Run is waiting in its Workspace's queue.
    pub const QUEUED: &str = "Queued";
    /// A Run holds its Workspace's lock.
    pub const ACTIVE: &str = "Active";
    /// A client is attached to a Run.
    pub const ATTACHED: &str = "Attached";
    /// A Run has a plan.
    pub const PLANNED: &str = "Planned";
    /// The Run's plan was approved or discarded.
    pub const APPROVED: &str = "Approved";
    /// A Run's process has ended.
    pub const EXITED: &str = "Exited";
    /// A Stack's infrastructure differs from what was applied.
    pub const DRIFTED: &str = "Drifted";
    /// The newest files of a Stack's source outside of the cluster are known.
    pub const FETCHED: &str = "Fetched";
    /// The module of a Stack does not declare some of its variables; absent when it declares all.
    pub const VARIABLES_UNDECLARED: &str = "VariablesUndeclared";
    /// Some outputs are too large for the status; absent when all are shown.
    pub const OUTPUTS_HIDDEN: &str = "OutputsHidden";
    /// The current version of a Workspace's state is copied to the target of the operator's backups; absent without a
    /// target or a state.
    pub const BACKED_UP: &str = "BackedUp";
}

/// Reasons of conditions and events.
pub mod reason {
    /// Not yet reconciled.
    pub const PENDING: &str = "Pending";
    /// In progress.
    pub const PROGRESSING: &str = "Progressing";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";
    /// Cancelled by a user.
    pub const CANCELLED: &str = "Cancelled";
    /// A plan was not applied.
    pub const DISCARDED: &str = "Discarded";
    /// Waiting in the queue.
    pub const QUEUED: &str = "Queued";
    /// Holds the lock.
    pub const ACTIVATED: &str = "Activated";
    /// Needs no lock.
    pub const NO_LOCK_NEEDED: &str = "NoLockNeeded";
    /// The lock was released.
    pub const RELEASED: &str = "Released";
    /// A pod was created.
    pub const POD_CREATED: &str = "PodCreated";
    /// A runner reported for the first time.
    pub const STARTED: &str = "Started";
    /// A client attached.
    pub const ATTACHED: &str = "Attached";
    /// No client attached in time.
    pub const ATTACH_TIMED_OUT: &str = "AttachTimedOut";
    /// A plan was made.
    pub const PLANNED: &str = "Planned";
    /// The plan has no changes.
    pub const NO_CHANGES: &str = "NoChanges";
    /// The plan is waiting for an Approval.
    pub const WAITING_FOR_APPROVAL: &str = "WaitingForApproval";
    /// As many Runs have a pod as a Policy allows.
    pub const WAITING_FOR_SLOT: &str = "WaitingForSlot";
    /// A user who may do so has started the Run outside of the windows of a Policy.
    pub const STARTED_NOW: &str = "StartedNow";
    /// A Policy does not let the Run start now.
    pub const WAITING_FOR_WINDOW: &str = "WaitingForWindow";
    /// Terraform is waiting for an answer in a terminal.
    pub const WAITING_FOR_ANSWER: &str = "WaitingForAnswer";
    /// An Approval approved the plan.
    pub const APPROVED: &str = "Approved";
    /// No Approval is needed.
    pub const AUTO_APPROVED: &str = "AutoApproved";
    /// An Approval names another digest.
    pub const DIGEST_MISMATCH: &str = "DigestMismatch";
    /// An Approval names a Run that does not exist, or is not waiting for a decision.
    pub const NOT_WAITING: &str = "NotWaiting";
    /// An Approval decided a review.
    pub const EFFECTIVE: &str = "Effective";
    /// A newer revision superseded it.
    pub const SUPERSEDED: &str = "Superseded";
    /// A Run has the snapshot of a Stack that did not start it.
    pub const NOT_OF_ITS_STACK: &str = "NotOfItsStack";
    /// A Run that the Workspace's Stack has not started would change the Stack's infrastructure.
    pub const BELONGS_TO_STACK: &str = "BelongsToStack";
    /// A process exited.
    pub const EXITED: &str = "Exited";
    /// A step failed.
    pub const STEP_FAILED: &str = "StepFailed";
    /// A step, the queue or a review took too long.
    pub const TIMED_OUT: &str = "TimedOut";
    /// A container used too much memory.
    pub const OOM_KILLED: &str = "OOMKilled";
    /// A node evicted the pod.
    pub const EVICTED: &str = "Evicted";
    /// The node of the pod is gone.
    pub const NODE_LOST: &str = "NodeLost";
    /// The pod was deleted.
    pub const POD_DELETED: &str = "PodDeleted";
    /// The hub did not answer its runner.
    pub const HUB_LOST: &str = "HubLost";
    /// The pod ended without a report of its runner.
    pub const RUNNER_LOST: &str = "RunnerLost";
    /// The pod could not be created or started.
    pub const POD_FAILED: &str = "PodFailed";
    /// A pod that the operator did not create has the name of the Run's pod.
    pub const FOREIGN_POD: &str = "ForeignPod";
    /// The content that the pods of a Run are made of changed after it was planned.
    pub const CHANGED_SINCE_PLANNED: &str = "ChangedSincePlanned";
    /// An image cannot be pulled; the kubelet goes on trying.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// No node takes the pod.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// The Workspace does not exist.
    pub const WORKSPACE_NOT_FOUND: &str = "WorkspaceNotFound";
    /// The Workspace is being deleted.
    pub const WORKSPACE_DELETED: &str = "WorkspaceDeleted";
    /// A source could not be fetched.
    pub const SOURCE_FAILED: &str = "SourceFailed";
    /// A variable could not be resolved.
    pub const VARIABLES_FAILED: &str = "VariablesFailed";
    /// A variable is not declared in the module.
    pub const UNDECLARED_VARIABLE: &str = "UndeclaredVariable";
    /// The state could not be saved.
    pub const STATE_NOT_SAVED: &str = "StateNotSaved";
    /// The Secret with the name of a state's head is none.
    pub const STATE_UNREADABLE: &str = "StateUnreadable";
    /// The current version of the state is copied.
    pub const BACKED_UP: &str = "BackedUp";
    /// A version of the state cannot be copied; it is tried again.
    pub const BACKUP_FAILED: &str = "BackupFailed";
    /// The Workspace has no state, and there is a copy of one.
    pub const BACKUP_FOUND: &str = "BackupFound";
    /// The object does not have the form that this version of Knoll reads.
    pub const UNDECODABLE: &str = "Undecodable";
    /// A Policy does not allow it.
    pub const POLICY_VIOLATION: &str = "PolicyViolation";
    /// The rules of Policies have not judged the plan that would be applied.
    pub const PLAN_NOT_JUDGED: &str = "PlanNotJudged";
    /// A Policy does not allow the user of an Approval to decide.
    pub const NOT_IN_GROUP: &str = "NotInGroup";
    /// The user of an Approval asked for the change.
    pub const REQUESTER: &str = "Requester";
    /// The user of an Approval has already approved.
    pub const DUPLICATE: &str = "Duplicate";
    /// An Approval counts, and further ones are needed.
    pub const COUNTED: &str = "Counted";
    /// Every field of a Policy can be read.
    pub const VALID: &str = "Valid";
    /// A pack of rules of a Policy cannot be had; it is tried again.
    pub const PACK_UNAVAILABLE: &str = "PackUnavailable";
    /// The spec is invalid.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// A dependency is not Ready.
    pub const WAITING_FOR_DEPENDENCIES: &str = "WaitingForDependencies";
    /// Objects that depend on this one still exist.
    pub const WAITING_FOR_DEPENDENTS: &str = "WaitingForDependents";
    /// Dependencies form a cycle.
    pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
    /// A revision is applied.
    pub const APPLIED: &str = "Applied";
    /// The newest files are known.
    pub const FETCHED: &str = "Fetched";
    /// The source is being fetched.
    pub const FETCHING: &str = "Fetching";
    /// Infrastructure matches the applied revision.
    pub const IN_SYNC: &str = "InSync";
    /// Infrastructure differs from what was applied.
    pub const DRIFTED: &str = "Drifted";
    /// Waiting for the next attempt.
    pub const RETRYING: &str = "Retrying";
    /// The last good revision or version is being restored.
    pub const ROLLING_BACK: &str = "RollingBack";
    /// The last good revision or version was restored.
    pub const ROLLED_BACK: &str = "RolledBack";
    /// A rollback did not succeed.
    pub const ROLLBACK_FAILED: &str = "RollbackFailed";
    /// Infrastructure is being destroyed.
    pub const DESTROYING: &str = "Destroying";
    /// A destruction failed or was not approved.
    pub const DESTROY_FAILED: &str = "DestroyFailed";
    /// A drift check failed.
    pub const DRIFT_UNKNOWN: &str = "DriftUnknown";
    /// A Run that the Stack has not started has changed the state.
    pub const STATE_CHANGED: &str = "StateChanged";
    /// No runs are started while `suspend` is true.
    pub const SUSPENDED: &str = "Suspended";
    /// A Workspace's queue is empty.
    pub const IDLE: &str = "Idle";
    /// An Atom's update is in progress.
    pub const UPDATING: &str = "Updating";
    /// An Atom's version runs.
    pub const RUNNING: &str = "Running";
    /// An Atom's update was not ready in time.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// The AtomVersion does not exist.
    pub const VERSION_NOT_FOUND: &str = "VersionNotFound";
    /// A template could not be read, or the API refused its objects.
    pub const TEMPLATE_INVALID: &str = "TemplateInvalid";
    /// An object belongs to another owner.
    pub const OBJECT_CONFLICT: &str = "ObjectConflict";
    /// Other managers own fields of an object.
    pub const FIELD_CONFLICT: &str = "FieldConflict";
    /// The update would change an immutable field.
    pub const IMMUTABLE: &str = "Immutable";
    /// The Atom lacks a permission.
    pub const FORBIDDEN: &str = "Forbidden";
    /// An object of an Atom failed permanently.
    pub const OBJECT_FAILED: &str = "ObjectFailed";
    /// An input of an Atom has no value.
    pub const INPUTS_FAILED: &str = "InputsFailed";
    /// The objects of an Atom are being deleted.
    pub const DELETING: &str = "Deleting";
    /// The Atom of `rollbackWith` failed.
    pub const ATOM_FAILED: &str = "AtomFailed";
    /// An output does not fit into a status.
    pub const OUTPUT_TOO_LARGE: &str = "OutputTooLarge";
}

/// Labels.
pub mod label {
    /// The name of the Run that an object belongs to.
    pub const RUN: &str = "knoll.dev/run";
    /// The name of the Workspace that an object belongs to.
    pub const WORKSPACE: &str = "knoll.dev/workspace";
    /// The name of the Stack that an object belongs to.
    pub const STACK: &str = "knoll.dev/stack";
    /// The name of the Atom that an object belongs to.
    pub const ATOM: &str = "knoll.dev/atom";
    /// The content of a Secret or ConfigMap of Knoll's; one of [`super::content`].
    pub const CONTENT: &str = "knoll.dev/content";
    /// The digest of the bundle that a ConfigMap belongs to, without `sha256:` and cut to 63 characters.
    pub const BUNDLE: &str = "knoll.dev/bundle";
    /// Why a Stack started a Run, for people; a [`Purpose`](crate::Purpose). The Stack's status has the one that counts.
    pub const PURPOSE: &str = "knoll.dev/purpose";
    /// On a Secret of the operator's own namespace, `"true"`: Policies may name it, and its content is sent to the servers
    /// of their packs.
    pub const CREDENTIALS: &str = "knoll.dev/credentials";
    /// Who manages an object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The value of [`MANAGED_BY`] on all that Knoll creates.
    pub const MANAGED_BY_KNOLL: &str = "knoll";
}

/// Values of [`label::CONTENT`].
pub mod content {
    /// The head of a state.
    pub const STATE: &str = "state";
    /// A part of a state, or of an earlier version of it.
    pub const STATE_PART: &str = "state-part";
    /// A plan.
    pub const PLAN: &str = "plan";
    /// The text of a plan, as terraform renders it for people.
    pub const PLAN_TEXT: &str = "plan-text";
    /// The JSON of a plan, as terraform describes it.
    pub const DESCRIPTION: &str = "description";
    /// A frozen job.
    pub const JOB: &str = "job";
    /// A state that a user uploaded, to be pushed by a Run.
    pub const UPLOAD: &str = "upload";
    /// The variable files, values and piped input that a client sent for a Run.
    pub const INPUT: &str = "input";
    /// The answer of a reading command.
    pub const ANSWER: &str = "answer";
    /// A log.
    pub const LOG: &str = "log";
    /// A dependency lock file.
    pub const LOCK: &str = "lock";
    /// A bundle.
    pub const BUNDLE: &str = "bundle";
    /// Resolved variables of a revision.
    pub const VARIABLES: &str = "variables";
    /// Outputs of a Stack.
    pub const OUTPUTS: &str = "outputs";
    /// The pre-images of an Atom's update.
    pub const JOURNAL: &str = "journal";
}

/// Annotations.
pub mod annotation {
    /// On a pod: the default container of `kubectl logs`, `exec` and `attach`.
    pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
    /// On a Run: cancel it. The value is one of [`super::cancel`].
    pub const CANCEL: &str = "knoll.dev/cancel";
    /// On a Run: the user who set [`CANCEL`]. The API server refuses another's name.
    pub const CANCELLED_BY: &str = "knoll.dev/cancelled-by";
    /// On a Stack: the user who last changed its spec. The API server refuses another's name, and a change of the spec
    /// beside a name that is not the user's own.
    pub const REQUESTED_BY: &str = "knoll.dev/requested-by";
    /// On a Stack: start a Run when the value changes.
    pub const RECONCILE: &str = "knoll.dev/reconcile";
    /// On a Stack, with any value: delete the Stack without destroying anything, whatever its policy says.
    pub const FORCE_ORPHAN: &str = "knoll.dev/force-orphan";
    /// On a Run: superseded by a newer revision, so it must not start or be approved.
    pub const SUPERSEDED: &str = "knoll.dev/superseded";
    /// On objects of a Stack: the UID of the Stack.
    pub const STACK_UID: &str = "knoll.dev/stack-uid";
    /// On a Run: its number among the Runs of its Stack, for people. The Stack's status has the number that counts.
    pub const NUMBER: &str = "knoll.dev/number";
    /// On a Run: the nonce whose digest the status of its Stack had before the Run was created.
    pub const NONCE: &str = "knoll.dev/launch-nonce";
    /// On an object of an Atom: the conditions that make it ready, as `Type=Status[/Reason],...`.
    pub const CONDITIONS: &str = "knoll.dev/conditions";
    /// On an object of an Atom: a CEL expression over `self` that is true when it is ready.
    pub const READY_WHEN: &str = "knoll.dev/ready-when";
    /// On an object of an Atom, `"true"`: a change of an immutable field deletes the object and creates it again.
    pub const REPLACE: &str = "knoll.dev/replace";
    /// On a replaced object of an Atom: the number of the update that replaced it.
    pub const REPLACED_BY: &str = "knoll.dev/replaced-by";
    /// On an object of an Atom's template, `"true"`: the Atom takes over an object that exists and is not its own.
    pub const ADOPT: &str = "knoll.dev/adopt";
    /// On an object that an Atom has adopted, `"true"`: the Atom lets go of it instead of deleting it.
    pub const ADOPTED: &str = "knoll.dev/adopted";
    /// On an object of an Atom: the namespace and name of the Atom that owns it.
    pub const OWNER: &str = "knoll.dev/owner";
    /// On an object of an Atom: the UID of the Atom.
    pub const ATOM_UID: &str = "knoll.dev/atom-uid";
    /// The digest of an object's content.
    pub const DIGEST: &str = "knoll.dev/digest";
    /// The serial of the state that a Secret holds.
    pub const SERIAL: &str = "knoll.dev/serial";
    /// The lineage of the state that a Secret holds.
    pub const LINEAGE: &str = "knoll.dev/lineage";
    /// On the head of a state: the writer, as the UID of a pod and the number of its claim.
    pub const WRITER: &str = "knoll.dev/writer";
    /// The number of resource instances in the state.
    pub const RESOURCES: &str = "knoll.dev/resources";
    /// When the content was written.
    pub const UPDATED_AT: &str = "knoll.dev/updated-at";
    /// The outputs that are not sensitive, as JSON.
    pub const OUTPUTS: &str = "knoll.dev/outputs";
    /// The outputs that are too large for [`OUTPUTS`], as JSON: their count and names.
    pub const OUTPUTS_HIDDEN: &str = "knoll.dev/outputs-hidden";
    /// The offset in a run's log at which a ConfigMap's chunk begins, in bytes.
    pub const OFFSET: &str = "knoll.dev/offset";
    /// The size of the content in bytes.
    pub const SIZE: &str = "knoll.dev/size";
    /// When a bundle or a part of a state was last found to be in use.
    pub const USED_AT: &str = "knoll.dev/used-at";
}

/// Values of [`annotation::CANCEL`].
pub mod cancel {
    /// Terraform finishes the operation in progress. Any value other than [`NOW`] means the same.
    pub const GENTLY: &str = "gently";
    /// Terraform is killed.
    pub const NOW: &str = "now";
    /// The Stack of the Run stops it, and no user.
    pub const BY_STACK: &str = "by its Stack";
}

/// Finalizers.
pub mod finalizer {
    /// Held by a Stack until its infrastructure is destroyed or orphaned.
    pub const STACK: &str = "knoll.dev/stack";
    /// Held by a Workspace, from its first run that may change the state, until its runs have ended.
    pub const WORKSPACE: &str = "knoll.dev/workspace";
    /// Held by a Run until its pod is gone.
    pub const RUN: &str = "knoll.dev/run";
    /// Held by an Atom until its objects are gone.
    pub const ATOM: &str = "knoll.dev/atom";
    /// Held by the Secrets of a Stack's state until the Stack lets go of its infrastructure.
    pub const STATE: &str = "knoll.dev/state";
}

/// Field managers of server-side apply.
pub mod field_manager {
    /// The controllers.
    pub const OPERATOR: &str = "knoll-operator";
    /// The hub.
    pub const HUB: &str = "knoll-hub";
    /// The CLI.
    pub const CLI: &str = "knoll-cli";
    /// The web page.
    pub const PAGE: &str = "knoll-page";
    /// The prefix of the field managers of Atoms.
    pub const ATOM: &str = "knoll-atom";
}

/// Types of Secrets.
pub mod secret_type {
    /// The head of a state, and its parts.
    pub const STATE: &str = "knoll.dev/state";
    /// The head and the parts of a plan, of a frozen job, of an uploaded state or of a run's input.
    pub const CONTENT: &str = "knoll.dev/content";
    /// Resolved variables of a revision, under the one key [`super::VARIABLES_KEY`].
    pub const VARIABLES: &str = "knoll.dev/variables";
    /// The pre-images of an Atom's update.
    pub const JOURNAL: &str = "knoll.dev/journal";
}

/// The key of a Secret of [`secret_type::VARIABLES`]: all variables as JSON.
pub const VARIABLES_KEY: &str = "variables.json";

/// The key of an outputs Secret with all outputs and their types, as JSON.
pub const OUTPUTS_KEY: &str = "outputs.json";

/// Names in a Run's pod.
pub mod pod {
    /// The container that runs terraform.
    pub const CONTAINER: &str = "runner";
    /// The container that installs the runner.
    pub const INSTALL_CONTAINER: &str = "knoll";
    /// The volume of the runner, the module and the state.
    pub const VOLUME: &str = "knoll";
    /// Where [`VOLUME`] is mounted.
    pub const VOLUME_PATH: &str = "/knoll";
    /// The volume of the token for the hub.
    pub const TOKEN_VOLUME: &str = "knoll-token";
    /// Where [`TOKEN_VOLUME`] is mounted.
    pub const TOKEN_PATH: &str = "/var/run/knoll";
    /// The image volume with the runner, if the cluster supports image volumes.
    pub const IMAGE_VOLUME: &str = "knoll-image";
    /// Where [`IMAGE_VOLUME`] is mounted.
    pub const IMAGE_PATH: &str = "/knoll-image";
    /// The directory of the runner's binary.
    pub const BIN_PATH: &str = "/knoll/bin";
    /// The working directory of the runner.
    pub const WORK_PATH: &str = "/knoll/work";
}

/// The prefixes of the Secrets that only the operator and the hub create. Clients create inputs and uploads.
pub const OWN_SECRETS: [&str; 7] = [
    "knoll-state-",
    "knoll-plan-",
    "knoll-description-",
    "knoll-job-",
    "knoll-variables-",
    "knoll-journal-",
    "knoll-answer-",
];

/// The prefixes of the ConfigMaps that only the operator and the hub create. Clients create bundles.
pub const OWN_CONFIG_MAPS: [&str; 2] = ["knoll-log-", "knoll-plan-text-"];

/// The Secret that is the head of a Workspace's state.
#[must_use]
pub fn state_secret(workspace: &str) -> String {
    format!("knoll-state-{workspace}")
}

/// A further Secret of a Workspace's state: a part of a version, or an earlier version. The name contains the first
/// digits of the version's digest, so two contents never share a name.
#[must_use]
pub fn state_part_secret(workspace: &str, serial: u64, digest: &str, part: usize) -> String {
    format!("knoll-state-{workspace}-{serial}-{digest}-{part}")
}

/// The Secret that is the head of a run's plan.
#[must_use]
pub fn plan_secret(run: &str) -> String {
    format!("knoll-plan-{run}")
}

/// The Secret that is the head of the JSON of a run's plan.
#[must_use]
pub fn description_secret(run: &str) -> String {
    format!("knoll-description-{run}")
}

/// The ConfigMap that is the head of the text of a run's plan. The name contains the first digits of the text's digest.
#[must_use]
pub fn plan_text_config_map(run: &str, digest: &str) -> String {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("knoll-plan-text-{run}-{}", hash.get(..16).unwrap_or(hash))
}

/// The Secret that is the head of a run's frozen job. The name contains the first digits of the job's digest.
#[must_use]
pub fn job_secret(run: &str, digest: &str) -> String {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("knoll-job-{run}-{}", hash.get(..16).unwrap_or(hash))
}

/// The Secret that is the head of a state uploaded for a run.
#[must_use]
pub fn upload_secret(run: &str) -> String {
    format!("knoll-upload-{run}")
}

/// The Secret that is the head of the input that a client sent for a run.
#[must_use]
pub fn input_secret(run: &str) -> String {
    format!("knoll-input-{run}")
}

/// The Secret that is the head of the answer of a run's reading command.
#[must_use]
pub fn answer_secret(run: &str) -> String {
    format!("knoll-answer-{run}")
}

/// A ConfigMap with a chunk of a run's log.
#[must_use]
pub fn log_config_map(run: &str, part: usize) -> String {
    format!("knoll-log-{run}-{part}")
}

/// The ConfigMap that is the head of a bundle.
#[must_use]
pub fn bundle_config_map(digest: &str) -> String {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("knoll-bundle-{}", hash.get(..32).unwrap_or(hash))
}

/// The Secret that is the head of the journal of an Atom's update.
#[must_use]
pub fn journal_secret(atom: &str, attempt: u32) -> String {
    format!("knoll-journal-{atom}-{attempt}")
}

/// The field manager of an Atom. Each Atom has its own, so that none mistakes another's fields for its own.
#[must_use]
pub fn atom_manager(atom: &str) -> String {
    format!("{}-{atom}", field_manager::ATOM)
}

/// The Secret with the variables of a revision, named by the digest of its content.
#[must_use]
pub fn variables_secret(stack: &str, digest: &str) -> String {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("knoll-variables-{stack}-{}", hash.get(..16).unwrap_or(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secrets_of_the_operator_have_its_prefixes() {
        let names = [
            state_secret("w"),
            state_part_secret("w", 1, "d", 0),
            plan_secret("r"),
            description_secret("r"),
            job_secret("r", "sha256:d"),
            variables_secret("s", "sha256:d"),
            journal_secret("a", 1),
        ];
        for name in names {
            assert!(OWN_SECRETS.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
        // No name of a Workspace ends like that: see `rules::name_is_of_no_state`.
        assert_eq!(state_part_secret("w", 7, "0123456789", 0), "knoll-state-w-7-0123456789-0");
        for name in [log_config_map("r", 0), plan_text_config_map("r", "sha256:d")] {
            assert!(OWN_CONFIG_MAPS.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
        for name in [input_secret("r"), upload_secret("r")] {
            assert!(!OWN_SECRETS.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        }
    }

    #[test]
    fn only_one_plain_segment_goes_into_a_path_or_a_header() {
        let long = "a".repeat(300);
        // Text, DNS label, path segment.
        let rows = [
            ("web", true, true),
            ("web-1", true, true),
            ("", false, false),
            ("x\n", false, false),
            ("x\r\nImpersonate-Group: system:masters", false, false),
            ("x\t", false, false),
            ("\0", false, false),
            ("é", false, false),
            (".", false, false),
            ("..", false, false),
            ("../secrets/x", false, false),
            ("a/b", false, false),
            ("a%2fb", false, false),
            ("a?b", false, false),
            ("a#b", false, false),
            ("a b", false, false),
            ("a\\b", false, false),
            ("a:b", false, true),
            ("a.b", false, true),
            ("A", false, true),
            ("-a", false, true),
            ("a-", false, true),
            (long.as_str(), false, false),
        ];
        for (text, label, segment) in rows {
            assert_eq!((is_dns_label(text), is_path_segment(text)), (label, segment), "{text:?}");
        }
    }
}
