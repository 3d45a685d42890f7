//! Fetches git submodules.

use std::path::{Path, PathBuf};

use gix::{ObjectId, bstr::ByteSlice};

use super::{checkout, remote::Remote};
use crate::{Credentials, Error};

/// The maximum nesting depth of submodules.
const DEEPEST: usize = 8;

/// Fetches the submodules of the files in `folder`.
pub(super) fn into(remote: &Remote, folder: &Path, found: &[(PathBuf, ObjectId)]) -> Result<(), Error> {
    if found.is_empty() {
        return Ok(());
    }
    let wrong = |why: String| Error::Refused { url: remote.shown.clone(), why };
    if remote.depth >= DEEPEST {
        return Err(wrong(format!("its submodules are nested more than {DEEPEST} deep")));
    }
    let text = std::fs::read(folder.join(".gitmodules")).unwrap_or_default();
    let config = gix::config::File::from_bytes_no_includes(
        &text,
        gix::config::file::Metadata::default(),
        gix::config::file::init::Options::default(),
    )
    .map_err(|error| wrong(format!("cannot parse its `.gitmodules`: {error}")))?;
    for (path, commit) in found {
        let named = config.sections_by_name("submodule").into_iter().flatten().find_map(|section| {
            let is_it = section.value("path")?.to_str_lossy().trim_end_matches('/') == path.to_str()?;
            is_it.then(|| section.value("url").map(|url| url.to_string()))?
        });
        let name = path.display();
        let url = named.ok_or_else(|| wrong(format!("its `.gitmodules` has no entry for `{name}`")))?;
        let url = resolve(&remote.url.to_bstring().to_string(), &url)
            .ok_or_else(|| wrong(format!("the URL `{url}` of the submodule `{name}` is invalid")))?;
        let within = Remote { depth: remote.depth + 1, ..remote.within(&url)? };
        checkout::into(&within, *commit, true, &folder.join(path))?;
    }
    Ok(())
}

impl Remote {
    /// The remote of a submodule. Passwords are kept only for the same server. An ssh key is kept, because it reveals
    /// nothing to another server.
    fn within(&self, url: &str) -> Result<Self, Error> {
        let other = Remote::new(url, &self.credentials, &self.settings, self.limits.clone())?;
        let server = |of: &Remote| (of.url.scheme.clone(), of.url.host().map(str::to_owned), of.url.port_or_default());
        let same = server(&other) == server(self);
        if same || other.url.scheme == gix::url::Scheme::Ssh {
            return Ok(other);
        }
        let credentials = Credentials { ca: self.credentials.ca.clone(), ..Credentials::default() };
        Ok(Remote { credentials, ..other })
    }
}

/// The URL of a submodule, which may be relative to that of its repository.
fn resolve(of: &str, url: &str) -> Option<String> {
    if !url.starts_with("./") && !url.starts_with("../") {
        return Some(url.to_owned());
    }
    let mut base = of.trim_end_matches('/');
    let mut rest = url;
    loop {
        if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else if let Some(above) = rest.strip_prefix("../") {
            let end = base.rfind(['/', ':']).filter(|end| !base[..*end].ends_with(['/', ':']))?;
            // The parent of the path in `user@host:path` is the host with its colon.
            let keep = if base.as_bytes().get(end) == Some(&b':') { end + 1 } else { end };
            base = &base[..keep];
            rest = above;
        } else {
            let between = if base.ends_with(':') { "" } else { "/" };
            return Some(format!("{base}{between}{rest}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_relative() {
        let rows = [
            ("https://host/a/b.git", "https://other/c.git", Some("https://other/c.git")),
            ("https://host/a/b.git", "../c.git", Some("https://host/a/c.git")),
            ("https://host/a/b.git/", "../../c/d", Some("https://host/c/d")),
            ("https://host/a/b.git", "./c", Some("https://host/a/b.git/c")),
            ("git@host:a/b.git", "../c.git", Some("git@host:a/c.git")),
            ("git@host:b.git", "../c.git", Some("git@host:c.git")),
            ("https://host/b", "../../../c", None),
        ];
        for (of, url, expect) in rows {
            assert_eq!(resolve(of, url).as_deref(), expect, "{of} {url}");
        }
    }
}
