//! What a user sees of a cluster: its processes, its logs, and how to use it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::place::Place;
use super::process;
use super::record::Record;
use super::{control, node};

/// The name of the log that is not one of a process.
const AUDIT: &str = "audit";

/// What `up` says in the end.
pub fn summary(place: &Place, record: &Record, changed: bool, took: Duration) {
    let what = if record.node { "with a node" } else { "without a node" };
    if changed {
        println!("Ready: Kubernetes {} {what}, in {:.1} s", record.kube_version, took.as_secs_f64());
    } else {
        println!("Already running: Kubernetes {} {what}", record.kube_version);
    }
    println!("      folder  {}", place.folder.display());
    println!("  kubeconfig  {}\n", place.kubeconfig().display());
    println!("export KUBECONFIG={}", quote(&place.kubeconfig().to_string_lossy()));
}

/// Prints what a shell needs.
pub fn env(place: &Place) -> anyhow::Result<()> {
    if !place.kubeconfig().is_file() {
        bail!("there is no cluster in {}: run `cargo xtask cluster up`", place.folder.display());
    }
    print(&format!("export KUBECONFIG={}\n", quote(&place.kubeconfig().to_string_lossy())))
}

pub fn status(place: &Place) -> anyhow::Result<()> {
    let Some(record) = Record::read(place)? else {
        return print(&format!("There is no cluster in {}\n", place.folder.display()));
    };
    let mut text = format!(
        "Kubernetes {} in {}\n\n{:<24} {:<8} {:>8} {:>6} {:>10}\n",
        record.kube_version,
        place.folder.display(),
        "PROCESS",
        "STATE",
        "PID",
        "PORT",
        "MEMORY"
    );
    let more = if record.node { node::NAMES } else { &[] };
    for name in control::NAMES.iter().chain(more) {
        let port = record.ports.get(*name).map_or_else(|| "-".to_owned(), u16::to_string);
        let (state, pid, memory) = match process::running(place, name) {
            Some(file) => {
                let memory = process::inspect(file.pid).map_or(0, |seen| seen.memory);
                ("running", file.pid.to_string(), format!("{} MiB", memory / 1024))
            }
            None => ("stopped", "-".to_owned(), "-".to_owned()),
        };
        text.push_str(&format!("{name:<24} {state:<8} {pid:>8} {port:>6} {memory:>10}\n"));
    }
    print(&text)
}

pub fn log(place: &Place, name: &str, follow: bool) -> anyhow::Result<()> {
    let known: Vec<&str> = control::NAMES.iter().chain(node::NAMES).copied().chain([AUDIT]).collect();
    if !known.contains(&name) {
        bail!("there is no process `{name}`: it is one of {}", known.join(", "));
    }
    let path = process::log_path(place, name);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{name} has no log in {}: it was never started", place.folder.display())
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
        if !write(&bytes)? || !follow {
            return Ok(());
        }
        if bytes.is_empty() {
            thread::sleep(Duration::from_millis(200));
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    write(text.as_bytes()).map(|_| ())
}

/// Writes to the standard output. Answers no when nobody reads it any more, which is no fault.
fn write(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to the standard output"),
    }
}

/// A word that a shell reads as it is.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_path_as_it_is() {
        assert_eq!(quote("/home/me/.cache/x"), "/home/me/.cache/x");
        assert_eq!(quote("/a b/it's"), r"'/a b/it'\''s'");
    }
}
