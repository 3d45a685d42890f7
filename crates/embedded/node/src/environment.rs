//! A container's environment and command line.
//!
//! A container sees what its pod says and little else: a `PATH` that starts with the node's own folders, a `HOME` and a
//! `TMPDIR` in the pod's folder, `HOSTNAME`, and from the host what programs need to reach the world (language, proxies,
//! certificates). The node's own environment stays with the node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use super::downward;
use super::expand::expand;
use super::objects::{Kind, Missing, Needs, Objects};
use super::paths::Mounts;

/// What a container gets from the host, when the host has it.
const FROM_HOST: [&str; 12] = [
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ALL_PROXY",
];

/// Why a container's environment cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// Something it refers to is not there (yet).
    #[error("{0}")]
    Missing(Missing),
    /// It asks for something that there will never be.
    #[error("{0}")]
    Invalid(String),
}

impl From<Missing> for EnvironmentError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

/// The variables of every container of this host.
pub fn from_host(path: &str, variable: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let mut base: BTreeMap<String, String> =
        FROM_HOST.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
    base.insert("PATH".to_owned(), path.to_owned());
    base
}

/// What a container's environment refers to.
pub fn needs(container: &Container) -> Needs {
    let mut needs = Needs::default();
    for source in container.env_from.iter().flatten() {
        if let Some(reference) = &source.config_map_ref {
            needs.add(Kind::ConfigMap, &reference.name);
        }
        if let Some(reference) = &source.secret_ref {
            needs.add(Kind::Secret, &reference.name);
        }
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(reference) = &source.config_map_key_ref {
            needs.add(Kind::ConfigMap, &reference.name);
        }
        if let Some(reference) = &source.secret_key_ref {
            needs.add(Kind::Secret, &reference.name);
        }
    }
    needs
}

/// The variables that the pod itself sets, in which `$(NAME)` is a variable set before.
pub fn variables(
    pod: &Pod,
    container: &Container,
    objects: &Objects,
) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let mut variables = BTreeMap::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut content = BTreeMap::new();
        if let Some(reference) = &source.config_map_ref {
            content.extend(objects.all(Kind::ConfigMap, &reference.name, reference.optional.unwrap_or(false))?);
        }
        if let Some(reference) = &source.secret_ref {
            content.extend(objects.all(Kind::Secret, &reference.name, reference.optional.unwrap_or(false))?);
        }
        variables.extend(content.into_iter().map(|(key, value)| (format!("{prefix}{key}"), text(value))));
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, container, variable, &variables, objects)? {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn value(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    before: &BTreeMap<String, String>,
    objects: &Objects,
) -> Result<Option<String>, EnvironmentError> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), before)));
    };
    if let Some(key) = &source.config_map_key_ref {
        return Ok(objects.key(Kind::ConfigMap, &key.name, &key.key, key.optional.unwrap_or(false))?.map(text));
    }
    if let Some(key) = &source.secret_key_ref {
        return Ok(objects.key(Kind::Secret, &key.name, &key.key, key.optional.unwrap_or(false))?.map(text));
    }
    if let Some(field) = &source.field_ref {
        return downward::field(pod, &field.field_path).map(Some).map_err(EnvironmentError::Invalid);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(container, selector).map(Some).map_err(EnvironmentError::Invalid);
    }
    Err(EnvironmentError::Invalid(format!(
        "the variable `{}` has a source that the embedded node does not know",
        variable.name
    )))
}

/// The whole environment: the host's, the pod's over it, with the paths of volumes as they are on the host.
pub fn complete(
    mut base: BTreeMap<String, String>,
    variables: &BTreeMap<String, String>,
    mounts: &Mounts,
) -> BTreeMap<String, String> {
    for (name, value) in variables {
        // A process cannot be given these, so a key of a ConfigMap that looks like that is left out.
        if !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0') {
            base.insert(name.clone(), mounts.translate(value).into_owned());
        }
    }
    base
}

