//! Reviews and token requests: questions that are answered and not kept.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::decode::Decoded;
use crate::envelope::{self, Source};
use crate::identity::{self, Identity};
use crate::rbac::Wish;
use crate::status::{ApiError, Result, json_response};
use crate::token::{Binding, Bound, Claims, ISSUER};
use crate::{Call, Server, object, write};
use knoll_kube_model::patch;
use knoll_kube_model::schema::FieldError;

pub fn create(server: &Server, call: &Call, body: Decoded) -> Result<Response> {
    let Decoded { value: mut review, duplicates } = body;
    envelope::take(call, &mut review, &duplicates, Source::Body)?;
    record(server, call, &mut review);
    validate(call, &review)?;
    object::set_meta(&mut review, "creationTimestamp", None);
    if call.resource.kind == "SelfSubjectRulesReview" {
        object::set_meta(&mut review, "managedFields", None);
    }
    if call.resource.kind == "SelfSubjectReview" {
        object::set_meta(&mut review, "managedFields", None);
        object::set_meta(&mut review, "creationTimestamp", Some(server.now_text().into()));
    }
    review["status"] = match call.resource.kind.as_str() {
        "TokenReview" => token_review(server, &review["spec"]),
        "SelfSubjectReview" => json!({"userInfo": call.identity.user_info()}),
        "SelfSubjectAccessReview" => access(server, &call.identity, &review["spec"], None),
        "SelfSubjectRulesReview" => {
            let status = rules(server, &call.identity, &review["spec"]);
            review["spec"] = json!({});
            status
        }
        _ => {
            let spec = &review["spec"];
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let groups = spec["groups"].as_array().into_iter().flatten().map(text).collect();
            let user = Identity { name: text(&spec["user"]), groups, ..Identity::default() };
            access(server, &user, spec, call.target.namespace.as_deref())
        }
    };
    Ok(json_response(StatusCode::CREATED, &review))
}

/// Who asks is recorded as the owner of what was asked, as with objects that are kept.
fn record(server: &Server, call: &Call, review: &mut Value) {
    object::set_meta(review, "managedFields", None);
    let manager = call.manager();
    let schema = call.resource.schema();
    patch::track_update(None, review, &schema, &write::writer(server, call, &manager));
}

