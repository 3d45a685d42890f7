//! What is in each image.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::archive::{Entry, Image};

/// Where distributions keep the certificates that they trust.
const CERTIFICATES: &[&str] = &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Somebody who may do nothing in particular. A pod can name another user; a volume for scratch is open to all.
const NOBODY: &str = "65532:65532";

/// The programs of Knoll's own image, which are named as their packages are.
pub const PROGRAMS: [&str; 2] = ["knoll", "knoll-runner"];

/// The image of Knoll: the operator, and the runner that a Run's pod takes.
pub fn knoll(name: &str, programs: &Path) -> Image {
    let mut entries = folders(&["usr", "usr/local", "usr/local/bin"]);
    let programs = PROGRAMS.map(|name| Entry::Copy(format!("usr/local/bin/{name}"), programs.join(name), 0o755));
    entries.extend(programs);
    entries.extend(surroundings());
    Image {
        name: name.to_owned(),
        entries,
        entrypoint: vec!["/usr/local/bin/knoll".to_owned()],
        user: NOBODY.to_owned(),
        environment: vec![SEARCH_PATH.to_owned()],
        folder: "/".to_owned(),
        ..Image::default()
    }
}

/// The image of a tool that a Run runs in: the tool, and a shell for hooks.
pub fn tool(name: &str, binary: &Path, busybox: &Path) -> anyhow::Result<Image> {
    let program = binary.file_name().context("a program has a name")?.to_string_lossy().into_owned();
    let mut image = shell(name, busybox)?;
    image.entries.push(Entry::Copy(format!("usr/local/bin/{program}"), binary.to_owned(), 0o755));
    image.entrypoint = vec![format!("/usr/local/bin/{program}")];
    image.command = Vec::new();
    Ok(image)
}

/// The image of a shell with its tools.
pub fn shell(name: &str, busybox: &Path) -> anyhow::Result<Image> {
    let mut entries = folders(&["bin", "root", "usr", "usr/local", "usr/local/bin"]);
    entries.push(Entry::Copy("bin/busybox".to_owned(), busybox.to_owned(), 0o755));
    let list = Command::new(busybox).arg("--list").output();
    let list = list.with_context(|| format!("cannot start {}", busybox.display()))?;
    let links = String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    for link in links.iter().filter(|link| *link != "busybox") {
        entries.push(Entry::Link(format!("bin/{link}"), "busybox".to_owned()));
    }
    entries.extend(surroundings());
    Ok(Image {
        name: name.to_owned(),
        entries,
        command: vec!["sh".to_owned()],
        environment: vec![SEARCH_PATH.to_owned()],
        folder: "/".to_owned(),
        ..Image::default()
    })
}

/// The image that holds a pod's namespaces: a program that waits.
pub fn pause(name: &str, busybox: &Path) -> Image {
    let mut entries = folders(&["bin"]);
    entries.push(Entry::Copy("bin/busybox".to_owned(), busybox.to_owned(), 0o755));
    Image {
        name: name.to_owned(),
        entries,
        // As long as a number of seconds can be: 68 years.
        entrypoint: ["/bin/busybox", "sleep", "2147483647"].map(str::to_owned).to_vec(),
        folder: "/".to_owned(),
        ..Image::default()
    }
}

/// What programs expect around them: a folder for scratch, users by name, certificates to trust.
fn surroundings() -> Vec<Entry> {
    let mut entries = vec![Entry::Folder("tmp".to_owned(), 0o1777)];
    entries.extend(folders(&["etc"]));
    let users = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65532:65532:nobody:/tmp:/bin/sh\n";
    entries.push(Entry::Text("etc/passwd".to_owned(), users.to_owned()));
    entries.push(Entry::Text("etc/group".to_owned(), "root:x:0:\nnobody:x:65532:\n".to_owned()));
    if let Some(certificates) = CERTIFICATES.iter().map(PathBuf::from).find(|path| path.is_file()) {
        entries.extend(folders(&["etc/ssl", "etc/ssl/certs"]));
        entries.push(Entry::Copy("etc/ssl/certs/ca-certificates.crt".to_owned(), certificates, 0o644));
    }
    entries
}

fn folders(paths: &[&str]) -> Vec<Entry> {
    paths.iter().map(|path| Entry::Folder((*path).to_owned(), 0o755)).collect()
}
