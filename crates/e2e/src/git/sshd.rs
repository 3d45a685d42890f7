//! Serves git over ssh with the machine's sshd.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::CommandResult;

/// An ssh server on loopback that accepts one user's keys. It stops when dropped.
#[derive(Debug)]
pub struct Sshd {
    home: TempDir,
    child: Child,
    pub port: u16,
}

impl Sshd {
    /// Starts the server. `newer` is whether it passes `GIT_PROTOCOL` on, which not every server does.
    ///
    /// # Panics
    /// If sshd is not installed.
    #[must_use]
    pub fn start(newer: bool) -> Self {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).is_file());
        let program = program.expect("this test needs an ssh server: install the package openssh-server");
        let home = TempDir::new().unwrap();
        for (name, kind) in [
            ("host", "ed25519"),
            ("other", "ed25519"),
            ("identity", "ed25519"),
            ("stranger", "ed25519"),
            ("rsa", "rsa"),
        ] {
            let path = home.path().join(name);
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-N", "", "-t", kind, "-f"]).arg(&path);
            let _ = CommandResult::by(&mut keygen, "").ok();
        }
        let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
        std::fs::write(home.path().join("authorized"), read("identity.pub") + &read("rsa.pub")).unwrap();
        // sshd requires this directory when it runs as root.
        let _ = std::fs::create_dir_all("/run/sshd");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = home.path().display();
        let accept = if newer { "AcceptEnv GIT_PROTOCOL\n" } else { "" };
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n{accept}"
        );
        std::fs::write(home.path().join("config"), config).unwrap();
        let mut sshd = Command::new(program);
        sshd.args(["-D", "-e", "-f"]).arg(home.path().join("config"));
        let mut child = sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let listens = lines.by_ref().map_while(Result::ok).any(|line| {
            said.push_str(&line);
            line.contains("Server listening")
        });
        assert!(listens, "the ssh server does not listen: {said}");
        // The server would block if its output were not read.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { home, child, port }
    }

    /// The URL of a repository in this directory.
    #[must_use]
    pub fn url(&self, folder: &Path, repository: &str) -> String {
        let user = CommandResult::by(Command::new("id").arg("-un"), "").ok();
        format!("ssh://{}@127.0.0.1:{}{}/{repository}", user.trim(), self.port, folder.display())
    }

    /// One of its files. The keys `identity` and `rsa` are accepted, `stranger` is not.
    ///
    /// # Panics
    /// If it does not exist.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.path().join(name)).unwrap()
    }

    /// The `known_hosts` entry of the server with the key of that name.
    #[must_use]
    pub fn known_hosts(&self, key: &str) -> String {
        format!("# a comment\n[127.0.0.1]:{} {}", self.port, self.file(&format!("{key}.pub")))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
