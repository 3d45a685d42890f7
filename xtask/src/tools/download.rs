//! Downloads a file of a release and checks its SHA-256 before anybody can use it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

/// How long to wait for a connection. A machine without a network must reach the next way soon.
const CONNECT_SECONDS: &str = "10";

/// Where the expected SHA-256 of a file comes from.
#[derive(Clone, Copy, Debug)]
pub enum Checksum<'a> {
    /// The source code has it.
    Pinned(&'a str),
    /// A list that the release publishes, in the format of `sha256sum`. It protects against a damaged download, and no
    /// more than TLS protects against a replaced one.
    Published { list: &'a str, file: &'a str },
}

/// The program that downloads: rustup needs one of these too.
pub enum Downloader {
    Curl(PathBuf),
    Wget(PathBuf),
}

impl Downloader {
    /// The downloader of this machine.
    pub fn find() -> Option<Downloader> {
        let curl = super::find_system("curl").map(Downloader::Curl);
        curl.or_else(|| super::find_system("wget").map(Downloader::Wget))
    }

    /// Downloads a file to `target`. The file appears there complete and checked, or not at all.
    pub fn fetch(&self, url: &str, checksum: Checksum<'_>, target: &Path) -> anyhow::Result<()> {
        let part = with_suffix(target, "part");
        let fetched = self
            .fetch_checked(url, checksum, &part)
            .and_then(|()| fs::rename(&part, target).with_context(|| format!("cannot write {}", target.display())));
        if fetched.is_err() {
            // The file may not exist. What is left of it is not used, and the next download replaces it.
            let _ = fs::remove_file(&part);
        }
        fetched
    }

    fn fetch_checked(&self, url: &str, checksum: Checksum<'_>, part: &Path) -> anyhow::Result<()> {
        let expected = match checksum {
            Checksum::Pinned(sum) => sum.to_owned(),
            Checksum::Published { list, file } => {
                self.download(list, part)?;
                let text = fs::read_to_string(part).with_context(|| format!("cannot read {}", part.display()))?;
                sum_of(&text, file).with_context(|| format!("{list} has no checksum of {file}"))?.to_owned()
            }
        };
        self.download(url, part)?;
        let bytes = fs::read(part).with_context(|| format!("cannot read {}", part.display()))?;
        let actual = sha256(&bytes);
        if actual != expected {
            bail!("{url} has the SHA-256 {actual}, not {expected}: it was not used");
        }
        Ok(())
    }

    fn download(&self, url: &str, target: &Path) -> anyhow::Result<()> {
        let mut command = match self {
            Downloader::Curl(program) => {
                let mut command = Command::new(program);
                command.args(["--fail", "--location", "--proto", "=https", "--silent", "--show-error"]);
                command.args(["--connect-timeout", CONNECT_SECONDS, "--output"]).arg(target);
                command
            }
            Downloader::Wget(program) => {
                let mut command = Command::new(program);
                command.args(["--https-only", "--no-verbose", "--tries", "1", "--timeout", CONNECT_SECONDS]);
                command.arg("--output-document").arg(target);
                command
            }
        };
        let output = command.arg(url).stdin(Stdio::null()).output().context("cannot start the download")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("cannot download {url}: {}", message.lines().next().unwrap_or("no reason was given"));
        }
        Ok(())
    }
}

/// The checksum of a file in a list, whose lines are `SUM  NAME`.
fn sum_of<'a>(list: &'a str, file: &str) -> Option<&'a str> {
    list.lines().find_map(|line| {
        let (sum, name) = line.split_once(char::is_whitespace)?;
        (name.trim_start().trim_start_matches('*') == file && sum.len() == 64).then_some(sum)
    })
}

/// The SHA-256 of some bytes, in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A path with an extension added to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    /// A downloader that has these files, by the last part of their address.
    fn serving(folder: &Path, files: &[(&str, &str)]) -> Downloader {
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != --output ]; do shift; done\ncp '{}'/\"${{3##*/}}\" \"$2\"\n",
            folder.display()
        );
        let program = folder.join("curl");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Downloader::Curl(program)
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], checksum: Checksum<'_>, error: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let result = serving(folder.path(), files).fetch("https://example.com/file", checksum, &target);
        match error {
            None => {
                result.unwrap();
                assert_eq!(fs::read_to_string(&target).unwrap(), "hello");
            }
            Some(error) => {
                let message = format!("{:#}", result.unwrap_err());
                assert!(message.contains(error), "{message}");
                assert!(!target.exists(), "a file that was refused is not there");
            }
        }
        assert!(!with_suffix(&target, "part").exists());
    }

    #[test]
    fn a_file_is_used_only_with_its_checksum() {
        let published = Checksum::Published { list: "https://example.com/sums", file: "file" };
        let list = format!("{}  other\n{HELLO}  file\n", "0".repeat(64));
        check(&[("file", "hello")], Checksum::Pinned(HELLO), None);
        check(&[("file", "hello"), ("sums", &list)], published, None);
        check(&[("file", "hellO")], Checksum::Pinned(HELLO), Some("it was not used"));
        check(&[("file", "hellO"), ("sums", &list)], published, Some("it was not used"));
        check(&[("file", "hello"), ("sums", "")], published, Some("has no checksum of file"));
        check(&[("file", "hello")], published, Some("cannot download https://example.com/sums"));
        check(&[], Checksum::Pinned(HELLO), Some("cannot download https://example.com/file"));
    }

    #[test]
    fn lists_of_checksums() {
        let list = format!("{HELLO} *a.zip\nshort  b.zip\n{HELLO}  aa.zip\n");
        assert_eq!(sum_of(&list, "a.zip"), Some(HELLO));
        assert_eq!(sum_of(&list, "b.zip"), None);
        assert_eq!(sum_of(&list, "zip"), None);
    }
}
