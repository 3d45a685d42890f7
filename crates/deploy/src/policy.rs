//! The ValidatingAdmissionPolicy that binds an Approval to the user who creates it.

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
};
use knoll_api::names::GROUP;

use crate::{Manifest, operator::metadata};

/// The name of the policy and of its binding.
const NAME: &str = "knoll-approvals";

/// The policy, and the binding that enables it for the whole cluster.
pub fn manifests() -> Vec<Manifest> {
    let strings = |words: &[&str]| Some(words.iter().map(|&word| word.to_owned()).collect());
    // The spec of an Approval is immutable, so a check on creation is enough.
    let created = NamedRuleWithOperations {
        api_groups: strings(&[GROUP]),
        api_versions: strings(&["*"]),
        operations: strings(&["CREATE"]),
        resources: strings(&["approvals"]),
        ..NamedRuleWithOperations::default()
    };
    let honest = Validation {
        expression: "object.spec.by == request.userInfo.username".to_owned(),
        message: Some("set spec.by to your own username, as shown by `kubectl auth whoami`".to_owned()),
        message_expression: Some(
            "'set spec.by to your own username, ' + request.userInfo.username + ': an Approval can only be created in your own name'"
                .to_owned(),
        ),
        reason: Some("Forbidden".to_owned()),
    };
    let policy = ValidatingAdmissionPolicy {
        metadata: metadata(NAME, None),
        spec: Some(ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                resource_rules: Some(vec![created]),
                ..MatchResources::default()
            }),
            validations: Some(vec![honest]),
            ..ValidatingAdmissionPolicySpec::default()
        }),
        status: None,
    };
    let binding = ValidatingAdmissionPolicyBinding {
        metadata: metadata(NAME, None),
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(NAME.to_owned()),
            validation_actions: strings(&["Deny"]),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    };
    vec![Manifest::of(&policy), Manifest::of(&binding)]
}
