//! A user at a machine: an embedded cluster, a folder with a module, and a terminal.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod snapshot;
pub mod terminal;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A module of one resource, whose output is its input.
pub const MODULE: &str = "variable \"word\" { default = \"hello\" }\nresource \"terraform_data\" \"a\" { input = var.word }\noutput \"word\" { value = terraform_data.a.output }\n";

/// A home of its own, a data folder, and the cluster in it while there is one.
pub struct Home {
    pub folder: TempDir,
    up: bool,
}

impl Home {
    /// Nothing but a folder with a module.
    pub fn empty() -> Self {
        let home = Home { folder: tempfile::tempdir().unwrap(), up: false };
        std::fs::create_dir_all(home.module()).unwrap();
        home.write("main.tf", MODULE);
        home
    }

    /// A cluster, and the workspace `net` in use.
    pub fn with_workspace() -> Self {
        let mut home = Home::empty();
        home.start();
        home
    }

    /// A cluster whose terraform runs `script` instead of its own command `command`.
    pub fn with_tool(command: &str, script: &str) -> Self {
        let mut home = Home::empty();
        let real = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join("terraform"))
            .find(|file| file.is_file())
            .expect("terraform must be on the PATH");
        let folder = home.folder.path().join("bin");
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("terraform");
        let text =
            format!("#!/bin/sh\nif test \"$1\" = {command}; then\n{script}\nfi\nexec {} \"$@\"\n", real.display());
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        home.start();
        home
    }

    fn start(&mut self) {
        self.ok(&["up", "--detach", "--port", "0"]);
        self.up = true;
        self.ok(&["workspace", "new", "net"]);
    }

    /// Kills the cluster where it stands, and waits until it is gone.
    pub fn kill_cluster(&self) {
        let pid = std::fs::read_to_string(self.folder.path().join("data/knoll.pid")).unwrap();
        let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.call(&["status"]).status.success() {
            assert!(Instant::now() < deadline, "a killed cluster must look like one");
        }
    }

    /// Starts the cluster again, where clients look for it.
    pub fn restart(&self) {
        let kubeconfig = std::fs::read_to_string(self.folder.path().join("data/kubeconfig")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&kubeconfig).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let port = server.rsplit(':').next().unwrap();
        self.ok(&["up", "--detach", "--port", port]);
    }

    pub fn module(&self) -> PathBuf {
        self.folder.path().join("net")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.module().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The environment of every command: nothing of the machine's own clusters and settings.
    pub fn environment(&self) -> Vec<(String, String)> {
        let data = self.folder.path().join("data").display().to_string();
        let home = self.folder.path().display().to_string();
        // A terraform of the test's own goes before the machine's.
        let path = format!("{home}/bin:{}", std::env::var("PATH").unwrap_or_default());
        [
            ("KNOLL_DATA_DIR", data),
            ("HOME", home),
            ("PATH", path),
            ("TERM", "xterm-256color".into()),
            ("TZ", "UTC".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        self.command_in(&self.module(), words)
    }

    pub fn command_in(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knoll"));
        command.args(words).env_clear().envs(self.environment()).current_dir(folder).stdin(Stdio::null());
        command
    }

    pub fn call(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "knoll {words:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command says on standard error when it fails.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "knoll {words:?} must fail");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The newest run, as the cluster has it.
    pub fn newest_run(&self) -> serde_json::Value {
        let list: serde_json::Value = serde_json::from_str(&self.ok(&["runs", "-o", "json"])).unwrap();
        list["items"].as_array().unwrap().last().cloned().unwrap_or_default()
    }

    /// The names of all runs.
    pub fn runs(&self) -> Vec<String> {
        let names = self.ok(&["runs", "-o", "name"]);
        names.lines().map(|line| line.trim_start_matches("run.knoll.dev/").to_owned()).collect()
    }

    /// Waits until the newest run is so.
    #[track_caller]
    pub fn until_run(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let run = self.newest_run();
            if wanted(&run) {
                return run;
            }
            assert!(Instant::now() < deadline, "{what}: {run:#}");
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.up {
            self.call(&["down"]);
        }
    }
}
