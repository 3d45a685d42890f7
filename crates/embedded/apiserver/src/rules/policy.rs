//! ValidatingAdmissionPolicies and their bindings: defaults, and what they must say.

use serde_json::{Value, json};

use crate::admission::{of_conditions, of_validations};
use crate::kinds::Resource;
use crate::meta::bad_subdomain;
use knoll_kube_model::Expression;
use knoll_kube_model::schema::FieldError;

/// What matches if nothing is said.
pub fn defaults(resource: &Resource, object: &mut Value) {
    let spec = &mut object["spec"];
    let key = if resource.kind.ends_with("Binding") { "matchResources" } else { "matchConstraints" };
    if key == "matchConstraints" && spec["failurePolicy"].is_null() {
        spec["failurePolicy"] = "Fail".into();
    }
    let Some(matching) = spec.get_mut(key).and_then(Value::as_object_mut) else { return };
    for (field, value) in
        [("matchPolicy", json!("Equivalent")), ("namespaceSelector", json!({})), ("objectSelector", json!({}))]
    {
        matching.entry(field).or_insert(value);
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in matching.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if rule["scope"].is_null() {
                rule["scope"] = "*".into();
            }
        }
    }
}

/// What is wrong with a policy or a binding.
pub fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    if resource.kind.ends_with("Binding") { binding(spec) } else { policy(spec) }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

fn policy(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let failure = spec["failurePolicy"].as_str().unwrap_or_default();
    if !matches!(failure, "Fail" | "Ignore") {
        errors.push(FieldError::not_supported("spec.failurePolicy", failure, &["Fail", "Ignore"]));
    }
    if !spec["paramKind"].is_null() {
        errors.extend(param_kind(&spec["paramKind"]));
    }
    if spec["matchConstraints"].is_null() {
        errors.push(FieldError::required("spec.matchConstraints", ""));
    } else if list(&spec["matchConstraints"]["resourceRules"]).is_empty() {
        errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
    }
    let known = of_conditions(spec);
    for (at, condition) in list(&spec["matchConditions"]).iter().enumerate() {
        errors.extend(expression(&condition["expression"], &known, &format!("spec.matchConditions[{at}].expression")));
    }
    let known = of_validations(spec);
    let expression = |value: &Value, field: &str| expression(value, &known, field);
    for (at, variable) in list(&spec["variables"]).iter().enumerate() {
        errors.extend(expression(&variable["expression"], &format!("spec.variables[{at}].expression")));
    }
    if list(&spec["validations"]).is_empty() && list(&spec["auditAnnotations"]).is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required("spec.validations", why));
        errors.push(FieldError::required("spec.auditAnnotations", why));
    }
    for (at, validation) in list(&spec["validations"]).iter().enumerate() {
        let path = format!("spec.validations[{at}]");
        errors.extend(expression(&validation["expression"], &format!("{path}.expression")));
        if !validation["messageExpression"].is_null() {
            errors.extend(expression(&validation["messageExpression"], &format!("{path}.messageExpression")));
        }
        let reason = validation["reason"].as_str().unwrap_or("Invalid");
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        if !reasons.contains(&reason) {
            errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &reasons));
        }
    }
    errors
}

fn param_kind(kind: &Value) -> Vec<FieldError> {
    let field = "spec.paramKind.apiVersion";
    let mut errors = Vec::new();
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    match text("apiVersion").split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(field, "")),
        [_, ""] => errors.push(FieldError::invalid(field, text("apiVersion"), "version must be specified")),
        [_] | [_, _] => {}
        _ => {
            let why = format!("unexpected GroupVersion string: {}", text("apiVersion"));
            errors.push(FieldError::invalid(field, text("apiVersion"), why));
        }
    }
    if text("kind").is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
    }
    errors
}

fn expression(value: &Value, known: &[&str], field: &str) -> Option<FieldError> {
    let text = value.as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Some(FieldError::required(field, "expression is not specified"));
    }
    let why = Expression::compile_with(text, known).err()?;
    let why = if why.starts_with("compilation failed") { why } else { format!("compilation failed: {why}") };
    Some(FieldError::invalid(field, text, why))
}

fn binding(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policy = spec["policyName"].as_str().unwrap_or_default();
    if policy.is_empty() {
        errors.push(FieldError::required("spec.policyName", ""));
    } else if let Some(why) = bad_subdomain(policy) {
        errors.push(FieldError::invalid("spec.policyName", policy, why));
    }
    if !spec["paramRef"].is_null() {
        errors.extend(param_ref(&spec["paramRef"]));
    }
    let field = "spec.validationActions";
    let actions = list(&spec["validationActions"]);
    for (at, action) in actions.iter().enumerate() {
        let word = action.as_str().unwrap_or_default();
        if !matches!(word, "Audit" | "Deny" | "Warn") {
            errors.push(FieldError::not_supported(format!("{field}[{at}]"), word, &["Audit", "Deny", "Warn"]));
        }
        if actions[..at].contains(action) {
            errors.push(FieldError::duplicate(format!("{field}[{at}]"), word));
        }
    }
    if actions.contains(&"Deny".into()) && actions.contains(&"Warn".into()) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(field, spec["validationActions"].clone(), why));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(field, "at least one validation action is required"));
    }
    errors
}

fn param_ref(reference: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = "spec.paramRef";
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (named, selected) = (!text("name").is_empty(), !reference["selector"].is_null());
    match (named, selected) {
        (true, true) => {
            let why = "name and selector are mutually exclusive";
            errors.push(FieldError::forbidden(format!("{field}.name"), why));
            errors.push(FieldError::forbidden(format!("{field}.selector"), why));
        }
        (false, false) => errors.push(FieldError::required(field, "one of name or selector must be specified")),
        _ => {}
    }
    let field = format!("{field}.parameterNotFoundAction");
    match text("parameterNotFoundAction") {
        "" => errors.push(FieldError::required(field, "")),
        "Deny" | "Allow" => {}
        other => errors.push(FieldError::not_supported(field, other, &["Deny", "Allow"])),
    }
    errors
}
