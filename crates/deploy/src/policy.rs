//! The ValidatingAdmissionPolicies that bind a record to the user who writes it, and keep a role from raising itself.
//!
//! *Guarantees.* `spec.by` of an Approval and `spec.requestedBy` of a Run are the names of the users who created them,
//! for administrators too; `spec.groups` of an Approval and `spec.startNow.groups` of a Run are groups of that user. Only
//! the operator names somebody else, and only on the Runs of a Stack. The annotation `knoll.dev/requested-by` of a Stack is the user who last changed its
//! spec, and `knoll.dev/cancelled-by` of a Run the user who last set `knoll.dev/cancel`: a write that would make one of
//! them false is refused. What `spec.allow` of a Policy does not allow is refused as far as admission can know
//! ([`allowed`]).

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use knoll_api::names::{GROUP, OWN_CONFIG_MAPS, OWN_SECRETS, annotation, finalizer, label};
use kube::Resource;

use crate::{Manifest, operator::metadata};

mod allowed;

/// Whether a request is one of an administrator of the embedded cluster.
const IS_ADMINISTRATOR: &str = "(has(request.userInfo.groups) && 'system:masters' in request.userInfo.groups)";

/// The policies of Knoll's kinds, each with the binding that enables it for the whole cluster. `operator` is the
/// username of the operator.
pub fn manifests(operator: &str) -> Vec<Manifest> {
    records(operator).into_iter().chain(restrictions(operator)).collect()
}

/// The policies that bind a record to the user who writes it.
pub fn records(operator: &str) -> Vec<Manifest> {
    [approvals(), runs(operator), stacks()].iter().flat_map(Policy::manifests).collect()
}

/// The policies that refuse what a Policy does not allow.
pub fn restrictions(operator: &str) -> Vec<Manifest> {
    allowed::policies(operator).iter().flat_map(Policy::manifests).collect()
}

/// The policies that need a cluster whose API server has an authorizer for CEL and a controller of tokens. The embedded
/// one has neither.
pub fn for_cluster() -> Vec<Manifest> {
    tokens().manifests().into()
}

/// The policies on the Secrets and ConfigMaps of the operator, for a cluster whose API server has an authorizer for CEL: who
/// may change those of a namespace may create these too, as a restore from a backup does.
pub fn contents_on_cluster(operator: &str) -> Vec<Manifest> {
    let may_change = |resource: &str| {
        format!("authorizer.group('').resource('{resource}').namespace(request.namespace).check('update').allowed()")
    };
    contents(operator, may_change).iter().flat_map(Policy::manifests).collect()
}

/// As [`contents_on_cluster`], for the embedded cluster, whose administrators are one group.
pub fn contents_on_embedded(operator: &str) -> Vec<Manifest> {
    contents(operator, |_| IS_ADMINISTRATOR.to_owned()).iter().flat_map(Policy::manifests).collect()
}

/// The policies that keep the finalizers of Knoll, for a cluster whose API server has an authorizer for CEL: who may update
/// the `finalizers` of a kind may remove them, for a cluster without its operator.
pub fn finalizers_on_cluster(operator: &str) -> Vec<Manifest> {
    let may_release = |resource: &str| {
        format!(
            "authorizer.group('{GROUP}').resource('{resource}').subresource('finalizers').namespace(request.namespace).check('update').allowed()"
        )
    };
    finalizers(operator, may_release).iter().flat_map(Policy::manifests).collect()
}

/// As [`finalizers_on_cluster`], for the embedded cluster.
pub fn finalizers_on_embedded(operator: &str) -> Vec<Manifest> {
    finalizers(operator, |_| IS_ADMINISTRATOR.to_owned()).iter().flat_map(Policy::manifests).collect()
}

