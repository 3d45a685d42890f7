//! Makes answers comparable: what must differ between two servers gets a name, the same name wherever it comes again.
//!
//! Uids, versions, generated names and tokens are named in the order in which a scenario first sees them, so an object
//! that keeps its version where the other server gives it a new one is a difference. Times of today become `<time>`
//! with as many digits as they had; times that a scenario wrote itself stay.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::{Captures, Regex};
use serde_json::Value;

fn pattern(text: &'static str) -> Regex {
    // The patterns are constants that the tests below run.
    Regex::new(text).unwrap_or_else(|e| unreachable!("{e}"))
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"));
static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d+\b"));
static PEM: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n?"));
/// The volume that admission gives every pod has a name that is made up.
static ACCESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"kube-api-access-[a-z0-9]{5}\b"));

/// The names that one scenario has given to what one server made up.
#[derive(Clone, Debug, Default)]
pub struct Names {
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
    generated: HashMap<String, String>,
    /// Texts that are this server's own, such as its issuer, and what stands for them.
    own: Vec<(String, String)>,
}

impl Names {
    /// Names this text wherever it comes.
    pub fn own(&mut self, text: &str, name: &str) {
        self.own.push((text.to_owned(), name.to_owned()));
    }

    /// The comparable form of a value.
    pub fn normalize(&mut self, value: &Value) -> Value {
        self.learn(value);
        let mut out = value.clone();
        self.value(&mut out, "", false);
        out
    }

    /// Generated names are found first: they may stand before the field that shows that they are generated.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let (Some(base), Some(name)) =
                    (map.get("generateName").and_then(Value::as_str), map.get("name").and_then(Value::as_str))
                    && name.starts_with(base)
                    && name.len() > base.len()
                {
                    let next = format!("{base}<generated-{}>", self.generated.len() + 1);
                    self.generated.entry(name.to_owned()).or_insert(next);
                }
                map.values().for_each(|v| self.learn(v));
            }
            Value::Array(items) => items.iter().for_each(|v| self.learn(v)),
            _ => {}
        }
    }

    fn value(&mut self, value: &mut Value, key: &str, in_list: bool) {
        match value {
            Value::Object(map) => {
                // The version of a list is the server's own, which others move on.
                let is_list = map.get("items").is_some_and(Value::is_array)
                    || map.get("rows").is_some_and(Value::is_array)
                    || map.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"));
                let bookmark = map.get("type").and_then(Value::as_str) == Some("BOOKMARK");
                for (key, mut inner) in std::mem::take(map) {
                    self.value(&mut inner, &key, in_list || (is_list && key == "metadata"));
                    if bookmark && let Some(version) = inner.pointer_mut("/metadata/resourceVersion") {
                        *version = "<version>".into();
                    }
                    map.insert(self.text(&key), inner);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|v| self.value(v, key, false)),
            Value::String(text) => {
                let new = match key {
                    "resourceVersion" if in_list => "<version>".to_owned(),
                    "resourceVersion" => self.version(text),
                    "continue" if !text.is_empty() => "<continue>".to_owned(),
                    _ => self.text(text),
                };
                *text = new;
            }
            _ => {}
        }
    }

    fn version(&mut self, text: &str) -> String {
        if text.parse::<u64>().is_err() || text == "0" || text == "1" {
            return text.to_owned();
        }
        let next = format!("<version-{}>", self.versions.len() + 1);
        self.versions.entry(text.to_owned()).or_insert(next).clone()
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = text.to_owned();
        for (own, name) in &self.own {
            out = out.replace(own, name);
        }
        for (name, named) in &self.generated {
            out = out.replace(name, named);
        }
        let uids = &mut self.uids;
        out = UID
            .replace_all(&out, |found: &Captures<'_>| {
                let next = format!("<uid-{}>", uids.len() + 1);
                uids.entry(found[0].to_owned()).or_insert(next).clone()
            })
            .into_owned();
        out = TIME.replace_all(&out, |found: &Captures<'_>| time(found)).into_owned();
        out = TOKEN.replace_all(&out, "<token>").into_owned();
        out = PEM.replace_all(&out, "<certificate>").into_owned();
        out = ACCESS.replace_all(&out, "kube-api-access-<generated>").into_owned();
        let versions = &self.versions;
        NUMBER
            .replace_all(&out, |found: &Captures<'_>| {
                versions.get(&found[0]).cloned().unwrap_or_else(|| found[0].to_owned())
            })
            .into_owned()
    }
}

fn time(found: &Captures<'_>) -> String {
    let text = &found[0];
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    let day = 24 * 3600;
    if (Timestamp::now().as_second() - time.as_second()).abs() > day {
        return text.to_owned();
    }
    match found.get(1) {
        Some(fraction) => format!("<time.{}>", fraction.len() - 1),
        None => "<time>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const A: &str = "6f2a7c1e-0000-4000-8000-00000000000a";
    const B: &str = "6f2a7c1e-0000-4000-8000-00000000000b";

    #[test]
    fn what_differs_is_named_consistently() {
        let mut names = Names::default();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let first = names.normalize(&json!({"metadata": {
            "uid": A, "resourceVersion": "812", "creationTimestamp": now, "generateName": "x-", "name": "x-8kq2z",
        }}));
        assert_eq!(
            first,
            json!({"metadata": {
                "uid": "<uid-1>", "resourceVersion": "<version-1>", "creationTimestamp": "<time>", "generateName": "x-",
                "name": "x-<generated-1>",
            }})
        );
        let second = names.normalize(&json!({
            "message": format!("x-8kq2z has {A}, not {B}, at 812 of 7"), "lease": "2020-01-01T00:00:00.000000Z",
        }));
        assert_eq!(
            second,
            json!({
                "message": "x-<generated-1> has <uid-1>, not <uid-2>, at <version-1> of 7",
                "lease": "2020-01-01T00:00:00.000000Z",
            })
        );
    }

    #[test]
    fn the_version_of_a_list_is_not_that_of_an_object() {
        let mut names = Names::default();
        let list = names.normalize(&json!({
            "kind": "PodList", "metadata": {"resourceVersion": "99", "continue": "abc"}, "items": [{"metadata": {"resourceVersion": "7"}}],
        }));
        assert_eq!(list["metadata"], json!({"resourceVersion": "<version>", "continue": "<continue>"}));
        assert_eq!(list["items"][0]["metadata"]["resourceVersion"], "<version-1>");
    }

    #[test]
    fn tokens_certificates_and_own_texts() {
        let mut names = Names::default();
        names.own("https://a.example", "<issuer>");
        let text = names.normalize(&json!(["eyJhbGciOi.eyJhdWQi.sig_-x", "https://a.example/x"]));
        assert_eq!(text, json!(["<token>", "<issuer>/x"]));
        let pem = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n";
        assert_eq!(names.normalize(&pem.into()), "<certificate>");
    }
}
