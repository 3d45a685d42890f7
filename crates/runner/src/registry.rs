//! How terraform gets providers and modules, as Policies supply it: one CLI configuration, and the credentials of git.
//!
//! *Guarantees.* All files are the run's own and only its owner can read them. Nothing is written to the home directory:
//! on the embedded node, that is the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hcl_edit::structure::{Body, Structure};
use knoll_api::wire::{CliFragment, JobRegistry, JobSsh};

use crate::setup::{SetupError, write};

/// The variable that names terraform's CLI configuration.
pub const CLI_CONFIG: &str = "TF_CLI_CONFIG_FILE";

/// Where the files are.
#[derive(Clone, Debug)]
pub struct RegistryFiles {
    folder: PathBuf,
}

impl RegistryFiles {
    pub fn below(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Where terraform's CLI configuration is.
    pub fn settings(&self) -> PathBuf {
        self.folder.join("terraformrc")
    }

    fn netrc(&self) -> PathBuf {
        self.folder.join("netrc")
    }

    /// The passwords of `netrc` in the form of git's credential store.
    fn passwords(&self) -> PathBuf {
        self.folder.join("git-credentials")
    }

    fn identity(&self) -> PathBuf {
        self.folder.join("ssh-identity")
    }

    fn known_hosts(&self) -> PathBuf {
        self.folder.join("ssh-known-hosts")
    }

    /// Writes the files that do not depend on the environment.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, registry: &JobRegistry) -> Result<(), SetupError> {
        write(&self.settings(), b"")?;
        if let Some(netrc) = &registry.netrc {
            write(&self.netrc(), netrc.as_bytes())?;
            write(&self.passwords(), stored_passwords(netrc).as_bytes())?;
        }
        if let Some(JobSsh { identity, known_hosts }) = &registry.ssh {
            // A key without a newline at its end is invalid for ssh.
            write(&self.identity(), format!("{}\n", identity.trim_end()).as_bytes())?;
            write(&self.known_hosts(), known_hosts.as_bytes())?;
        }
        Ok(())
    }

    /// Sets what git and terraform need. `image` is the CLI configuration that the image has, if it has one.
    ///
    /// # Errors
    /// When the fragments cannot be joined.
    pub fn configure(
        &self,
        registry: &JobRegistry,
        image: Option<&Path>,
        env: &mut BTreeMap<OsString, OsString>,
    ) -> Result<(), SetupError> {
        if !registry.terraformrc.is_empty() {
            let text = joined(image, &registry.terraformrc)?;
            write(&self.settings(), text.as_bytes())?;
            env.insert(CLI_CONFIG.into(), self.settings().into());
        }
        if registry.netrc.is_some() {
            env.insert("NETRC".into(), self.netrc().into());
            let helper = format!("store --file={}", quoted(&self.passwords()));
            git_setting(env, "credential.helper", &helper);
        }
        if registry.ssh.is_some() {
            let command = format!(
                "ssh -i {} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={}",
                quoted(&self.identity()),
                quoted(&self.known_hosts())
            );
            env.insert("GIT_SSH_COMMAND".into(), command.into());
        }
        Ok(())
    }
}

/// The CLI configuration of the image and the fragments as one. Of blocks and settings that several have, the first counts.
fn joined(image: Option<&Path>, fragments: &[CliFragment]) -> Result<String, SetupError> {
    let mut texts = Vec::new();
    if let Some(path) = image {
        let text =
            std::fs::read_to_string(path).map_err(|source| SetupError::Read { path: path.to_owned(), source })?;
        texts.push((format!("The file `{}` of the image", path.display()), text));
    }
    texts.extend(fragments.iter().map(|fragment| (format!("Policy `{}`", fragment.from), fragment.text.clone())));
    let mut known = BTreeSet::new();
    let mut all = String::new();
    for (from, text) in texts {
        // The parser's own message could show a token.
        let body = Body::from_str(&text).map_err(|_| SetupError::CliConfig(from))?;
        for structure in &body {
            let name = match structure {
                Structure::Attribute(attribute) => attribute.key.to_string(),
                Structure::Block(block) => {
                    let labels = block.labels.iter().map(|label| label.as_str());
                    std::iter::once(block.ident.as_str()).chain(labels).collect::<Vec<_>>().join(" ")
                }
            };
            if known.insert(name) {
                let part: Body = std::iter::once(structure.clone()).collect();
                let _ = writeln!(all, "{part}");
            }
        }
    }
    Ok(all)
}

/// One more setting of git's environment, after those that it has.
fn git_setting(env: &mut BTreeMap<OsString, OsString>, key: &str, value: &str) {
    let count = env.get(OsStr::new("GIT_CONFIG_COUNT")).and_then(|count| count.to_str()?.parse::<u32>().ok());
    let count = count.unwrap_or_default();
    env.insert(format!("GIT_CONFIG_KEY_{count}").into(), key.into());
    env.insert(format!("GIT_CONFIG_VALUE_{count}").into(), value.into());
    env.insert("GIT_CONFIG_COUNT".into(), (count + 1).to_string().into());
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// The host, the login and the password of one entry.
type Machine<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);

/// The entries of a `.netrc` file. The entry `default` has no host.
fn machines(netrc: &str) -> Vec<Machine<'_>> {
    let mut found: Vec<Machine<'_>> = Vec::new();
    let lines = netrc.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    while let Some(word) = words.next() {
        match (word, found.last_mut()) {
            ("machine", _) => found.push((words.next(), None, None)),
            ("default", _) => found.push((None, None, None)),
            ("login", Some(last)) => last.1 = words.next(),
            ("password", Some(last)) => last.2 = words.next(),
            _ => {}
        }
    }
    found
}

fn stored_passwords(netrc: &str) -> String {
    let mut lines = String::new();
    for (host, login, password) in machines(netrc) {
        if let (Some(host), Some(login), Some(password)) = (host, login, password) {
            let _ = writeln!(lines, "https://{}:{}@{host}", escaped(login), escaped(password));
        }
    }
    lines
}

/// Percent-encoded, so that nothing of it is read as a part of an address.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => all.push(char::from(byte)),
            other => {
                let _ = write!(all, "%{other:02X}");
            }
        }
    }
    all
}

/// The texts that have to stay out of logs, beside those of fragments.
pub fn secrets(registry: &JobRegistry) -> Vec<String> {
    let JobRegistry { terraformrc: _, netrc, ssh } = registry;
    let passwords = netrc.iter().flat_map(|netrc| machines(netrc)).filter_map(|(_, _, password)| password);
    let identity = ssh.iter().map(|ssh| ssh.identity.clone());
    passwords.map(str::to_owned).chain(identity).collect()
}

#[cfg(test)]
mod tests;