/// The words to run, with the paths of volumes as they are on the host.
pub fn command_line(container: &Container, variables: &BTreeMap<String, String>, mounts: &Mounts) -> Vec<String> {
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.map(|word| mounts.translate(&expand(word, variables)).into_owned()).collect()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, from_value, json};

    fn container(mut value: Value) -> Container {
        value["name"] = "c".into();
        from_value(value).unwrap()
    }

    fn check(given: Value, expect: Result<&[(&str, &str)], &str>) {
        let pod: Pod = from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": []}})).unwrap();
        let objects = Objects::default().with(Kind::ConfigMap, "cm", &[("a", "1"), ("b", "$(a)")]).with(
            Kind::Secret,
            "s",
            &[("password", "hush")],
        );
        let result = variables(&pod, &container(given.clone()), &objects);
        match expect {
            Ok(rows) => {
                let rows = rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                assert_eq!(result, Ok(rows), "{given}");
            }
            Err(says) => assert!(result.as_ref().unwrap_err().to_string().contains(says), "{given} {result:?}"),
        }
    }

    #[test]
    fn variables_come_from_where_the_pod_says() {
        let from = |source: Value| json!({"env": [{"name": "X", "valueFrom": source}]});
        check(json!({}), Ok(&[]));
        check(
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)"}, {"name": "C", "value": "3"}]}),
            Ok(&[("A", "1"), ("B", "1$(C)"), ("C", "3")]),
        );
        check(json!({"env": [{"name": "A"}]}), Ok(&[("A", "")]));
        check(from(json!({"configMapKeyRef": {"name": "cm", "key": "b"}})), Ok(&[("X", "$(a)")]));
        check(from(json!({"secretKeyRef": {"name": "s", "key": "password"}})), Ok(&[("X", "hush")]));
        check(from(json!({"secretKeyRef": {"name": "s", "key": "no"}})), Err("couldn't find key no in Secret s"));
        check(from(json!({"secretKeyRef": {"name": "s", "key": "no", "optional": true}})), Ok(&[]));
        check(from(json!({"secretKeyRef": {"name": "no", "key": "no", "optional": true}})), Ok(&[]));
        check(from(json!({"configMapKeyRef": {"name": "no", "key": "no"}})), Err("configmap \"no\" not found"));
        check(from(json!({"fieldRef": {"fieldPath": "metadata.name"}})), Ok(&[("X", "p")]));
        check(from(json!({"fieldRef": {"fieldPath": "no"}})), Err("`no`"));
        check(
            json!({"envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "no", "optional": true}}]}),
            Ok(&[("P_a", "1"), ("P_b", "$(a)")]),
        );
        check(json!({"envFrom": [{"secretRef": {"name": "no"}}]}), Err("secret \"no\" not found"));
        check(
            json!({"envFrom": [{"configMapRef": {"name": "cm"}}], "env": [{"name": "a", "value": "2"}]}),
            Ok(&[("a", "2"), ("b", "$(a)")]),
        );
    }

    #[test]
    fn what_is_needed_is_known_before_it_is_read() {
        let container = container(json!({
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}}, {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}}],
            "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c1"}}],
        }));
        let mut expect = Needs::default();
        for (kind, name) in [(Kind::Secret, "s1"), (Kind::Secret, "s2"), (Kind::ConfigMap, "c1")] {
            expect.add(kind, name);
        }
        assert_eq!(needs(&container), expect);
    }

    #[test]
    fn a_container_sees_the_pods_variables_over_the_hosts_and_no_more() {
        let host = |name: &str| match name {
            "LANG" => Some("C.UTF-8".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("hush".to_owned()),
            _ => None,
        };
        let mut mounts = Mounts::default();
        mounts.add("/data", "/host".into());
        let variables: BTreeMap<_, _> =
            [("FILE", "/data/x"), ("LANG", "de"), ("a=b", "no")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let complete = complete(from_host("/own:/bin", host), &variables, &mounts);
        let rows: Vec<(&str, &str)> = complete.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(rows, [("FILE", "/host/x"), ("LANG", "de"), ("PATH", "/own:/bin")]);
        let container =
            container(json!({"command": ["/data/bin/tool", "$(FILE)"], "args": ["$$(FILE)", "--lang=$(LANG)"]}));
        assert_eq!(
            command_line(&container, &variables, &mounts),
            ["/host/bin/tool", "/host/x", "$(FILE)", "--lang=de"]
        );
    }
}
