//! What runners and the hub say to each other: JSON over HTTP, field names in camelCase.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/job` | | [`Job`] |
//! | `GET /v1/bundle` | | tar + zstd of the module's files |
//! | `GET /v1/state` | | the state, or 204 when there is none yet |
//! | `PUT /v1/state` | the whole state | 409 for another lineage or an older serial |
//! | `PUT /v1/lock` | `.terraform.lock.hcl` | |
//! | `PUT /v1/plan`, `GET /v1/plan` | the plan's bytes | the plan's bytes |
//! | `PUT /v1/plan-json?digest=D` | the plan of digest `D` as JSON, for the rules of Policies | [`PlanJudged`] |
//! | `PUT /v1/plan-text` | the plan as terraform renders it for people | |
//! | `PUT /v1/answer` | [`Answer`] | |
//! | `POST /v1/log?offset=N` | bytes of the log from `N` on | 409 with [`LogOffset`] when the hub has another count |
//! | `PUT /v1/progress` | [`Progress`] | [`ProgressReply`] |
//! | `GET /v1/cancel` | | 200 when the runner has to stop; 204 when the API confirms that it goes on |
//! | `GET /v1/history?serial=N` | | an earlier state that is kept |
//! | `GET /v1/upload` | | the state that was handed in for this run |
//! | `GET /v1/container?name=N` | | 200 with an [`ErrorBody`] when that container of the pod will not start |
//!
//! Every failure is answered with an [`ErrorBody`]. A runner whose pod is not the Run's gets 403. A runner takes 401, 403
//! and 409 as a fence and stops terraform, and so it does when it hears nothing from the hub ([`StopTimes`]).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Digest,
    hooks::HookFailure,
    names::reason,
    run::{Operation, PlanSummary},
    step::{StepName, StepStatus, Timeouts},
    workspace::Tool,
};

/// The audience of the token that a runner shows to the hub.
pub const HUB_AUDIENCE: &str = "knoll-hub";
/// The largest state or plan. Content passes through the operator's memory as a whole, a few times over while it is read;
/// several of this size fit into the memory that an installation has.
pub const LARGEST_CONTENT: u64 = 64 * 1024 * 1024;
/// The largest text of a plan. A longer one is cut by the runner, and says so at its end: nobody reads that much.
pub const LARGEST_PLAN_TEXT: u64 = 8 * 1024 * 1024;

/// The largest JSON of a plan that the rules of Policies judge. Evaluating takes some twenty times its size in memory.
pub const LARGEST_PLAN_JSON: u64 = 16 * 1024 * 1024;

/// How long a runner waits for the verdict on a plan: for its turn, and for the rules.
pub const VERDICT_TIMEOUT: Duration = Duration::from_secs(180);

/// The version of this protocol. It grows with every change that a runner or hub of the version before would misread.
pub const PROTOCOL: u32 = 2;

/// The part of a run that one pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// All of it: nobody has to review. Nothing follows.
    Whole,
    /// Up to the plan that a person reviews. Next: `Judge` or `Apply`, in a pod of its own.
    Plan,
    /// The description of the stored plan for the rules of Policies, in a pod without anything of the user's. Next: `Apply`.
    Judge,
    /// From the approved plan on. Nothing follows.
    Apply,
}

/// The paths of the hub.
pub mod path {
    /// See [`super::Job`].
    pub const JOB: &str = "/v1/job";
    /// The module's files.
    pub const BUNDLE: &str = "/v1/bundle";
    /// The state.
    pub const STATE: &str = "/v1/state";
    /// The dependency lock file.
    pub const LOCK: &str = "/v1/lock";
    /// The plan's bytes.
    pub const PLAN: &str = "/v1/plan";
    /// `?digest=D`: the JSON of the plan of that digest, for the rules of Policies.
    pub const PLAN_JSON: &str = "/v1/plan-json";
    /// The plan's text.
    pub const PLAN_TEXT: &str = "/v1/plan-text";
    /// See [`super::Answer`].
    pub const ANSWER: &str = "/v1/answer";
    /// The run's log.
    pub const LOG: &str = "/v1/log";
    /// See [`super::Progress`].
    pub const PROGRESS: &str = "/v1/progress";
    /// Answers when the run is cancelled.
    pub const CANCEL: &str = "/v1/cancel";
    /// `?serial=N`: an earlier state that is kept.
    pub const HISTORY: &str = "/v1/history";
    /// The state that was handed in for this run.
    pub const UPLOAD: &str = "/v1/upload";
    /// `?name=N`: answers when the container of a hook cannot start.
    pub const CONTAINER: &str = "/v1/container";
}

