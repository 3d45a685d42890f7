//! Where a container's volumes really are.
//!
//! Containers share the host's files, so a volume is not at its `mountPath` but in the pod's folder. Wherever a path at
//! or under a `mountPath` stands in the command, the arguments, a value of the environment or the working directory, it
//! is replaced by the path on the host. A path counts only as a whole: `/knoll/bin` in `--to=/knoll/bin` or in
//! `PATH=/bin:/knoll/bin` is one, in `/knoll/binary`, `x/knoll/bin`, `https://host/knoll/bin` or `$HOME/knoll/bin` it is not.
//! Of several that fit, the longest `mountPath` is meant. A program that has such a path built in does not find it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The volume mounts of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<(String, PathBuf)>);

impl Mounts {
    /// Adds a mount: what the container knows as `mount_path` is `host` on the host.
    pub fn add(&mut self, mount_path: &str, host: PathBuf) {
        let mount_path = mount_path.trim_end_matches('/');
        // A mount over the root would make every path a volume's; it is left alone.
        if mount_path.starts_with('/') {
            self.0.push((mount_path.to_owned(), host));
            self.0.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
    }

    /// The text with every path of a volume replaced.
    pub fn translate<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut result = String::new();
        let mut copied = 0;
        let mut at = 0;
        while let Some(offset) = text[at..].find('/') {
            let start = at + offset;
            at = start + 1;
            if text[..start].chars().next_back().is_some_and(continues_before) {
                continue;
            }
            let found = self.0.iter().find(|(path, _)| {
                text[start..]
                    .strip_prefix(path.as_str())
                    .is_some_and(|rest| !rest.chars().next().is_some_and(continues_after))
            });
            if let Some((path, host)) = found {
                result.push_str(&text[copied..start]);
                result.push_str(&host.to_string_lossy());
                copied = start + path.len();
                at = copied;
            }
        }
        if copied == 0 { Cow::Borrowed(text) } else { Cow::Owned(result + &text[copied..]) }
    }

    /// Where one path of the container is on the host.
    pub fn locate(&self, path: &str) -> PathBuf {
        Path::new(self.translate(path).as_ref()).to_path_buf()
    }
}

/// Part of a file's name.
fn in_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '+' | '%' | '@' | '~')
}

/// In front of a slash: the path has begun before it.
fn continues_before(character: char) -> bool {
    in_name(character) || matches!(character, '/' | '}' | ')')
}

/// Behind a mount path: it is a part of a longer name.
fn continues_after(character: char) -> bool {
    in_name(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_of_volumes_are_replaced() {
        let mut mounts = Mounts::default();
        mounts.add("/knoll", "/host/v".into());
        mounts.add("/knoll/cache/", "/host/c".into());
        mounts.add("/var/run/knoll", "/host/t".into());
        mounts.add("/", "/host/root".into());
        for (text, expect) in [
            ("", ""),
            ("knoll", "knoll"),
            ("/knoll", "/host/v"),
            ("/knoll/", "/host/v/"),
            ("/knoll/bin/knoll", "/host/v/bin/knoll"),
            ("/knoll/cache", "/host/c"),
            ("/knoll/cache/x", "/host/c/x"),
            ("/knoll/cached", "/host/v/cached"),
            ("/var/run/knoll/token", "/host/t/token"),
            ("--to=/knoll/bin", "--to=/host/v/bin"),
            ("PATH=/bin:/knoll/bin:/knoll/cache", "PATH=/bin:/host/v/bin:/host/c"),
            ("cat '/knoll/a' \"/knoll/b\">/knoll/c", "cat '/host/v/a' \"/host/v/b\">/host/v/c"),
            ("/knolls /knoll-2 /knoll.d x/knoll ./knoll //knoll", "/knolls /knoll-2 /knoll.d x/knoll ./knoll //knoll"),
            ("https://host/knoll file:///knoll/x", "https://host/knoll file:///knoll/x"),
            ("$HOME/knoll ${HOME}/knoll $(HOME)/knoll", "$HOME/knoll ${HOME}/knoll $(HOME)/knoll"),
            ("/usr/bin/env", "/usr/bin/env"),
            ("é/knoll /knollé /knoll é", "é/knoll /knollé /host/v é"),
            ("[/knoll,/knoll]", "[/host/v,/host/v]"),
        ] {
            assert_eq!(mounts.translate(text), expect, "{text}");
        }
    }

    #[test]
    fn what_was_put_in_is_not_replaced_again() {
        let mut mounts = Mounts::default();
        mounts.add("/data", "/data/pods/1/data".into());
        assert_eq!(mounts.translate("/data/x:/data"), "/data/pods/1/data/x:/data/pods/1/data");
    }
}
