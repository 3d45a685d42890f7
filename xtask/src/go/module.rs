//! The `go.mod` files that programs of others are built from. Pure text.

use std::fmt::Write;

use anyhow::{Context, bail};

use crate::cluster::KubeVersion;

/// The `go.mod` that Kubernetes and the etcd of its client are built from, made from Kubernetes' own.
///
/// That one replaces its libraries by folders of its repository, which the module that is published does not have; here
/// they are replaced by the published libraries.
pub fn kubernetes(version: &KubeVersion, theirs: &str) -> anyhow::Result<String> {
    let lines = lines(theirs);
    let etcd = lines
        .iter()
        .find_map(|words| match words.as_slice() {
            ["go.etcd.io/etcd/client/v3", version, ..] => Some(*version),
            _ => None,
        })
        .with_context(|| format!("go.mod of Kubernetes {version} names no etcd"))?;
    let staged: Vec<&str> = lines
        .iter()
        .filter_map(|words| match words.as_slice() {
            [library, "=>", folder] if folder.starts_with("./staging/") => Some(*library),
            _ => None,
        })
        .collect();
    if staged.is_empty() {
        bail!("go.mod of Kubernetes {version} replaces no library: this version is not built as others are");
    }
    let mut text = header("kube", &lines)?;
    text.push_str("require (\n");
    write!(text, "\tgo.etcd.io/etcd/server/v3 {etcd}\n\tk8s.io/kubernetes {}\n)\n\nreplace (\n", version.tag())?;
    for library in staged {
        writeln!(text, "\t{library} => {library} {}", version.libraries())?;
    }
    text.push_str(")\n");
    Ok(text)
}

/// The `go.mod` that one module's program is built from: replacements count only in the main module, so that module's
/// own are repeated.
pub fn program(name: &str, module: &str, version: &str, theirs: &str) -> anyhow::Result<String> {
    let lines = lines(theirs);
    let mut text = header(name, &lines)?;
    writeln!(text, "require {module} {version}\n")?;
    for words in &lines {
        if let Some(arrow) = words.iter().position(|word| *word == "=>")
            && words.get(arrow + 1).is_some_and(|target| !target.starts_with('.'))
        {
            let (from, to) = words.split_at(arrow);
            writeln!(text, "replace {} => {}", from.join(" "), to[1..].join(" "))?;
        }
    }
    Ok(text)
}

fn header(name: &str, lines: &[Vec<&str>]) -> anyhow::Result<String> {
    let go = lines
        .iter()
        .find_map(|words| match words.as_slice() {
            ["go", version] => Some(*version),
            _ => None,
        })
        .context("a go.mod names the version of Go that it needs")?;
    Ok(format!("module knoll.dev/{name}\n\ngo {go}\n\n"))
}

/// The words of each line; the keyword that opens a line or a block is left out where a block could stand.
fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>())
        .map(|mut words| {
            if matches!(words.first(), Some(&("require" | "replace"))) {
                words.remove(0);
            }
            words
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const KUBERNETES: &str = "\
// This is a generated file.

module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
\tgo.etcd.io/etcd/client/pkg/v3 v3.6.4
\tgo.etcd.io/etcd/client/v3 v3.6.4 // a remark
\tk8s.io/api v0.0.0
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
";

    #[test]
    fn libraries_of_kubernetes_are_replaced_by_the_published_ones() {
        let text = kubernetes(&KubeVersion::parse("v1.34.4").unwrap(), KUBERNETES).unwrap();
        assert_eq!(
            text,
            "module knoll.dev/kube\n\ngo 1.24.0\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.4\n\tk8s.io/kubernetes \
             v1.34.4\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.34.4\n\tk8s.io/kubelet => k8s.io/kubelet \
             v0.34.4\n)\n"
        );
    }

    #[test]
    fn a_go_mod_that_is_not_kubernetes_is_refused() {
        let version = KubeVersion::parse("1.34.4").unwrap();
        assert!(kubernetes(&version, "module x\n\ngo 1.24\n").is_err());
        assert!(kubernetes(&version, "go 1.24\nrequire go.etcd.io/etcd/client/v3 v3.6.4\n").is_err());
    }

    #[test]
    fn replacements_by_modules_are_repeated_and_those_by_folders_are_not() {
        let theirs = "module m\ngo 1.24.0\nreplace a/b => c/d v1.2.3\nreplace (\n\te/f v1.0.0 => g/h v2.0.0\n\ti => \
                      ./j\n)\n";
        assert_eq!(
            program("tofu", "m", "v1.10.10", theirs).unwrap(),
            "module knoll.dev/tofu\n\ngo 1.24.0\n\nrequire m v1.10.10\n\nreplace a/b => c/d v1.2.3\nreplace e/f v1.0.0 \
             => g/h v2.0.0\n"
        );
    }
}