/// Addresses of states that the hub has, as arguments of `state push`.
pub mod stored {
    use crate::Digest;

    /// What the address of the state that was handed in for the run begins with. The digest of the state follows, so that
    /// who approves the run approves that state.
    pub const UPLOAD: &str = "knoll://upload/";
    /// What the address of an earlier state begins with.
    pub const HISTORY: &str = "knoll://history/";

    /// The address of the state of this digest that was handed in.
    #[must_use]
    pub fn upload(digest: &Digest) -> String {
        format!("{UPLOAD}{digest}")
    }

    /// The address of an earlier state.
    #[must_use]
    pub fn history(serial: u64) -> String {
        format!("{HISTORY}{serial}")
    }
}

/// The line before the output of a step, in a run without a terminal. A client tells terraform's output from that of other
/// steps by it.
#[must_use]
pub fn step_heading(step: StepName) -> String {
    format!("{STEP_HEADING}{step}")
}

/// The text with which [`step_heading`] begins.
pub const STEP_HEADING: &str = "knoll: step ";
/// The text with which every line of the runner's own begins.
pub const OWN_LINE: &str = "knoll: ";

/// Names of the runner's environment variables.
pub mod env {
    /// Where the hub is: `https://...`.
    pub const HUB_URL: &str = "KNOLL_HUB_URL";
    /// The certificate authority of the hub, as PEM text.
    pub const HUB_CA: &str = "KNOLL_HUB_CA";
    /// The file of the token for the hub.
    pub const TOKEN_FILE: &str = "KNOLL_TOKEN_FILE";
    /// The folder the runner works in.
    pub const WORK_DIR: &str = "KNOLL_WORK_DIR";
    /// The folder of terraform's plugin cache.
    pub const PLUGIN_CACHE: &str = "KNOLL_PLUGIN_CACHE";
    /// Set where pods have no images and run the programs of their node's PATH. Its value is the image that the Workspace
    /// names, which is not used.
    pub const UNUSED_IMAGE: &str = "KNOLL_UNUSED_IMAGE";
}

/// When a runner stops terraform, and how long each part of that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopTimes {
    /// How long the runner goes on without an answer to `GET /v1/cancel`.
    pub silence: Duration,
    /// How long the runner waits for such an answer.
    pub answer: Duration,
    /// From SIGINT to SIGTERM.
    pub interrupt: Duration,
    /// From SIGTERM to SIGKILL.
    pub terminate: Duration,
    /// How long a runner that has stopped because of the silence offers the last state and its report.
    pub deliver: Duration,
}

