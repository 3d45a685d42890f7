//! Admission: ValidatingAdmissionPolicies have their say on every write.
//!
//! The policies are compiled when they change, not when they are asked.

use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::schema::cel::Expression;
use crate::server::status::{ApiError, Result};
use crate::server::{Call, Server, object};

/// Where policies and bindings are stored.
pub const FOLDER: &str = "admissionregistration.k8s.io/";
const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies/";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings/";
/// What an expression may speak of.
const VARIABLES: &[&str] = &["object", "oldObject", "request", "params", "namespaceObject", "variables"];

/// The policies of now, compiled.
#[derive(Default)]
pub struct Policies(RwLock<Arc<Vec<Policy>>>);

/// A policy with the bindings that put it into force.
struct Policy {
    name: String,
    rules: Vec<Value>,
    conditions: Vec<Compiled>,
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
    /// An expression that cannot be evaluated refuses the request.
    strict: bool,
    bindings: Vec<String>,
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
    let denies = |binding: &&Value| {
        binding["spec"]["policyName"] == name.as_str()
            && list(&binding["spec"]["validationActions"]).contains(&"Deny".into())
    };
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
        rules: list(&spec["matchConstraints"]["resourceRules"]),
        conditions: list(&spec["matchConditions"]).iter().map(|c| expression(&c["expression"])).collect(),
        variables: list(&spec["variables"])
            .iter()
            .map(|v| (v["name"].as_str().unwrap_or_default().to_owned(), expression(&v["expression"])))
            .collect(),
        validations: validations.collect(),
        strict: spec["failurePolicy"] != "Ignore",
        bindings: bindings.iter().filter(denies).map(|b| object::meta(b, "name").to_owned()).collect(),
        name,
    }
}

impl Policy {
    fn matches(&self, call: &Call, operation: &str) -> bool {
        let has = |list: &Value, wanted: &str| list.as_array().into_iter().flatten().any(|v| v == wanted || v == "*");
        let resource = match call.target.subresource.as_deref() {
            Some(sub) => format!("{}/{sub}", call.resource.plural),
            None => call.resource.plural.clone(),
        };
        self.rules.iter().any(|rule| {
            has(&rule["operations"], operation)
                && has(&rule["apiGroups"], &call.resource.group)
                && has(&rule["apiVersions"], &call.resource.version)
                && has(&rule["resources"], &resource)
        })
    }

    /// The first validation that does not hold, with its sentence.
    fn refusal(&self, scope: &Scope) -> Option<(&'static str, StatusCode, String)> {
        let broken = |why: &str| self.strict.then(|| ("Invalid", StatusCode::UNPROCESSABLE_ENTITY, why.to_owned()));
        let mut variables = Map::new();
        for (name, expression) in &self.variables {
            match evaluate(expression, scope, &variables) {
                Ok(value) => variables.insert(name.clone(), value),
                Err(why) => return broken(&why),
            };
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
    pub fn admit(&self, call: &Call, operation: &str, object: Option<&Value>, old: Option<&Value>) -> Result<()> {
        let policies = self.policies.current();
        let mut asked = policies.iter().filter(|p| !p.bindings.is_empty() && p.matches(call, operation)).peekable();
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
        for policy in asked {
            if let Some((reason, code, message)) = policy.refusal(&scope) {
                let binding = policy.bindings.first().map_or("", String::as_str);
                let why = format!(
                    "ValidatingAdmissionPolicy '{}' with binding '{binding}' denied request: {message}",
                    policy.name
                );
                let mut error = ApiError::forbidden(resource.subject(&name), &why);
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