/// The creator of an Approval is the user that it names, and is in the groups that it names.
fn approvals() -> Policy {
    let honest = forbidden(
        "object.spec.by == request.userInfo.username",
        "set spec.by to your own username, as shown by `kubectl auth whoami`",
        "'set spec.by to your own username, ' + request.userInfo.username + ': an Approval can only be created in your own name'",
    );
    let member = forbidden(
        "!has(object.spec.groups) || object.spec.groups.all(group, has(request.userInfo.groups) && group in request.userInfo.groups)",
        "set spec.groups to groups that you are in, as shown by `kubectl auth whoami`",
        "",
    );
    // The spec of an Approval is immutable, so a check on creation is enough.
    Policy {
        name: "knoll-approvals",
        group: GROUP,
        resource: "approvals",
        operations: &["CREATE"],
        conditions: Vec::new(),
        variables: Vec::new(),
        validations: vec![honest, member],
        per_policy: false,
    }
}

/// The creator of a Run is the user that it names, and only the operator creates the Runs of Stacks.
fn runs(operator: &str) -> Policy {
    // The spec of a Run is immutable, and others may change its metadata.
    let honest = forbidden(
        "oldObject != null || !has(object.spec.requestedBy) || object.spec.requestedBy == request.userInfo.username || (variables.operator && variables.stack != '')",
        "set spec.requestedBy to your own username, as shown by `kubectl auth whoami`, or leave it out",
        "'set spec.requestedBy to your own username, ' + request.userInfo.username + ', or leave it out: a Run can only be requested in your own name'",
    );
    let reserved = |name: &str, of_object: &str, of_old: &str| {
        forbidden(
            &format!("variables.operator || {of_object} == {of_old}"),
            &format!("leave `{name}` as it is: only the operator marks the Runs of a Stack"),
            "",
        )
    };
    let cancel = texts("annotations", annotation::CANCEL);
    let by = texts("annotations", annotation::CANCELLED_BY);
    // The Stack of a Run cancels it beside any name; its value of the annotation says so.
    let cancels = forbidden(
        &format!(
            "variables.operator || {by} == '' || {by} == request.userInfo.username || ({by} == {old_by} && {cancel} == {old_cancel})",
            by = by.0,
            old_by = by.1,
            cancel = cancel.0,
            old_cancel = cancel.1,
        ),
        &own_name(annotation::CANCELLED_BY),
        "",
    );
    // A Run with the finalizer of somebody else can never be deleted, nor can its Stack or its namespace.
    let finalizers = |object: &str| {
        format!("({object} != null && has({object}.metadata.finalizers) ? {object}.metadata.finalizers : [])")
    };
    let released = forbidden(
        &format!(
            "{new}.all(name, name in ['{own}', 'foregroundDeletion', 'orphan'] || name in {old})",
            new = finalizers("object"),
            own = finalizer::RUN,
            old = finalizers("oldObject"),
        ),
        &format!("leave all finalizers except `{}` out: another one would keep the Run for ever", finalizer::RUN),
        "",
    );
    let stack = texts("labels", label::STACK);
    let uid = texts("annotations", annotation::STACK_UID);
    let number = texts("annotations", annotation::NUMBER);
    let nonce = texts("annotations", annotation::NONCE);
    let superseded = texts("annotations", annotation::SUPERSEDED);
    let purpose = texts("labels", label::PURPOSE);
    let groups = forbidden(
        "oldObject != null || !has(object.spec.startNow) || !has(object.spec.startNow.groups) || object.spec.startNow.groups.all(group, has(request.userInfo.groups) && group in request.userInfo.groups)",
        "set spec.startNow.groups to groups that you are in, as shown by `kubectl auth whoami`",
        "",
    );
    let snapshot = forbidden(
        "oldObject != null || variables.operator || !has(object.spec.snapshot)",
        "leave spec.snapshot out: only the operator starts the Runs of a Stack",
        "",
    );
    Policy {
        name: "knoll-runs",
        group: GROUP,
        resource: "runs",
        operations: &["CREATE", "UPDATE"],
        conditions: Vec::new(),
        variables: vec![
            variable("operator", &format!("request.userInfo.username == '{operator}'")),
            variable("stack", &stack.0),
        ],
        validations: vec![
            honest,
            groups,
            cancels,
            released,
            reserved(label::STACK, "variables.stack", &stack.1),
            reserved(annotation::STACK_UID, &uid.0, &uid.1),
            reserved(annotation::NUMBER, &number.0, &number.1),
            reserved(annotation::NONCE, &nonce.0, &nonce.1),
            reserved(annotation::SUPERSEDED, &superseded.0, &superseded.1),
            reserved(label::PURPOSE, &purpose.0, &purpose.1),
            snapshot,
        ],
        per_policy: false,
    }
}