/// Everything a runner has to know about its run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// [`PROTOCOL`] of the hub.
    pub protocol: u32,
    /// The part of the run that this pod does.
    pub stage: Stage,
    /// The namespace of the Run.
    pub namespace: String,
    /// The name of the Run.
    pub run: String,
    /// The name of its Workspace.
    pub workspace: String,
    /// What it does.
    pub operation: Operation,
    /// The command of [`Operation::Command`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The arguments of the command.
    #[serde(default)]
    pub args: Vec<String>,
    /// Whether the output of the command is an [`Answer`].
    #[serde(default)]
    pub answers: bool,
    /// The program.
    pub tool: Tool,
    /// The version of the program that the Workspace asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The steps that this pod has to do, in order.
    pub steps: Vec<StepName>,
    /// The variables, resolved.
    #[serde(default)]
    pub variables: Vec<JobVariable>,
    /// Variable files (`*.tfvars`, `*.tfvars.json`) by name.
    #[serde(default)]
    pub variable_files: BTreeMap<String, String>,
    /// The names of those files whose values have to stay out of logs and reports.
    #[serde(default)]
    pub sensitive_files: Vec<String>,
    /// Files and standard input that came beside the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<JobInput>,
    /// How terraform gets providers and modules, as Policies supply it.
    #[serde(default, skip_serializing_if = "JobRegistry::is_empty")]
    pub registry: JobRegistry,
    /// Further texts that have to stay out of logs and reports: what the environment has from Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<String>,
    /// Only these resource addresses.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Resource addresses to destroy and create again.
    #[serde(default)]
    pub replace: Vec<String>,
    /// Whether the hub keeps the state.
    pub managed_state: bool,
    /// The name of the terraform workspace that a managed state belongs to; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terraform_workspace: Option<String>,
    /// The `.terraform.lock.hcl` that an earlier run handed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_file: Option<String>,
    /// Whether the hub judges the plan by the rules of Policies: it wants the plan's JSON before the plan is applied.
    #[serde(default)]
    pub judged: bool,
    /// The digest of the plan to apply; its bytes are at [`path::PLAN`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_digest: Option<String>,
    /// Whether another pod describes the plan for the rules: what this one says of it counts for nothing.
    #[serde(default)]
    pub isolated: bool,
    /// The only network mirror that providers come from; any place when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The hooks of the steps that this pod has to do, in order.
    #[serde(default)]
    pub hooks: Vec<JobHook>,
    /// How often a step may be tried; once when it is not named.
    #[serde(default)]
    pub retry: BTreeMap<StepName, u32>,
    /// The wait before a second attempt, in milliseconds; doubled for each further one.
    #[serde(default)]
    pub retry_backoff_millis: u64,
    /// How long a step may take, in seconds; no limit when it is not named.
    #[serde(default)]
    pub timeouts: BTreeMap<StepName, u64>,
    /// When terraform is stopped.
    pub stop: StopTimes,
    /// Waits that long for a client before the first output; does not wait when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_timeout_seconds: Option<u64>,
    /// How long terraform waits for an answer in a terminal.
    #[serde(default = "default_answer_timeout")]
    pub answer_timeout_seconds: u64,
    /// The run is cancelled already.
    #[serde(default)]
    pub cancel: bool,
    /// What earlier pods of this run reported; the runner goes on from there.
    #[serde(default)]
    pub earlier_steps: Vec<StepStatus>,
    /// How many bytes of log the hub has from earlier pods.
    #[serde(default)]
    pub log_offset: u64,
}

fn default_answer_timeout() -> u64 {
    Timeouts::DEFAULT_ANSWER.as_secs()
}

/// Why a [`Job`] cannot be read.
#[derive(Debug)]
pub enum JobError {
    /// The hub speaks another version of the protocol; 0 when it does not say which.
    Protocol(u32),
    Json(serde_json::Error),
}

impl Job {
    /// Reads a job. The protocol is checked before anything else is understood.
    ///
    /// # Errors
    /// When the protocol is another, or the text is not a job.
    pub fn read(json: &[u8]) -> Result<Self, JobError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            protocol: u32,
        }
        let Head { protocol } = serde_json::from_slice(json).map_err(JobError::Json)?;
        if protocol != PROTOCOL {
            return Err(JobError::Protocol(protocol));
        }
        serde_json::from_slice(json).map_err(JobError::Json)
    }
}

/// How terraform gets providers and modules, beside what the module and the pod say.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRegistry {
    /// Fragments of terraform's CLI configuration. Of blocks that several have, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terraformrc: Vec<CliFragment>,
    /// The text of a `.netrc` file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netrc: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<JobSsh>,
}

