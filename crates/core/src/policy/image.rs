//! References of images, and patterns for them.
//!
//! *Guarantee.* A pattern matches whole segments of a path only, after both sides have been written out in full: the
//! registry `registry.example.com` is never matched by `registry.example.com.evil`, and `hashicorp/terraform` means
//! `docker.io/hashicorp/terraform` on both sides, as it does for a container runtime.

/// The registry of a reference without one, and the folder of its own images.
const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_FOLDER: &str = "library";

/// A reference written out in full.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reference {
    /// The registry and the path, segment by segment.
    segments: Vec<String>,
    tag: Option<String>,
    digest: Option<String>,
}

/// A pattern of image references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImagePattern {
    reference: Reference,
    /// The pattern ended in `/*`.
    below: bool,
}

impl ImagePattern {
    /// Reads a pattern, or says why it is none.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (text, below) = match text.strip_suffix("/*") {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if below {
            // A folder has no tag, so a colon belongs to the port of a registry.
            let segments: Vec<&str> = text.split('/').collect();
            if segments.iter().skip(1).any(|segment| segment.contains([':', '@'])) || text.contains('@') {
                return Err(format!("`{text}/*` has a tag or a digest in a folder"));
            }
            let path = read_path(text, true)?;
            return Ok(Self { reference: Reference { segments: path, tag: None, digest: None }, below });
        }
        Ok(Self { reference: Reference::read(text)?, below })
    }

    /// Whether the pattern matches a reference. One that cannot be read matches nothing.
    pub(super) fn matches(&self, image: &str) -> bool {
        let Ok(image) = Reference::read(image) else { return false };
        let Reference { segments, tag, digest } = &self.reference;
        if self.below {
            return image.segments.len() > segments.len() && image.segments.starts_with(segments);
        }
        let same = |wanted: &Option<String>, given: &Option<String>| wanted.is_none() || wanted == given;
        // A runtime ignores the tag of a reference that has a digest, so such a reference may be any image of the repository.
        let means_its_tag = tag.is_none() || digest.is_some() || image.digest.is_none();
        image.segments == *segments && same(tag, &image.tag) && same(digest, &image.digest) && means_its_tag
    }
}

impl Reference {
    fn read(text: &str) -> Result<Self, String> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let is_digest = |digest: &str| {
            let hash = digest.strip_prefix("sha256:").unwrap_or_default();
            hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(format!("`{text}` has a digest that is no sha256"));
        }
        let last = name.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match name.get(last..).and_then(|segment| segment.find(':')) {
            Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
            None => (name, None),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if tag.is_some_and(|tag| tag.is_empty() || !tag.bytes().all(plain)) {
            return Err(format!("`{text}` has a tag that is none"));
        }
        let segments = read_path(path, false)?;
        Ok(Self { segments, tag: tag.map(str::to_owned), digest: digest.map(str::to_owned) })
    }
}

