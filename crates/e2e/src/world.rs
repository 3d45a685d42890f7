//! The cluster under test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::processes::Process;
use crate::{CommandResult, Namespace, Outage};

/// The namespace of the operator in a real cluster.
const OPERATOR: [&str; 2] = ["--namespace", "knoll-system"];

/// The only address besides public ones that sources are fetched from on the embedded cluster: that of the git servers of
/// tests. On a real one it is that of the node, see `xtask/src/real.rs`.
const GIT_SERVER: &str = "127.0.0.1/32";

/// A cluster with Knoll, and the programs to use it.
#[derive(Debug)]
pub struct World {
    knoll: PathBuf,
    kubeconfig: PathBuf,
    /// The home directory of the programs.
    home: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Embedded {
        data: PathBuf,
        port: String,
        /// A process that stops the cluster when this process ends in any way: it waits for the end of its input.
        _keeper: Child,
    },
    Real,
}

impl World {
    /// The cluster shared by all tests of this program.
    ///
    /// # Panics
    /// If there is none, with a hint.
    pub fn get() -> &'static World {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let knoll = knoll();
            match std::env::var("KNOLL_E2E").as_deref() {
                Err(_) | Ok("" | "embedded") => Self::embedded(knoll),
                Ok("real") => Self::real(knoll),
                Ok(other) => panic!("KNOLL_E2E is `{other}`: write `embedded` or `real`"),
            }
        })
    }

    fn embedded(knoll: PathBuf) -> Self {
        // The directory is deleted by the keeper process.
        let home = tempfile::Builder::new().prefix("knoll-e2e-").tempdir().unwrap().keep();
        let data = home.join("data");
        let up = |port: &str| up(&knoll, &data, port);
        up("0");
        let kubeconfig = data.join("kubeconfig");
        let config: Value = serde_json::from_str(&std::fs::read_to_string(&kubeconfig).unwrap()).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
        let port = server.rsplit(':').next().unwrap_or_default().to_owned();
        let script = r#"cat > /dev/null; "$0" down --data-dir "$1/data"; rm -rf "$1""#;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", script]).arg(&knoll).arg(&home);
        let keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        World { knoll, kubeconfig, home, kind: Kind::Embedded { data, port, _keeper: keeper } }
    }

    fn real(knoll: PathBuf) -> Self {
        let kubeconfig = std::env::var_os("KNOLL_E2E_KUBECONFIG").map(PathBuf::from);
        let kubeconfig = kubeconfig.expect("KNOLL_E2E=real needs KNOLL_E2E_KUBECONFIG, the kubeconfig of a cluster");
        let home = std::env::temp_dir().join(format!("knoll-e2e-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let world = World { knoll, kubeconfig, home, kind: Kind::Real };
        let operator = world.kubectl(&[&OPERATOR[..], &["get", "deployment", "knoll-operator"]].concat());
        assert_eq!(
            operator.code,
            Some(0),
            "Knoll is not installed in the cluster, run `knoll install`: {}",
            operator.stderr
        );
        world
    }

    /// Whether this is a real cluster. Tests use it only for properties of the cluster, never for the behaviour of
    /// Knoll.
    pub fn is_real(&self) -> bool {
        matches!(self.kind, Kind::Real)
    }

    /// The username of the operator.
    pub fn operator_user(&self) -> &'static str {
        match self.kind {
            Kind::Embedded { .. } => "system:knoll",
            Kind::Real => "system:serviceaccount:knoll-system:knoll-operator",
        }
    }

    /// The address of this machine that the operator may fetch from.
    ///
    /// # Panics
    /// If the cluster has no node.
    pub fn open_address(&self) -> String {
        match self.kind {
            Kind::Embedded { .. } => GIT_SERVER.trim_end_matches("/32").to_owned(),
            Kind::Real => {
                let path = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
                self.kubectl(&["get", "nodes", "-o", path]).ok()
            }
        }
    }

    /// An administrator's client for the runtime of the calling test.
    ///
    /// # Panics
    /// If the kubeconfig is invalid.
    pub async fn client(&self) -> Client {
        let config = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// As [`World::client`], but it impersonates this user.
    ///
    /// # Panics
    /// If the kubeconfig is invalid.
    pub async fn client_as(&self, user: &str) -> Client {
        let config = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        config.auth_info.impersonate = Some(user.to_owned());
        Client::try_from(config).unwrap()
    }

    /// Creates a namespace, which is deleted with the value.
    pub async fn namespace(&'static self) -> Namespace {
        Namespace::new(self).await
    }

    #[track_caller]
    pub fn kubectl(&self, words: &[&str]) -> CommandResult {
        self.kubectl_with("", words)
    }

    /// Calls kubectl with `input` as its standard input.
    #[track_caller]
    pub fn kubectl_with(&self, input: &str, words: &[&str]) -> CommandResult {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).arg("--cache-dir").arg(self.home.join("kube-cache"));
        // A short-lived process needs no garbage collection.
        CommandResult::by(command.args(words).env("GOGC", "400"), input)
    }

    /// Calls knoll in a directory as the administrator.
    #[track_caller]
    pub fn knoll_in(&self, folder: &Path, words: &[&str]) -> CommandResult {
        let mut command = Command::new(&self.knoll);
        let own = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KNOLL_"));
        for (name, _) in own {
            command.env_remove(name);
        }
        command.args(words).current_dir(folder).env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home);
        CommandResult::by(&mut command, "")
    }

    #[track_caller]
    pub fn knoll(&self, words: &[&str]) -> CommandResult {
        self.knoll_in(&self.home, words)
    }

    /// The operator's metrics.
    ///
    /// # Panics
    /// If the endpoint does not respond.
    pub fn metrics(&self) -> String {
        match &self.kind {
            Kind::Embedded { .. } => {
                let port = ["-n", "kube-system", "get", "configmap", "knoll-hub", "-o", "jsonpath={.data.metricsPort}"];
                let port = self.kubectl(&port).ok().parse().unwrap();
                get(port, "/metrics")
            }
            Kind::Real => {
                let pods =
                    [&OPERATOR[..], &["get", "pods", "-l", "app.kubernetes.io/name=knoll", "-o", "name"]].concat();
                let pods = self.kubectl(&pods).ok();
                let path = |pod: &str| {
                    let name = pod.rsplit('/').next().unwrap_or_default();
                    format!("/api/v1/namespaces/knoll-system/pods/{name}:8080/proxy/metrics")
                };
                pods.lines().map(|pod| self.kubectl(&["get", "--raw", &path(pod)]).ok()).collect()
            }
        }
    }

    /// Kills the operator and the hub, and waits until they are restarted.
    ///
    /// # Panics
    /// If they cannot be killed, or do not come back.
    pub fn crash_the_operator(&self) {
        match &self.kind {
            Kind::Embedded { data, port, .. } => {
                let pid = std::fs::read_to_string(data.join("knoll.pid")).unwrap();
                let _ = CommandResult::by(Command::new("kill").args(["-9", pid.trim()]), "").ok();
                // The kernel releases the lock on the directory when the process has ended.
                up(&self.knoll, data, port);
            }
            Kind::Real => {
                let words = ["delete", "pods", "-l", "app.kubernetes.io/name=knoll", "--force", "--grace-period=0"];
                let _ = self.kubectl(&[&OPERATOR[..], &words].concat()).ok();
            }
        }
    }

    /// Cuts the runner in a pod off from the hub, until the value is dropped: on a real cluster by the pod's network, on the
    /// embedded one by a process of the hub that stands still.
    ///
    /// # Panics
    /// If the pod has no runner on this machine, or its network cannot be changed.
    pub fn cut_off(&self, pod: &Pod) -> Outage {
        match &self.kind {
            Kind::Embedded { data, .. } => {
                let pid = std::fs::read_to_string(data.join("knoll.pid")).unwrap().trim().parse().unwrap();
                Outage::frozen(vec![Process { pid, words: Vec::new() }])
            }
            Kind::Real => Outage::of_network(pod),
        }
    }

    /// The last lines of the operator's log.
    pub(crate) fn operator_log(&self) -> String {
        match &self.kind {
            Kind::Embedded { data, .. } => {
                let log = std::fs::read_to_string(data.join("knoll.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                lines[lines.len().saturating_sub(30)..].join("\n")
            }
            Kind::Real => {
                let words = ["logs", "-l", "app.kubernetes.io/name=knoll", "--tail", "30"];
                self.kubectl(&[&OPERATOR[..], &words].concat()).stdout
            }
        }
    }
}

/// Starts the embedded cluster. A killed process may hold the directory for a moment.
fn up(knoll: &Path, data: &Path, port: &str) {
    let deadline = std::time::Instant::now() + crate::TIMEOUT;
    loop {
        let mut command = Command::new(knoll);
        command.args(["up", "--detach", "--port", port, "--allow-source-cidr", GIT_SERVER, "--data-dir"]).arg(data);
        let said = CommandResult::by(&mut command, "").ok();
        if said.starts_with("Started") {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "`knoll up` does not start: {said}");
    }
}

/// The `knoll` binary under test.
fn knoll() -> PathBuf {
    if let Some(path) = std::env::var_os("KNOLL_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "KNOLL_BIN is `{}`, which does not exist", path.display());
        return path;
    }
    // Test programs are in `deps`, below the directory of cargo's other outputs.
    let here = std::env::current_exe().unwrap();
    let beside = here.ancestors().nth(2).unwrap().join("knoll");
    assert!(
        beside.is_file(),
        "`{}` not found: build it with `cargo build -p knoll`, or set KNOLL_BIN",
        beside.display()
    );
    beside
}

/// The body of an HTTP response on loopback.
fn get(port: u16, path: &str) -> String {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{head}");
    body.to_owned()
}