impl JobRegistry {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Leaves out the content, so that no log can show a secret by accident.
impl std::fmt::Debug for JobRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from: Vec<&str> = self.terraformrc.iter().map(|fragment| fragment.from.as_str()).collect();
        f.debug_struct("JobRegistry").field("terraformrc", &from).finish_non_exhaustive()
    }
}

/// A fragment of terraform's CLI configuration.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CliFragment {
    /// The Policy that supplies it.
    pub from: String,
    pub text: String,
    /// Whether the text comes from a Secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

/// What git needs for modules over ssh.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSsh {
    /// The private key in the form of OpenSSH.
    pub identity: String,
    /// The trusted host keys, in ssh's own form.
    pub known_hosts: String,
}

/// Files and standard input that came beside the bundle, because the bundle is public.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobInput {
    /// The values of `-var` among the arguments, by name.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// Variable files by their path from the top of the bundle.
    #[serde(default)]
    pub files: BTreeMap<String, ByteString>,
    /// The standard input of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<ByteString>,
    /// Environment variables of the client: `TF_VAR_*` and `TF_TOKEN_*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Leaves out the content, so that no log can show a secret by accident.
impl std::fmt::Debug for JobInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobInput").field("files", &self.files.keys()).finish_non_exhaustive()
    }
}

/// The output of a reading command as terraform printed it. It is stored in a Secret of the Run if the log differs from
/// it: the log is public, and sensitive values are masked there.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub stdout: ByteString,
    pub stderr: ByteString,
}

impl Answer {
    /// The largest output of both streams together. Its text form fits into [`LARGEST_CONTENT`].
    pub const LARGEST: u64 = LARGEST_CONTENT / 2;
}

/// Leaves out the content, so that no log can show a secret by accident.
impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// A variable with its value.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobVariable {
    /// Its name.
    pub key: String,
    /// Its value. Text of a Workspace's variable is for terraform to read as it reads `-var`.
    pub value: Value,
    /// Whether it is an environment variable.
    #[serde(default)]
    pub env: bool,
    /// Whether the value has to stay out of logs and reports.
    #[serde(default)]
    pub sensitive: bool,
    /// Whether terraform may read the text as an expression: true for a Workspace's variables, which are text.
    #[serde(default)]
    pub expression: bool,
}

/// Leaves out the value, so that no log can show a secret by accident.
impl std::fmt::Debug for JobVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobVariable")
            .field("key", &self.key)
            .field("env", &self.env)
            .field("sensitive", &self.sensitive)
            .field("expression", &self.expression)
            .finish_non_exhaustive()
    }
}

/// A hook with its script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobHook {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub step: StepName,
    /// The script.
    pub script: String,
    /// The container of the pod that runs it and waits at a gate; the runner itself when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Environment variables, beside those of the run.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How long it may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// What its failure does to the run.
    #[serde(default)]
    pub on_failure: HookFailure,
}

/// The whole picture of a run, each time; so it can be repeated and coalesced, and the newest wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Grows with each report of a pod; a report with a smaller one is late and ignored.
    pub sequence: u64,
    /// What each step did.
    pub steps: Vec<StepStatus>,
    /// What the plan would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// The digest of the module's files, which the hub stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Digest>,
    /// The variables with a value that the root module does not declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeclared_variables: Vec<String>,
    /// Whether a client has attached.
    #[serde(default)]
    pub attached: bool,
    /// Since when terraform waits for an answer in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompted_at: Option<MicroTime>,
    /// Set in the last report: this pod's work is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The digests of the images of the pod, by container. The hub fills them in from the pod; a runner cannot.
    #[serde(skip)]
    pub image_digests: BTreeMap<String, String>,
}