/// The annotation of a Stack names the user who last changed its spec, or nobody.
fn stacks() -> Policy {
    let (by, old_by) = texts("annotations", annotation::REQUESTED_BY);
    let honest = forbidden(
        "variables.by == '' || variables.by == request.userInfo.username || !variables.asks",
        &own_name(annotation::REQUESTED_BY),
        &format!(
            "'set the annotation {} to your own username, ' + request.userInfo.username + ', or remove it: it names the user who last changed the spec'",
            annotation::REQUESTED_BY
        ),
    );
    Policy {
        name: "knoll-stacks",
        group: GROUP,
        resource: "stacks",
        operations: &["CREATE", "UPDATE"],
        conditions: Vec::new(),
        variables: vec![
            variable("by", &by),
            variable("asks", &format!("oldObject == null || object.spec != oldObject.spec || {by} != {old_by}")),
        ],
        validations: vec![honest],
        per_policy: false,
    }
}

/// A Secret of a service account's token is created only by a user who may request that token.
///
/// Kubernetes writes the token of any service account of the namespace into such a Secret. Without this policy, a user
/// who may create and read Secrets, as `knoll-user` may, acts as every service account there.
fn tokens() -> Policy {
    let account = text("annotations", "object", "kubernetes.io/service-account.name");
    let allowed = forbidden(
        &format!(
            "!has(object.type) || object.type != 'kubernetes.io/service-account-token' || authorizer.group('').resource('serviceaccounts').subresource('token').namespace(request.namespace).name({account}).check('create').allowed()"
        ),
        "you may not request tokens of that service account, so you cannot create a Secret for one; ask for the permission to create `serviceaccounts/token`",
        "",
    );
    Policy {
        name: "knoll-tokens",
        group: "",
        resource: "secrets",
        operations: &["CREATE"],
        conditions: Vec::new(),
        variables: Vec::new(),
        validations: vec![allowed],
        per_policy: false,
    }
}

/// Only the operator, and users who are `trusted`, create the Secrets and the ConfigMaps in which the operator stores content.
///
/// Their names are known beforehand. Without these policies, a user who may create Secrets, as `knoll-user` may, gives a new
/// Workspace a state of their own, or takes the name of a Secret that the next state needs, which is lost then. A user who
/// may create ConfigMaps writes the log of a Run.
fn contents(operator: &str, trusted: impl Fn(&str) -> String) -> [Policy; 2] {
    let of = |name, resource, kind: &str, names: &[&str]| {
        let prefixes: Vec<String> = names.iter().map(|prefix| format!("'{prefix}'")).collect();
        let text = |field: &str| format!("(has(object.metadata.{field}) ? object.metadata.{field} : '')");
        let stored = forbidden(
            &format!(
                "request.userInfo.username == '{operator}' || ![{}].exists(prefix, {}.startsWith(prefix) || {}.startsWith(prefix)) || {}",
                prefixes.join(", "),
                text("name"),
                text("generateName"),
                trusted(resource),
            ),
            &format!("choose another name: only the operator creates {kind} with the names {}*", names.join("*, ")),
            "",
        );
        Policy {
            name,
            group: "",
            resource,
            operations: &["CREATE"],
            conditions: Vec::new(),
            variables: Vec::new(),
            validations: vec![stored],
            per_policy: false,
        }
    };
    [
        of("knoll-contents", "secrets", "Secrets", &OWN_SECRETS),
        of("knoll-logs", "configmaps", "ConfigMaps", &OWN_CONFIG_MAPS),
    ]
}

