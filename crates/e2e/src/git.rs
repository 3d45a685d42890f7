//! Git repositories and servers for tests: git's own `http-backend` with a password, with and without TLS, and an ssh
//! server.

mod http;
mod sshd;

use std::path::PathBuf;
use std::process::Command;

pub use http::HttpServer;
pub use sshd::Sshd;
use tempfile::TempDir;

use crate::CommandResult;

/// The credentials that the servers accept.
pub const USER: &str = "reader";
pub const PASSWORD: &str = "hunter2";

/// A directory of bare repositories with their working copies.
#[derive(Debug)]
pub struct Repositories {
    home: TempDir,
}

impl Default for Repositories {
    fn default() -> Self {
        Self::new()
    }
}

impl Repositories {
    /// Creates an empty directory.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    /// The directory of the bare repositories.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.home.path().join("bare")
    }

    /// Creates a repository with the branch `main`.
    pub fn create(&self, name: &str) {
        let (bare, work) = (self.root().join(name), self.work(name));
        let _ = self.git(&["init", "--quiet", "--bare", "--initial-branch=main", &bare.to_string_lossy()]);
        let _ = self.git(&["clone", "--quiet", &bare.to_string_lossy(), &work.to_string_lossy()]);
    }

    /// Commits files to the current branch, pushes them, and returns the hash of the commit.
    ///
    /// # Panics
    /// If git fails.
    pub fn commit(&self, name: &str, files: &[(&str, &str)]) -> String {
        let work = self.work(name);
        for (path, text) in files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.commit_all(name)
    }

    /// Commits all changes of the working copy.
    pub fn commit_all(&self, name: &str) -> String {
        self.in_work(name, &["add", "--all"]);
        self.in_work(name, &["commit", "--quiet", "--message", "a change"]);
        self.in_work(name, &["push", "--quiet", "origin", "HEAD"]);
        self.in_work(name, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Calls git in the working copy of a repository.
    pub fn in_work(&self, name: &str, words: &[&str]) -> String {
        let work = self.work(name);
        self.git(&[&["-C", &work.to_string_lossy()], words].concat())
    }

    /// The working copy of a repository.
    #[must_use]
    pub fn work(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name.trim_end_matches(".git"))
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        // The git configuration of the user who runs the tests is ignored.
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "A Test").env(format!("GIT_{who}_EMAIL"), "test@example.com");
        }
        git.args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]);
        CommandResult::by(git.args(words), "").ok()
    }
}
