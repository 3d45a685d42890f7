//! Reviews and token requests: questions that are answered and not kept.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::schema::error::FieldError;
use crate::server::identity::{self, Identity};
use crate::server::status::{ApiError, Result, json_response};
use crate::server::token::{Binding, Bound, Claims, ISSUER};
use crate::server::{Call, Server, object};

/// Answers a review.
pub fn create(server: &Server, call: &Call, mut review: Value) -> Result<Response> {
    if !review.is_object() {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    review["apiVersion"] = call.api_version.as_str().into();
    review["kind"] = call.resource.kind.as_str().into();
    object::set_meta(&mut review, "creationTimestamp", None);
    if call.resource.kind == "SelfSubjectReview" {
        object::set_meta(&mut review, "creationTimestamp", Some(server.now_text().into()));
    }
    review["status"] = match call.resource.kind.as_str() {
        "TokenReview" => token_review(server, &review["spec"]),
        "SelfSubjectReview" => json!({"userInfo": call.identity.user_info()}),
        "SelfSubjectAccessReview" => access(server, &call.identity, &review["spec"], None),
        "SelfSubjectRulesReview" => rules(server, &call.identity, &review["spec"]),
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

fn token_review(server: &Server, spec: &Value) -> Value {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let audiences: Vec<String> = spec["audiences"].as_array().into_iter().flatten().map(text).collect();
    match identity::by_token(server, spec["token"].as_str().unwrap_or_default(), &audiences) {
        Some((user, audiences)) => {
            json!({"authenticated": true, "user": user.user_info(), "audiences": audiences})
        }
        None => json!({"user": {}, "error": "[invalid bearer token]"}),
    }
}

fn access(server: &Server, user: &Identity, spec: &Value, namespace: Option<&str>) -> Value {
    let resource = &spec["resourceAttributes"];
    let text = |key: &str| resource[key].as_str().filter(|s| !s.is_empty());
    let allowed = if resource.is_object() {
        server.allows(
            user,
            text("verb").unwrap_or("*"),
            text("group").unwrap_or_default(),
            text("resource").unwrap_or("*"),
            text("subresource"),
            text("name"),
            namespace.or_else(|| text("namespace")),
        )
    } else {
        // Discovery and health are open to everyone who is known.
        user.is_admin() || spec["nonResourceAttributes"]["verb"] == "get"
    };
    if allowed { json!({"allowed": true}) } else { json!({"allowed": false}) }
}

fn rules(server: &Server, user: &Identity, spec: &Value) -> Value {
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let resource = if user.is_admin() { everything } else { server.rules_for(user, spec["namespace"].as_str()).into() };
    let open = json!([{"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version"]}]);
    json!({"resourceRules": resource, "nonResourceRules": open, "incomplete": false})
}

/// `serviceaccounts/NAME/token`
pub fn token_request(server: &Server, call: &Call, mut request: Value) -> Result<Response> {
    let name = call.name()?;
    let namespace = call.target.namespace.as_deref().unwrap_or_default();
    let account =
        server.read_account(namespace, name)?.ok_or_else(|| ApiError::not_found(call.resource.subject(name)))?;
    let spec = &request["spec"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut audiences: Vec<String> = spec["audiences"].as_array().into_iter().flatten().map(text).collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    if seconds < 600 {
        let error =
            FieldError::invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes");
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
    }
    let seconds = seconds.min(1 << 32);
    let pod = bound_pod(server, namespace, name, &spec["boundObjectRef"])?;
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
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["metadata"] = json!({"name": name, "namespace": namespace, "creationTimestamp": server.now_text()});
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = seconds.into();
    request["status"] = json!({"token": token, "expirationTimestamp": server.text_of(end)});
    Ok(json_response(StatusCode::CREATED, &request))
}

fn bound_pod(server: &Server, namespace: &str, account: &str, reference: &Value) -> Result<Option<Bound>> {
    if reference.is_null() {
        return Ok(None);
    }
    if reference["kind"] != "Pod" {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount \"{account}\" to {}: only pods are supported here",
            reference["kind"]
        )));
    }
    let name = reference["name"].as_str().unwrap_or_default();
    let subject = crate::server::status::Subject { group: "", resource: "pods", name };
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
    pub fn verify_service_account(&self, token: &str, audiences: &[String]) -> Option<(Identity, Vec<String>)> {
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