/// A finalizer of Knoll holds its object while terraform may be running: without it, a Run could lose what it has made, and a
/// Workspace that is made again would let a second one run.
fn finalizers(operator: &str, trusted: impl Fn(&str) -> String) -> [Policy; 4] {
    let of = |name, resource, own: &str| {
        let held =
            |object: &str| format!("has({object}.metadata.finalizers) && '{own}' in {object}.metadata.finalizers");
        let kept = forbidden(
            &format!(
                "!({}) || ({}) || request.userInfo.username == '{operator}' || {}",
                held("oldObject"),
                held("object"),
                trusted(resource),
            ),
            &format!("leave the finalizer `{own}` in place: the operator removes it when nothing runs any more"),
            "",
        );
        Policy {
            name,
            group: GROUP,
            resource,
            operations: &["UPDATE"],
            conditions: Vec::new(),
            variables: Vec::new(),
            validations: vec![kept],
            per_policy: false,
        }
    };
    [
        of("knoll-held-runs", "runs", finalizer::RUN),
        of("knoll-held-workspaces", "workspaces", finalizer::WORKSPACE),
        of("knoll-held-stacks", "stacks", finalizer::STACK),
        of("knoll-held-atoms", "atoms", finalizer::ATOM),
    ]
}

fn own_name(annotation: &str) -> String {
    format!("set the annotation {annotation} to your own username, as shown by `kubectl auth whoami`, or remove it")
}

/// The rules for writes to one kind.
struct Policy {
    /// The name of the policy and of its binding.
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
    /// Names and expressions. A write for which one of them is false is not looked at.
    conditions: Vec<(&'static str, String)>,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
    /// The rules are evaluated once for each Policy of the cluster, as `params`, and decide nothing where they cannot be
    /// evaluated.
    per_policy: bool,
}

impl Policy {
    fn manifests(&self) -> [Manifest; 2] {
        let strings = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
        let matched = NamedRuleWithOperations {
            api_groups: strings(&[self.group]),
            api_versions: strings(&["*"]),
            operations: strings(self.operations),
            resources: strings(&[self.resource]),
            ..NamedRuleWithOperations::default()
        };
        let policy = ValidatingAdmissionPolicy {
            metadata: metadata(self.name, None),
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some(if self.per_policy { "Ignore" } else { "Fail" }.to_owned()),
                param_kind: self.per_policy.then(|| ParamKind {
                    api_version: Some(knoll_api::Policy::api_version(&()).into_owned()),
                    kind: Some(knoll_api::Policy::kind(&()).into_owned()),
                }),
                match_conditions: Some(self.conditions.iter().map(condition).collect())
                    .filter(|conditions: &Vec<_>| !conditions.is_empty()),
                match_constraints: Some(MatchResources {
                    resource_rules: Some(vec![matched]),
                    ..MatchResources::default()
                }),
                variables: Some(self.variables.clone()).filter(|variables| !variables.is_empty()),
                validations: Some(self.validations.clone()),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        };
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: metadata(self.name, None),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.to_owned()),
                param_ref: self.per_policy.then(|| ParamRef {
                    selector: Some(LabelSelector::default()),
                    parameter_not_found_action: Some("Allow".to_owned()),
                    ..ParamRef::default()
                }),
                validation_actions: strings(&["Deny"]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        };
        [Manifest::of(&policy), Manifest::of(&binding)]
    }
}

fn condition((name, expression): &(&'static str, String)) -> MatchCondition {
    MatchCondition { name: (*name).to_owned(), expression: expression.clone() }
}

/// A rule that answers 403, with a fixed message and, unless it is empty, an expression for a better one.
fn forbidden(expression: &str, message: &str, message_expression: &str) -> Validation {
    Validation {
        expression: expression.to_owned(),
        message: Some(message.to_owned()),
        message_expression: Some(message_expression.to_owned()).filter(|text| !text.is_empty()),
        reason: Some("Forbidden".to_owned()),
    }
}

fn variable(name: &str, expression: &str) -> Variable {
    Variable { name: name.to_owned(), expression: expression.to_owned() }
}

/// [`text`] of the object after the write, and of the object before it.
fn texts(field: &str, key: &str) -> (String, String) {
    (text(field, "object", key), text(field, "oldObject", key))
}

/// The value of a label or an annotation as a CEL expression; empty if the object or the value does not exist.
fn text(field: &str, object: &str, key: &str) -> String {
    let map = format!("{object}.metadata.{field}");
    format!("({object} != null && has({map}) && '{key}' in {map} ? {map}['{key}'] : '')")
}