/// How a pod's work ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The exit code of terraform, or of the command.
    pub code: i32,
    /// Absent where the exit code says it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why a pod's work ended. The hub refuses a report with any other word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// It succeeded, although the exit code is not 0: `plan -detailed-exitcode` exits with 2.
    Succeeded,
    Cancelled,
    /// The client did not attach in time.
    AttachTimedOut,
    /// The module could not be fetched or unpacked.
    SourceFailed,
    /// A variable of the job could not be resolved.
    VariablesFailed,
    StepFailed,
    TimedOut,
    #[serde(rename = "OOMKilled")]
    OomKilled,
    /// The pod was terminated while terraform ran.
    PodDeleted,
    /// The hub did not answer for too long, so terraform was stopped.
    HubLost,
    Evicted,
    NodeLost,
    /// The runner was stopped by somebody else than Kubernetes.
    RunnerLost,
    /// The plan is not the approved one.
    DigestMismatch,
    /// The content that the pods are made of is not what was planned with.
    ChangedSincePlanned,
    /// The hub does not have the last state that terraform wrote.
    StateNotSaved,
    /// The Secret with the name of the state is no state, or none that can be written.
    StateUnreadable,
}

impl EndReason {
    /// The reason of the Run's conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => reason::SUCCEEDED,
            Self::Cancelled => reason::CANCELLED,
            Self::AttachTimedOut => reason::ATTACH_TIMED_OUT,
            Self::SourceFailed => reason::SOURCE_FAILED,
            Self::VariablesFailed => reason::VARIABLES_FAILED,
            Self::StepFailed => reason::STEP_FAILED,
            Self::TimedOut => reason::TIMED_OUT,
            Self::OomKilled => reason::OOM_KILLED,
            Self::PodDeleted => reason::POD_DELETED,
            Self::HubLost => reason::HUB_LOST,
            Self::Evicted => reason::EVICTED,
            Self::NodeLost => reason::NODE_LOST,
            Self::RunnerLost => reason::RUNNER_LOST,
            Self::DigestMismatch => reason::DIGEST_MISMATCH,
            Self::ChangedSincePlanned => reason::CHANGED_SINCE_PLANNED,
            Self::StateNotSaved => reason::STATE_NOT_SAVED,
            Self::StateUnreadable => reason::STATE_UNREADABLE,
        }
    }
}

/// The answer to a [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressReply {
    /// The run is cancelled: the runner has to stop terraform.
    pub cancel: bool,
}

/// The answer to the JSON of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanJudged {
    /// What the rules say, a sentence each.
    pub results: Vec<String>,
}

/// The answer to a part of the log that does not follow what the hub has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogOffset {
    /// How many bytes the hub has.
    pub offset: u64,
}

/// The body of every answer that is a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// A sentence that says what went wrong and what to do.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_end_a_run() {
        let read = |json: &str| serde_json::from_str::<Exit>(json).map(|exit| exit.reason);
        assert_eq!(read(r#"{"code": 1, "reason": "OOMKilled"}"#).ok(), Some(Some(EndReason::OomKilled)));
        assert_eq!(read(r#"{"code": 1}"#).ok(), Some(None));
        assert!(read(r#"{"code": 1, "reason": "Approved"}"#).is_err());
    }

    #[test]
    fn an_end_has_the_same_word_on_the_wire_and_in_conditions() {
        for word in [EndReason::Succeeded, EndReason::OomKilled, EndReason::AttachTimedOut, EndReason::StateNotSaved] {
            assert_eq!(serde_json::to_value(word).ok(), Some(word.as_str().into()));
        }
    }

    #[test]
    fn a_job_of_another_protocol_is_refused_before_it_is_understood() {
        let read = |json: &str| Job::read(json.as_bytes());
        assert!(matches!(read(r#"{"protocol": 7, "stage": {"new": true}}"#), Err(JobError::Protocol(7))));
        assert!(matches!(read(r#"{"run": "r"}"#), Err(JobError::Protocol(0))));
        assert!(matches!(read(r#"{"protocol": 1}"#), Err(JobError::Protocol(1))));
        assert!(matches!(read(&format!("{{\"protocol\": {PROTOCOL}}}")), Err(JobError::Json(_))));
    }
}
