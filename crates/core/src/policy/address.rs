//! Addresses of sources outside of the cluster, as far as a Policy looks at them: the host and the path.
//!
//! *Guarantee.* An address that could be read in two ways is read in none, so it matches nothing.

use knoll_api::policy::AllowedHost;

/// The host, with a port that is not the scheme's own, and the path of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    path: String,
}

impl Address {
    /// Reads `https://host/path`, `ssh://user@host/path`, `user@host:path` and their like.
    pub(super) fn read(url: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte);
        if url.is_empty() || !url.bytes().all(plain) {
            return None;
        }
        let (authority, path, default_port) = match url.split_once("://") {
            Some((scheme, rest)) => {
                let port = match scheme {
                    "https" => "443",
                    "http" => "80",
                    "ssh" => "22",
                    "git" => "9418",
                    _ => return None,
                };
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                (authority, path.split(['?', '#']).next().unwrap_or_default().to_owned(), port)
            }
            None => {
                let (authority, path) = url.split_once(':')?;
                // The path of `user@host:path` begins at the home folder of the user; to a Policy it is one of the host.
                (authority, format!("/{}", path.trim_start_matches('/')), "22")
            }
        };
        let host = match authority.split_once('@') {
            Some((_, host)) if host.contains('@') => return None,
            Some((_, host)) => host,
            None => authority,
        };
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        let is_name = |name: &str| {
            let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            !name.is_empty() && name.bytes().all(inner) && !name.starts_with('.') && !name.ends_with('.')
        };
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !is_name(name) || port.is_some_and(|port| !is_port(port)) {
            return None;
        }
        // Servers decode `%2e%2e` and resolve `..`; the Policy would look at another path than they do.
        let misleading = |segment: &str| segment == "." || segment == "..";
        if path.contains(['%', ';']) || path.split('/').any(misleading) || path.contains("//") {
            return None;
        }
        let port = port.filter(|port| *port != default_port).map(|port| format!(":{port}")).unwrap_or_default();
        Some(Self { host: format!("{}{port}", name.to_ascii_lowercase()), path })
    }

    /// Whether one of the hosts has the address.
    pub(super) fn is_of(&self, hosts: &[AllowedHost]) -> bool {
        hosts.iter().filter(|allowed| allowed.host == self.host).any(|allowed| {
            let below = |path: &String| {
                let path = path.trim_end_matches('/');
                self.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            allowed.paths.is_empty() || allowed.paths.iter().any(below)
        })
    }
}

/// A host and its paths, as a message shows them.
pub(super) fn shown(host: &AllowedHost) -> Vec<String> {
    if host.paths.is_empty() {
        return vec![host.host.clone()];
    }
    host.paths.iter().map(|path| format!("{}{path}", host.host)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expect: bool) {
        let host = |host: &str, paths: &[&str]| AllowedHost {
            host: host.to_owned(),
            paths: paths.iter().map(ToString::to_string).collect(),
        };
        let hosts = [host("git.example.com", &["/platform", "/shared/"]), host("files.example.com:8443", &[])];
        assert_eq!(Address::read(url).is_some_and(|address| address.is_of(&hosts)), expect, "{url}");
    }

    #[test]
    fn hosts_and_paths_are_compared_as_a_whole() {
        check("https://git.example.com/platform/net.git", true);
        check("https://git.example.com/platform", true);
        check("https://GIT.example.com/platform/net", true);
        check("https://git.example.com:443/platform/net", true);
        check("ssh://git@git.example.com/platform/net", true);
        check("git@git.example.com:platform/net.git", true);
        check("https://git.example.com/shared/x?ref=1", true);
        check("https://files.example.com:8443/anything", true);
        check("https://files.example.com/anything", false);
        check("https://git.example.com:8443/platform/net", false);
        check("https://git.example.com/platform-evil/net", false);
        check("https://git.example.com/other", false);
        check("https://git.example.com", false);
        check("https://git.example.com.evil/platform/net", false);
        check("https://evil/git.example.com/platform", false);
    }

    #[test]
    fn an_address_that_can_be_read_in_two_ways_matches_nothing() {
        check("https://git.example.com@evil.com/platform/net", false);
        check("https://evil.com@x@git.example.com/platform/net", false);
        check("https://evil.com\\@git.example.com/platform/net", false);
        check("https://evil.com#@git.example.com/platform/net", false);
        check("https://evil.com?@git.example.com/platform/net", false);
        check("https://git.example.com/platform/../secret", false);
        check("https://git.example.com/platform/%2e%2e/secret", false);
        check("https://git.example.com/platform//net", false);
        check("https://git.example.com./platform/net", false);
        check("https://git.example.com:/platform/net", false);
        check("https://git.example.com\t/platform/net", false);
        check("file:///git.example.com/platform", false);
        check("https:///platform", false);
        check("git.example.com/platform", false);
        check("", false);
    }
}