/// The registry and the segments of a path, written out in full. A folder may be a registry alone.
fn read_path(text: &str, folder: bool) -> Result<Vec<String>, String> {
    let mut segments: Vec<&str> = text.split('/').collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_registry = |segment: &str| segment.contains(['.', ':']) || segment == "localhost";
    let named = segments.first().is_some_and(|first| is_registry(first)) && (folder || segments.len() > 1);
    if !named {
        if segments.len() == 1 && !folder {
            segments.insert(0, DEFAULT_FOLDER);
        }
        segments.insert(0, DEFAULT_REGISTRY);
    }
    let (registry, path) = segments.split_first().ok_or_else(|| "an image has no name".to_owned())?;
    let (host, port) = registry.split_once(':').map_or((*registry, None), |(host, port)| (host, Some(port)));
    let bad_port = port.is_some_and(|port| port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()));
    if host.is_empty() || !host.bytes().all(plain) || bad_port {
        return Err(format!("`{registry}` is no registry"));
    }
    let bad =
        |segment: &&&str| segment.is_empty() || !segment.bytes().all(plain) || **segment == "." || **segment == "..";
    if let Some(segment) = path.iter().find(bad) {
        return Err(format!("`{segment}` is no part of a repository's name"));
    }
    // Registries have the names of hosts, in which case does not matter. `index.docker.io` is the same registry.
    let registry = match registry.to_ascii_lowercase().as_str() {
        "index.docker.io" | "registry-1.docker.io" => DEFAULT_REGISTRY.to_owned(),
        other => other.to_owned(),
    };
    let path: Vec<String> = path.iter().map(|segment| (*segment).to_owned()).collect();
    // `docker.io/busybox` is `docker.io/library/busybox`.
    let library = (registry == DEFAULT_REGISTRY && path.len() == 1 && !folder).then(|| DEFAULT_FOLDER.to_owned());
    Ok(std::iter::once(registry).chain(library).chain(path).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(pattern: &str, image: &str, expect: bool) {
        assert_eq!(ImagePattern::read(pattern).unwrap().matches(image), expect, "{pattern} {image}");
    }

    #[test]
    fn a_pattern_matches_whole_segments_only() {
        let team = "registry.example.com/team/*";
        check(team, "registry.example.com/team/terraform:1.9", true);
        check(team, "registry.example.com/team/sub/terraform", true);
        check(team, "REGISTRY.example.com/team/x", true);
        check(team, "registry.example.com.evil/team/x", false);
        check(team, "registry.example.com/team", false);
        check(team, "registry.example.com/team-evil/x", false);
        check(team, "registry.example.com/team/../evil/x", false);
        check(team, "registry.example.com/team//x", false);
        check(team, "registry.example.com:5000/team/x", false);
        check(team, "registry.example.com@evil.com/team/x", false);
        check(team, "evil.com/registry.example.com/team/x", false);
        check(team, "evil.com/x@registry.example.com/team/x", false);
        check(team, "team/x", false);
        check(team, "", false);
        check("registry.example.com:5000/*", "registry.example.com:5000/x", true);
        check("registry.example.com:5000/*", "registry.example.com/x", false);
        check("registry.example.com/*", "registry.example.com", false);
        check("docker.io/*", "registry.example.com/x", false);
    }

    #[test]
    fn short_names_mean_what_a_runtime_makes_of_them() {
        check("hashicorp/terraform", "docker.io/hashicorp/terraform:1.9", true);
        check("docker.io/hashicorp/*", "hashicorp/terraform", true);
        check("docker.io/hashicorp/*", "index.docker.io/hashicorp/terraform", true);
        check("hashicorp/*", "hashicorp/terraform:1.9", true);
        check("hashicorp/*", "hashicorp.evil/terraform", false);
        check("hashicorp/*", "registry.example.com/hashicorp/terraform", false);
        check("busybox", "docker.io/library/busybox", true);
        check("docker.io/busybox", "busybox", true);
        check("busybox", "evil/busybox", false);
        check("localhost/x", "localhost/x", true);
        check("localhost/x", "docker.io/localhost/x", false);
    }

    #[test]
    fn a_tag_or_a_digest_in_the_pattern_has_to_be_there() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let other = format!("sha256:{}", "b".repeat(64));
        check("r.io/x", "r.io/x:1", true);
        check("r.io/x:1", "r.io/x:1", true);
        check("r.io/x:1", "r.io/x:2", false);
        check("r.io/x:1", "r.io/x", false);
        check(&format!("r.io/x@{digest}"), &format!("r.io/x@{digest}"), true);
        check(&format!("r.io/x@{digest}"), &format!("r.io/x:1@{digest}"), true);
        check(&format!("r.io/x@{digest}"), &format!("r.io/x@{other}"), false);
        check(&format!("r.io/x@{digest}"), "r.io/x", false);
        check(&format!("r.io/x:1@{digest}"), &format!("r.io/x:1@{digest}"), true);
        check("r.io/x", &format!("r.io/x:1@{other}"), true);
    }

    /// `r.io/x:1@sha256:...` has the tag that the pattern names, and runs whatever the digest is.
    #[test]
    fn a_digest_got_around_the_tag_of_a_pattern() {
        check("r.io/x:1", &format!("r.io/x:1@sha256:{}", "a".repeat(64)), false);
        check("r.io/x:1", &format!("r.io/x@sha256:{}", "a".repeat(64)), false);
    }

    #[test]
    fn what_is_no_pattern_is_an_error() {
        for text in [
            "",
            "*",
            "r.io/*/x",
            "r.io/te*",
            "r.io/x:*",
            "r.io/x:1/*",
            "r.io/x@sha256:1",
            "/x",
            "r.io/../x",
            "r.io/x y",
        ] {
            assert!(ImagePattern::read(text).is_err(), "{text}");
        }
    }
}
