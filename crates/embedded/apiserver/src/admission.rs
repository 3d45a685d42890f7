//! Admission: ValidatingAdmissionPolicies have their say on every write.
//!
//! The policies are compiled when they change, not when they are asked.

use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use serde_json::{Value, json};

use crate::kinds::{Resource, join_version};
use crate::status::{ApiError, Result};
use crate::{Call, Server, object};
use knoll_kube_model::Expression;

/// Where policies and bindings are stored.
pub const FOLDER: &str = "admissionregistration.k8s.io/";
const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies/";
const BINDINGS: &str = "admissionregistration.k8s.io/validatingadmissionpolicybindings/";
/// What a match condition may speak of.
const OF_REQUEST: &[&str] = &["object", "oldObject", "request", "namespaceObject"];

/// What the match conditions of a policy may speak of. `params` are there for a policy with a `paramKind`.
pub fn of_conditions(spec: &Value) -> Vec<&'static str> {
    let params = (!spec["paramKind"].is_null()).then_some("params");
    OF_REQUEST.iter().copied().chain(params).collect()
}

/// What the other expressions of a policy may speak of.
pub fn of_validations(spec: &Value) -> Vec<&'static str> {
    of_conditions(spec).into_iter().chain(["variables"]).collect()
}

/// The policies of now, compiled.
#[derive(Default)]
pub struct Policies(RwLock<Arc<Vec<Policy>>>);

/// A policy with the bindings that put it into force.
struct Policy {
    name: String,
    /// `matchConstraints`
    matching: Value,
    /// `paramKind`
    param_kind: Option<ParamKind>,
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
    /// `paramRef`
    param_ref: Value,
    denies: bool,
    warns: bool,
}

/// The kind of the objects that a policy takes as `params`.
struct ParamKind {
    group: String,
    version: String,
    kind: String,
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
    let compiled = |value: &Value, known: &[&str]| Expression::compile_with(value.as_str().unwrap_or_default(), known);
    let (of_conditions, of_validations) = (of_conditions(spec), of_validations(spec));
    let expression = |value: &Value| compiled(value, &of_validations);
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
        param_kind: param_kind(&spec["paramKind"]),
        conditions: list(&spec["matchConditions"]).iter().map(|c| compiled(&c["expression"], &of_conditions)).collect(),
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
                param_ref: b["spec"]["paramRef"].clone(),
                denies: list(&b["spec"]["validationActions"]).contains(&"Deny".into()),
                warns: list(&b["spec"]["validationActions"]).contains(&"Warn".into()),
            })
            .collect(),
        name,
    }
}

fn param_kind(value: &Value) -> Option<ParamKind> {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let kind = || ParamKind { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() };
    (!value.is_null()).then(kind)
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
        let mut failed = None;
        for condition in &self.conditions {
            match evaluate(condition, scope, &Value::Null, &Value::Null) {
                Ok(Value::Bool(true)) => {}
                // One that does not hold decides, even where another one has no value.
                Ok(_) => return None,
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        if let Some(why) = failed {
            return broken(&why);
        }
        let evaluate = |expression, variables: &Value| evaluate(expression, scope, &scope.namespace, variables);
        let mut variables = json!({});
        for (name, expression) in &self.variables {
            // A variable that cannot be computed matters only to who asks for it.
            if let Ok(value) = evaluate(expression, &variables) {
                variables[name] = value;
            }
        }
        for validation in &self.validations {
            match evaluate(&validation.expression, &variables) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let own = validation.message_expression.as_ref().and_then(|e| evaluate(e, &variables).ok());
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
    params: Value,
}

fn evaluate(
    expression: &Compiled,
    scope: &Scope,
    namespace: &Value,
    variables: &Value,
) -> std::result::Result<Value, String> {
    let expression = expression.as_ref().map_err(Clone::clone)?;
    expression.evaluate(&[
        ("object", &scope.object),
        ("oldObject", &scope.old),
        ("request", &scope.request),
        ("params", &scope.params),
        ("namespaceObject", namespace),
        ("variables", variables),
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
        let mut scope = Scope {
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
            params: Value::Null,
        };
        let denied = |by: String, reason, code, message: &str| {
            let why = format!("ValidatingAdmissionPolicy {by} denied request: {message}");
            let mut error =
                ApiError::forbidden(resource.subject(if name.is_empty() { "Unknown" } else { &name }), &why);
            error.reason = reason;
            error.code = code;
            if let Some(details) = &mut error.details {
                details["causes"] = json!([{"message": why}]);
            }
            error
        };
        let misconfigured =
            |by: String, message: &str| denied(by, "Invalid", StatusCode::UNPROCESSABLE_ENTITY, message);
        for policy in asked {
            if !selects(&policy.matching, &scope) {
                continue;
            }
            let param_kind = match policy.param_kind.as_ref().map(|kind| self.resource_of(kind)).transpose() {
                Ok(kind) => kind,
                Err(why) if policy.strict => {
                    return Err(misconfigured(
                        format!("'{}'", policy.name),
                        &format!("failed to configure policy: {why}"),
                    ));
                }
                Err(_) => continue,
            };
            for binding in &policy.bindings {
                if !covers(&binding.matching, call, operation) || !selects(&binding.matching, &scope) {
                    continue;
                }
                let by = format!("'{}' with binding '{}'", policy.name, binding.name);
                let namespace = call.target.namespace.as_deref();
                let params = match self.params(param_kind.as_deref(), &binding.param_ref, namespace) {
                    Ok(params) => params,
                    Err(why) if policy.strict => {
                        return Err(misconfigured(by, &format!("failed to configure binding: {why}")));
                    }
                    Err(_) => continue,
                };
                for params in params {
                    scope.params = params;
                    let Some((reason, code, message)) = policy.refusal(&scope) else { continue };
                    if binding.warns {
                        call.warn(format!("Validation failed for ValidatingAdmissionPolicy {by}: {message}"));
                    }
                    if binding.denies {
                        return Err(denied(by, reason, code, &message));
                    }
                }
            }
        }
        Ok(())
    }

    /// The resource of the objects that a policy takes as `params`.
    fn resource_of(&self, kind: &ParamKind) -> std::result::Result<Arc<Resource>, String> {
        let ParamKind { group, version, kind } = kind;
        self.registry.current().by_kind(group, version, kind).ok_or_else(|| {
            let version = join_version(group, version);
            format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'")
        })
    }

    /// What a binding gives its policy as `params`: the policy is evaluated once for each. A policy without a `paramKind`
    /// and a binding without a `paramRef` have none, and are evaluated without.
    fn params(
        &self,
        kind: Option<&Resource>,
        reference: &Value,
        namespace: Option<&str>,
    ) -> std::result::Result<Vec<Value>, String> {
        let Some(kind) = kind.filter(|_| !reference.is_null()) else { return Ok(vec![Value::Null]) };
        let named = reference["namespace"].as_str().filter(|namespace| !namespace.is_empty());
        let namespace = match (kind.namespaced, named.or(namespace)) {
            (true, None) => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into()
                );
            }
            (false, _) if named.is_some() => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
            (false, _) => None,
            (true, namespace) => namespace,
        };
        let mut found = match reference["name"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => {
                let found = self.read_key(&kind.key(namespace, name)).map_err(|error| error.message)?;
                found.into_iter().collect()
            }
            None => self.objects(&kind.prefix(namespace)),
        };
        found.retain(|object| selected(&reference["selector"], &object["metadata"]["labels"]));
        if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        for object in &mut found {
            object["apiVersion"] = kind.api_version().into();
            object["kind"] = kind.kind.as_str().into();
        }
        Ok(found)
    }
}