fn validate(call: &Call, review: &Value) -> Result<()> {
    let spec = &review["spec"];
    let empty = |value: &Value| value.as_str().unwrap_or_default().is_empty();
    // These are told without the kind.
    let refuse = |error: FieldError| Err(ApiError::invalid("authorization.k8s.io", "", "", &[error]));
    match call.resource.kind.as_str() {
        "TokenReview" if empty(&spec["token"]) => {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        "SelfSubjectRulesReview" if empty(&spec["namespace"]) => {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview" => {}
        _ => return Ok(()),
    }
    let nobody = empty(&spec["user"]) && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if nobody && call.resource.kind != "SelfSubjectAccessReview" {
        return refuse(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return refuse(FieldError::invalid("spec.resourceAttributes", spec["resourceAttributes"].clone(), why));
    }
    let named = &spec["resourceAttributes"]["namespace"];
    if let Some(namespace) = &call.target.namespace
        && *named != namespace.as_str()
    {
        let field = "spec.resourceAttributes.namespace";
        return refuse(FieldError::invalid(field, named.as_str().unwrap_or_default(), "must match metadata.namespace"));
    }
    Ok(())
}

fn token_review(server: &Server, spec: &Value) -> Value {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let audiences: Vec<String> = spec["audiences"].as_array().into_iter().flatten().map(text).collect();
    let token = spec["token"].as_str().unwrap_or_default();
    if let Some((user, audiences)) = identity::by_token(server, token, &audiences) {
        return json!({"authenticated": true, "user": user.user_info(), "audiences": audiences});
    }
    let error = match server.tokens.verify(token, server.now().as_second()) {
        Some(claims) => {
            let wanted = if audiences.is_empty() { vec![server.tokens.api_audience().to_owned()] } else { audiences };
            let list = |audiences: &[String]| json!(audiences).to_string().replace(',', " ");
            format!(
                "[invalid bearer token, token audiences {} is invalid for the target audiences {}]",
                list(&claims.aud),
                list(&wanted)
            )
        }
        None => "invalid bearer token".to_owned(),
    };
    json!({"user": {}, "error": error})
}

fn access(server: &Server, user: &Identity, spec: &Value, namespace: Option<&str>) -> Value {
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |key: &str| resource[key].as_str().filter(|s| !s.is_empty());
    let wish = if resource.is_object() {
        Wish::Resource {
            verb: text("verb").unwrap_or_default(),
            group: text("group").unwrap_or_default(),
            resource: text("resource").unwrap_or_default(),
            subresource: text("subresource"),
            name: text("name"),
            namespace: namespace.or_else(|| text("namespace")),
        }
    } else {
        Wish::Path {
            verb: other["verb"].as_str().unwrap_or_default(),
            path: other["path"].as_str().unwrap_or_default(),
        }
    };
    match server.grants(user, &wish) {
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
        None => json!({"allowed": false}),
    }
}

fn rules(server: &Server, user: &Identity, spec: &Value) -> Value {
    let granted = server.rules_for(user, spec["namespace"].as_str());
    let (paths, resources): (Vec<Value>, Vec<Value>) =
        granted.into_iter().map(|g| g.rule).partition(|rule| rule.get("nonResourceURLs").is_some());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

/// The longest that a token may live.
const LONGEST: i64 = 1 << 32;

/// `serviceaccounts/NAME/token`
pub fn token_request(server: &Server, call: &Call, mut request: Value) -> Result<Response> {
    let name = call.name()?;
    let namespace = call.target.namespace.as_deref().unwrap_or_default();
    let account =
        server.read_account(namespace, name)?.ok_or_else(|| ApiError::not_found(call.resource.subject(name)))?;
    let invalid = |name: &str, error| ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[error]);
    let named = object::meta(&request, "name");
    if !named.is_empty() && named != name {
        let why = "must match the service account name if specified";
        return Err(invalid(name, FieldError::invalid("metadata.name", named, why)));
    }
    let spec = &request["spec"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut audiences: Vec<String> = spec["audiences"].as_array().into_iter().flatten().map(text).collect();
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    let field = "spec.expirationSeconds";
    if seconds < 600 {
        let why = "may not specify a duration less than 10 minutes";
        return Err(invalid("", FieldError::invalid(field, seconds, why)));
    }
    if seconds > LONGEST {
        let why = "may not specify a duration larger than 2^32 seconds";
        return Err(invalid("", FieldError::invalid(field, seconds, why)));
    }
    let pod = bound_pod(server, namespace, &spec["boundObjectRef"])?;
    request["spec"]["expirationSeconds"] = seconds.into();
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = TOKEN_VERSION.into();
    let mut recorded = call.clone();
    recorded.api_version = TOKEN_VERSION.to_owned();
    let schema = knoll_kube_model::schema::builtin("authentication.k8s.io", "v1", "TokenRequest").unwrap_or_default();
    let manager = call.manager();
    request["metadata"] = json!({});
    patch::track_update(None, &mut request, &schema, &write::writer(server, &recorded, &manager));
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let now = server.now();
    let iat = now.as_second();
    let claims = Claims {
        aud: audiences.clone(),
        exp: iat + seconds,
        iat,
        iss: ISSUER.to_owned(),
        jti: uuid::Uuid::new_v4().to_string(),
        nbf: iat,
        sub: format!("system:serviceaccount:{namespace}:{name}"),
        kubernetes: Binding {
            namespace: namespace.to_owned(),
            serviceaccount: Bound { name: name.to_owned(), uid: object::meta(&account, "uid").to_owned() },
            pod,
            secret: None,
        },
    };
    let token = server.tokens.sign(&claims).map_err(ApiError::internal)?;
    let end = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now);
    for (key, value) in [
        ("name", name.into()),
        ("namespace", namespace.into()),
        ("uid", account["metadata"]["uid"].clone()),
        ("creationTimestamp", server.now_text().into()),
    ] {
        object::set_meta(&mut request, key, Some(value));
    }
    request["spec"]["audiences"] = json!(audiences);
    if request["spec"].get("boundObjectRef").is_none() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({"token": token, "expirationTimestamp": server.text_of(end)});
    Ok(json_response(StatusCode::CREATED, &request))
}

const TOKEN_VERSION: &str = "authentication.k8s.io/v1";

fn bound_pod(server: &Server, namespace: &str, reference: &Value) -> Result<Option<Bound>> {
    if reference.is_null() {
        return Ok(None);
    }
    if reference["kind"] != "Pod" {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let version = text("apiVersion");
        let slash = if version.contains('/') { "" } else { "/" };
        return Err(ApiError::bad_request(format!(
            "cannot bind token to object of type {slash}{version}, Kind={}",
            text("kind")
        )));
    }
    let name = reference["name"].as_str().unwrap_or_default();
    let subject = crate::status::Subject { group: "", resource: "pods", name };
    let pod = server.read_pod(namespace, name)?.ok_or_else(|| ApiError::not_found(subject))?;
    let uid = object::meta(&pod, "uid").to_owned();
    if let Some(wanted) = reference["uid"].as_str().filter(|u| !u.is_empty() && *u != uid) {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(subject, &why));
    }
    Ok(Some(Bound { name: name.to_owned(), uid }))
}

impl Server {
    /// The user of a service-account token that is for one of these audiences, and the audiences that matched. What
    /// the token is bound to must still be there.
    pub(crate) fn verify_service_account(&self, token: &str, audiences: &[String]) -> Option<(Identity, Vec<String>)> {
        let claims = self.tokens.verify(token, self.now().as_second())?;
        let matched: Vec<String> = audiences.iter().filter(|a| claims.aud.contains(a)).cloned().collect();
        if matched.is_empty() {
            return None;
        }
        let Binding { namespace, serviceaccount, pod, secret: _ } = claims.kubernetes;
        let account = self.read_account(&namespace, &serviceaccount.name).ok()??;
        if object::meta(&account, "uid") != serviceaccount.uid {
            return None;
        }
        let mut extra = std::collections::BTreeMap::new();
        extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={}", claims.jti)]);
        if let Some(pod) = pod {
            let found = self.read_pod(&namespace, &pod.name).ok()??;
            if object::meta(&found, "uid") != pod.uid {
                return None;
            }
            extra.insert("authentication.kubernetes.io/pod-name".to_owned(), vec![pod.name]);
            extra.insert("authentication.kubernetes.io/pod-uid".to_owned(), vec![pod.uid]);
        }
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        Some((Identity { name: claims.sub, uid: serviceaccount.uid, groups, extra }, matched))
    }
}
