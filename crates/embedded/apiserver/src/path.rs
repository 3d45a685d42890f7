//! What a request's path names: a discovery document, or a resource in a namespace with a name and a subresource.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    Resources(String, String),
    /// A resource, or an object of it.
    Object(Target),
    /// Anything else, by its segments.
    Other(Vec<String>),
}

/// What a resource request is aimed at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace, where the path has one.
    pub namespace: Option<String>,
    /// The object's name, where the path has one.
    pub name: Option<String>,
    /// `status`, `log`, `token` and the like.
    pub subresource: Option<String>,
}

/// Reads a path as it stands in the request line. `None`: it has a segment that no Kubernetes path can have.
pub fn parse(raw: &str) -> Option<Path> {
    let mut segments = Vec::new();
    for segment in raw.split('/').filter(|s| !s.is_empty()) {
        let decoded = decode(segment)?;
        if decoded == "." || decoded == ".." || decoded.contains(['/', '\0', '%']) {
            return None;
        }
        segments.push(decoded);
    }
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    Some(match words.as_slice() {
        ["api"] => Path::CoreVersions,
        ["apis"] => Path::Groups,
        ["api", version] => Path::Resources(String::new(), (*version).to_owned()),
        ["apis", group] => Path::Group((*group).to_owned()),
        ["apis", group, version] => Path::Resources((*group).to_owned(), (*version).to_owned()),
        ["api", version, rest @ ..] => object("", version, rest)?,
        ["apis", group, version, rest @ ..] => object(group, version, rest)?,
        _ => Path::Other(segments),
    })
}

fn object(group: &str, version: &str, rest: &[&str]) -> Option<Path> {
    let own = |s: &str| Some(s.to_owned());
    let mut target = Target { group: group.to_owned(), version: version.to_owned(), ..Target::default() };
    let rest = match rest {
        // `namespaces` is a resource of its own, and a namespace's `status` and `finalize` are its subresources.
        ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
            target.name = own(name);
            target.subresource = own(sub);
            &["namespaces"][..]
        }
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            target.namespace = own(namespace);
            rest
        }
        _ => rest,
    };
    match rest {
        [resource] => target.resource = (*resource).to_owned(),
        [resource, name] => {
            target.resource = (*resource).to_owned();
            target.name = own(name);
        }
        [resource, name, sub] => {
            target.resource = (*resource).to_owned();
            target.name = own(name);
            target.subresource = own(sub);
        }
        _ => return None,
    }
    Some(Path::Object(target))
}

/// Percent-decodes one segment; `None` for bad escapes and bytes that are not UTF-8.
pub fn decode(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let hex = segment.get(at + 1..at + 3)?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expect: Option<(&str, &str, &str, &str, &str, &str)>) {
        let found = match parse(raw) {
            Some(Path::Object(t)) => Some((
                t.group,
                t.version,
                t.resource,
                t.namespace.unwrap_or_default(),
                t.name.unwrap_or_default(),
                t.subresource.unwrap_or_default(),
            )),
            _ => None,
        };
        let expect = expect.map(|(a, b, c, d, e, f)| {
            (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned(), e.to_owned(), f.to_owned())
        });
        assert_eq!(found, expect, "{raw}");
    }

    #[test]
    fn resource_paths() {
        check("/api/v1/pods", Some(("", "v1", "pods", "", "", "")));
        check("/api/v1/namespaces", Some(("", "v1", "namespaces", "", "", "")));
        check("/api/v1/namespaces/a", Some(("", "v1", "namespaces", "", "a", "")));
        check("/api/v1/namespaces/a/status", Some(("", "v1", "namespaces", "", "a", "status")));
        check("/api/v1/namespaces/a/pods", Some(("", "v1", "pods", "a", "", "")));
        check("/api/v1/namespaces/a/pods/b/log", Some(("", "v1", "pods", "a", "b", "log")));
        check("/apis/knoll.dev/v1alpha1/namespaces/a/runs/r", Some(("knoll.dev", "v1alpha1", "runs", "a", "r", "")));
        check("/apis/x/v1/namespaces/a/status", Some(("x", "v1", "status", "a", "", "")));
        check("/api/v1/namespaces/a/pods/b/proxy/deep/er", None);
        check("/api/v1/namespaces/a/pods/%2e%2e", None);
        check("/api/v1/namespaces/a/pods/b%2fc", None);
        check("/api/v1/namespaces/a/pods/%zz", None);
        check("/api/v1/namespaces/a/pods/%ff", None);
    }
}
