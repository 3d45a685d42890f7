//! Admission: ValidatingAdmissionPolicies have their say on every write.
//!
//! The policies are compiled when they change, not when they are asked.

use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::status::{ApiError, Result};
use crate::{Call, Server, object};
use knoll_kube_model::Expression;

/// Where policies and bindings are stored.
pub const FOLDER: &str = "admissionregistration.k8s.io/";
const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies/";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings/";
/// What an expression may speak of.
pub const VARIABLES: &[&str] = &["object", "oldObject", "request", "params", "namespaceObject", "variables"];

/// The policies of now, compiled.
#[derive(Default)]
pub struct Policies(RwLock<Arc<Vec<Policy>>>);

/// A policy with the bindings that put it into force.
struct Policy {
    name: String,
    /// `matchConstraints`
    matching: Value,
    conditions: Vec<Compiled>,
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
    /// An expression that cannot be evaluated refuses the request.
    strict: bool,
    bindings: Vec<Binding>,
}

/// What puts a policy into force.
struct Binding {
    name: String,
    /// `matchResources`, which narrows what the policy matches.
    matching: Value,
    denies: bool,
    warns: bool,
}

type Compiled = std::result::Result<Expression, String>;

struct Validation {
    expression: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: &'static str,
    code: StatusCode,
}

impl Policies {
    /// Reads and compiles what the store holds.
    pub fn load(&self, server: &Server) {
        let bindings = server.objects(BINDINGS);
        let policies = server.objects(POLICIES).iter().map(|policy| compile(policy, &bindings)).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policies);
    }

    fn current(&self) -> Arc<Vec<Policy>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn compile(policy: &Value, bindings: &[Value]) -> Policy {
    let name = object::meta(policy, "name").to_owned();
    let spec = &policy["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let expression = |value: &Value| Expression::compile_with(value.as_str().unwrap_or_default(), VARIABLES);
    let of_policy = |binding: &&Value| binding["spec"]["policyName"] == name.as_str();
    let listed = list(&spec["validations"]);
    let validations = listed.iter().map(|validation| {
        let (reason, code) = match validation["reason"].as_str() {
            Some("Forbidden") => ("Forbidden", StatusCode::FORBIDDEN),
            Some("Unauthorized") => ("Unauthorized", StatusCode::UNAUTHORIZED),
            Some("RequestEntityTooLarge") => ("RequestEntityTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
            _ => ("Invalid", StatusCode::UNPROCESSABLE_ENTITY),
        };
        let source = validation["expression"].as_str().unwrap_or_default().trim();
        let message =
            validation["message"].as_str().map_or_else(|| format!("failed expression: {source}"), str::to_owned);
        Validation {
            expression: expression(&validation["expression"]),
            message,
            message_expression: validation["messageExpression"]
                .is_string()
                .then(|| expression(&validation["messageExpression"])),
            reason,
            code,
        }
    });
    Policy {
        matching: spec["matchConstraints"].clone(),
        conditions: list(&spec["matchConditions"]).iter().map(|c| expression(&c["expression"])).collect(),
        variables: list(&spec["variables"])
            .iter()
            .map(|v| (v["name"].as_str().unwrap_or_default().to_owned(), expression(&v["expression"])))
            .collect(),
        validations: validations.collect(),
        strict: spec["failurePolicy"] != "Ignore",
        bindings: bindings
            .iter()
            .filter(of_policy)
            .map(|b| Binding {
                name: object::meta(b, "name").to_owned(),
                matching: b["spec"]["matchResources"].clone(),
                denies: list(&b["spec"]["validationActions"]).contains(&"Deny".into()),
                warns: list(&b["spec"]["validationActions"]).contains(&"Warn".into()),
            })
            .collect(),
        name,
    }
}

/// The rules of a `matchConstraints` or a `matchResources` cover the write. No rules cover everything.
fn covers(matching: &Value, call: &Call, operation: &str) -> bool {
    let has = |list: &Value, wanted: &str| list.as_array().into_iter().flatten().any(|v| v == wanted || v == "*");
    let resource = match call.target.subresource.as_deref() {
        Some(sub) => format!("{}/{sub}", call.resource.plural),
        None => call.resource.plural.clone(),
    };
    let fits = |rule: &Value| {
        has(&rule["operations"], operation)
            && has(&rule["apiGroups"], &call.resource.group)
            && has(&rule["apiVersions"], &call.resource.version)
            && has(&rule["resources"], &resource)
    };
    let any = |key: &str| matching[key].as_array().is_some_and(|rules| rules.iter().any(fits));
    let all = matching["resourceRules"].as_array().is_none_or(Vec::is_empty);
    (all || any("resourceRules")) && !any("excludeResourceRules")
}

/// The selectors of a `matchConstraints` or a `matchResources` want what is written.
fn selects(matching: &Value, scope: &Scope) -> bool {
    let labels = |object: &Value| object["metadata"]["labels"].clone();
    let namespace = scope.namespace.is_null() || selected(&matching["namespaceSelector"], &labels(&scope.namespace));
    let objects = [&scope.object, &scope.old];
    let object = objects.iter().any(|o| !o.is_null() && selected(&matching["objectSelector"], &labels(o)));
    let nothing = scope.object.is_null() && scope.old.is_null();
    namespace && (object || (nothing && selected(&matching["objectSelector"], &Value::Null)))
}

/// A label selector in the form of an object wants these labels.
fn selected(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value);
    let list = selector["matchExpressions"].as_array().into_iter().flatten();
    exact
        && list.into_iter().all(|wish| {
            let label = labels.get(wish["key"].as_str().unwrap_or_default());
            let listed = label.is_some_and(|l| wish["values"].as_array().is_some_and(|values| values.contains(l)));
            match wish["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                Some("Exists") => label.is_some(),
                _ => label.is_none(),
            }
        })
}

impl Policy {
    /// The first validation that does not hold, with its sentence.
    fn refusal(&self, scope: &Scope) -> Option<(&'static str, StatusCode, String)> {
        let broken = |why: &str| self.strict.then(|| ("Invalid", StatusCode::UNPROCESSABLE_ENTITY, why.to_owned()));
        let mut variables = Map::new();
        for (name, expression) in &self.variables {
            // A variable that cannot be computed matters only to who asks for it.
            if let Ok(value) = evaluate(expression, scope, &variables) {
                variables.insert(name.clone(), value);
            }
        }
        for condition in &self.conditions {
            match evaluate(condition, scope, &variables) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => return None,
                Err(why) => return broken(&why),
            }
        }
        for validation in &self.validations {
            match evaluate(&validation.expression, scope, &variables) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let own = validation.message_expression.as_ref().and_then(|e| evaluate(e, scope, &variables).ok());
                    let message =
                        own.as_ref().and_then(Value::as_str).map_or_else(|| validation.message.clone(), str::to_owned);
                    return Some((validation.reason, validation.code, message));
                }
                Err(why) => {
                    if let Some(refusal) = broken(&why) {
                        return Some(refusal);
                    }
                }
            }
        }
        None
    }
}

