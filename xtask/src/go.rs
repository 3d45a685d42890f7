//! Builds programs of others from the Go module proxy, once, into the user's cache.

pub mod module;

use std::ffi::OsStr;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::cluster::write;
use crate::tools;

/// Where Go's installer and distributions put Go, for users who did not add it to their PATH.
const GO_FOLDERS: &[&str] = &["/usr/local/go/bin", "/usr/lib/go/bin"];

/// How often a build shows its progress in a terminal, and in a log.
const REPORT_TO_TERMINAL: Duration = Duration::from_secs(1);
const REPORT_TO_LOG: Duration = Duration::from_secs(30);

/// The `go` program, if this machine has one.
pub fn find() -> Option<PathBuf> {
    let installed = || GO_FOLDERS.iter().map(|folder| Path::new(folder).join("go")).find(|path| path.is_file());
    tools::find("go").or_else(installed)
}

/// A Go module in the user's cache that requires the module of a program, so that `go build` can build the program.
pub struct GoSource {
    folder: PathBuf,
    go: PathBuf,
}

impl GoSource {
    /// Writes the module into `folder`. `go_mod` makes its `go.mod` from the one of the program's module.
    /// `purpose` completes the error "`go` must be on the PATH: install it to build ...".
    pub fn new(
        folder: PathBuf,
        module: &str,
        version: &str,
        purpose: &str,
        go_mod: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<GoSource> {
        let go = find()
            .with_context(|| format!("`go` (1.24 or newer) must be on the PATH: install it to build {purpose}"))?;
        let source = GoSource { folder, go };
        fs::create_dir_all(&source.folder)
            .with_context(|| format!("cannot create the folder {}", source.folder.display()))?;
        let path = source.folder.join("go.mod");
        if !path.is_file() {
            let begun = Instant::now();
            let original = source.download(module, version)?;
            let original = fs::read_to_string(&original).with_context(|| format!("cannot read {original}"))?;
            write(&path, go_mod(&original)?.as_bytes(), false)?;
            println!("    {:<26} {:>6.1} s", format!("source {version}"), begun.elapsed().as_secs_f64());
        }
        Ok(source)
    }

    /// Downloads a module and returns the path of its `go.mod`.
    fn download(&self, module: &str, version: &str) -> anyhow::Result<String> {
        let output = self
            .command(["mod", "download", "-json", &format!("{module}@{version}")])
            // The folder has no go.mod yet, and one of a parent folder must not count.
            .env("GOMOD", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {}", self.go.display()))?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match (answer["GoMod"].as_str(), answer["Error"].as_str()) {
            (Some(path), None) if output.status.success() => Ok(path.to_owned()),
            (_, error) => bail!("cannot download {module} {version}: {}", error.unwrap_or("see above")),
        }
    }

    /// Builds a program. It appears at `target` complete or not at all.
    pub fn build(&self, package: &str, flags: &str, target: &Path) -> anyhow::Result<()> {
        let name = target.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        let begun = Instant::now();
        let new = target.with_extension("new");
        // With `-v`, go names each package that it has compiled. The log counts them, and explains a failure.
        let log_path = self.folder.join("build.log");
        let log = fs::File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        let mut build = self
            // The module requires only what its programs need, and go adds it while it builds.
            .command(["build", "-v", "-mod=mod", "-trimpath", "-ldflags", flags, "-o"]);
        build.arg(&new).arg(package).env("CGO_ENABLED", "0").stderr(log);
        let status =
            wait(&mut build, &name, &log_path).with_context(|| format!("cannot start {}", self.go.display()))?;
        if !status.success() {
            println!("    {name:<26} failed");
            let log = fs::read_to_string(&log_path).unwrap_or_default();
            bail!("cannot build {package}: go ended with {status} and printed\n{}", errors_in(&log).join("\n"));
        }
        fs::rename(&new, target).with_context(|| format!("cannot write {}", target.display()))?;
        println!("    {name:<26} {:>6.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(&self.go);
        command.args(arguments).current_dir(&self.folder).env("GOWORK", "off").env_remove("GOFLAGS");
        command
    }
}

/// Runs a build to its end and shows how far it is.
fn wait(build: &mut Command, name: &str, log: &Path) -> std::io::Result<ExitStatus> {
    let mut child = build.spawn()?;
    let begun = Instant::now();
    let terminal = std::io::stdout().is_terminal();
    let interval = if terminal { REPORT_TO_TERMINAL } else { REPORT_TO_LOG };
    let mut reported = begun;
    loop {
        if let Some(status) = child.try_wait()? {
            if terminal {
                print!("\r\x1b[K");
            }
            return Ok(status);
        }
        if reported.elapsed() >= interval {
            reported = Instant::now();
            let packages = fs::read_to_string(log).unwrap_or_default().lines().filter(|line| is_package(line)).count();
            let line = format!("    {name:<26} {:>4} s, {packages} packages compiled", begun.elapsed().as_secs());
            if terminal {
                print!("\r\x1b[K{line}");
                std::io::stdout().flush()?;
            } else {
                println!("{line}");
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether a line of `go build -v` names a package that was compiled.
fn is_package(line: &str) -> bool {
    !line.is_empty() && !line.contains(char::is_whitespace)
}

/// The lines of a build's log that explain why it failed.
fn errors_in(log: &str) -> Vec<&str> {
    log.lines().filter(|line| !is_package(line) && !line.starts_with("go: downloading ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_shows_only_its_errors() {
        let log = "go: downloading example.com/a v1.0.0\nexample.com/a\n# example.com/b\nb.go:3:1: undefined: x\n";
        assert_eq!(errors_in(log), ["# example.com/b", "b.go:3:1: undefined: x"]);
    }
}