/// What a write looks like to an expression.
struct Scope {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
}

fn evaluate(
    expression: &Compiled,
    scope: &Scope,
    variables: &Map<String, Value>,
) -> std::result::Result<Value, String> {
    let expression = expression.as_ref().map_err(Clone::clone)?;
    let variables = Value::Object(variables.clone());
    expression.evaluate(&[
        ("object", &scope.object),
        ("oldObject", &scope.old),
        ("request", &scope.request),
        ("params", &Value::Null),
        ("namespaceObject", &scope.namespace),
        ("variables", &variables),
    ])
}

impl Server {
    /// Asks every policy in force that matches the write. `object` is what it would become, `old` what it is.
    pub(crate) fn admit(
        &self,
        call: &Call,
        operation: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<()> {
        let policies = self.policies.current();
        let mut asked =
            policies.iter().filter(|p| !p.bindings.is_empty() && covers(&p.matching, call, operation)).peekable();
        if asked.peek().is_none() {
            return Ok(());
        }
        let name = object
            .or(old)
            .map_or_else(|| call.target.name.clone().unwrap_or_default(), |o| object::meta(o, "name").to_owned());
        let namespace = match &call.target.namespace {
            Some(namespace) => self.read_namespace(namespace)?.unwrap_or_default(),
            None => Value::Null,
        };
        let resource = &call.resource;
        let scope = Scope {
            object: object.cloned().unwrap_or_default(),
            old: old.cloned().unwrap_or_default(),
            request: json!({
                "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
                "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
                "subResource": call.target.subresource.as_deref().unwrap_or_default(),
                "name": name, "namespace": call.target.namespace.as_deref().unwrap_or_default(),
                "operation": operation, "userInfo": call.identity.user_info(), "dryRun": call.query.dry_run(),
            }),
            namespace,
        };
        for policy in asked.filter(|p| selects(&p.matching, &scope)) {
            let bound = |b: &&Binding| covers(&b.matching, call, operation) && selects(&b.matching, &scope);
            let bindings: Vec<&Binding> = policy.bindings.iter().filter(bound).collect();
            if bindings.is_empty() {
                continue;
            }
            let Some((reason, code, message)) = policy.refusal(&scope) else { continue };
            for binding in bindings.iter().filter(|b| b.warns) {
                call.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name, binding.name
                ));
            }
            if let Some(binding) = bindings.iter().find(|b| b.denies) {
                let binding = &binding.name;
                let name = if name.is_empty() { "Unknown" } else { &name };
                let why = format!(
                    "ValidatingAdmissionPolicy '{}' with binding '{binding}' denied request: {message}",
                    policy.name
                );
                let mut error = ApiError::forbidden(resource.subject(name), &why);
                error.reason = reason;
                error.code = code;
                if let Some(details) = &mut error.details {
                    details["causes"] = json!([{"message": why}]);
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
