//! The texts that a user reads: the help, the tables, and every error that a user can cause.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};

use knoll::Home;
use knoll::snapshot::{check, narrow, settled};
use knoll::terminal::Terminal;
use serde_json::{Value, json};

/// Calls commands in sequence, and records their output.
struct Session<'a> {
    home: &'a Home,
    text: String,
}

impl<'a> Session<'a> {
    fn new(home: &'a Home) -> Self {
        Session { home, text: String::new() }
    }

    fn call(&mut self, words: &str) {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.call_with(&self.home.module(), &words, &[]);
    }

    fn call_with(&mut self, folder: &Path, words: &[&str], env: &[(&str, &str)]) {
        let mut command = self.home.command_in(folder, words);
        command.envs(env.iter().copied());
        let env: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        self.told(&format!("{env}knoll {}", words.join(" ")), command.output().unwrap());
    }

    /// Calls a command, and runs a function during it.
    fn call_while(&mut self, words: &[&str], meanwhile: impl FnOnce()) {
        let mut command = self.home.command_in(&self.home.module(), words);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        meanwhile();
        self.told(&format!("knoll {}", words.join(" ")), child.wait_with_output().unwrap());
    }

    /// Calls a command whose standard input is a directory, which cannot be read.
    fn call_unreadable(&mut self, words: &str) {
        let split: Vec<&str> = words.split_whitespace().collect();
        let input = std::fs::File::open(self.home.module()).unwrap();
        let output = self.home.command_in(&self.home.module(), &split).stdin(input).output().unwrap();
        self.told(&format!("knoll {words} <."), output);
    }

    /// Calls a command in a terminal, and answers its prompt.
    fn answer(&mut self, words: &str, question: &str, answer: &str) {
        let split: Vec<&str> = words.split_whitespace().collect();
        let mut terminal = Terminal::run(self.home, &split, 60, 200);
        terminal.sees(question);
        terminal.sees("[y/N]");
        terminal.types(answer);
        let code = terminal.ends().code();
        self.write(&format!("knoll {words}"), &format!("{}\n", terminal.screen().trim()), code);
    }

    /// Records only the error, because the output before it depends on timing.
    fn fails(&mut self, words: &[&str], meanwhile: impl FnOnce(&mut ChildStdout)) {
        let mut command = self.home.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        meanwhile(&mut stdout);
        // A snapshot update needs no waiting.
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        let mut output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A line of the runner begins with `knoll: error: `.
        let own = said.find("\nerror: ").map_or(0, |at| at + 1);
        output.stderr = said[own..].as_bytes().to_vec();
        self.told(&format!("knoll {}", words.join(" ")), output);
    }

    fn told(&mut self, call: &str, output: Output) {
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        self.write(call, &said, output.status.code());
    }

    fn write(&mut self, call: &str, said: &str, code: Option<i32>) {
        let end = if code == Some(0) { String::new() } else { format!("[{}]\n", code.unwrap_or(-1)) };
        let (call, said) = (settled(self.home, call), settled(self.home, said));
        let _ = writeln!(self.text, "$ {call}\n{said}{end}");
    }

    /// The help of a command and of all its subcommands.
    fn help(&mut self, command: &str) {
        let words = format!("{command} --help");
        self.call(words.trim());
        let text = self.home.ok(&words.split_whitespace().collect::<Vec<_>>());
        let list = text.split("Commands:\n").nth(1).unwrap_or_default();
        for line in list.lines().take_while(|line| !line.is_empty()) {
            // Continuation lines are indented further.
            if let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
                self.help(format!("{command} {}", name.split(' ').next().unwrap_or_default()).trim());
            }
        }
    }

    #[track_caller]
    fn check(self, name: &str) {
        check(name, &self.text);
    }

    #[track_caller]
    fn check_narrow(self, name: &str) {
        check(name, &narrow(&self.text));
    }
}

#[test]
fn the_help() {
    let home = Home::empty();
    let mut session = Session::new(&home);
    session.help("");
    session.check("help");
}

#[test]
fn what_is_wrong_without_a_cluster_is_said() {
    let home = Home::empty();
    let mut session = Session::new(&home);
    session.call("plna");
    session.call("runs -o xml");
    session.call("workspace");
    session.call("plan --workspace");
    session.call("plan --detatch");
    session.call("state mv -dryrun a.b a.c");
    session.call("plan -- -destory");
    session.call("runs");
    session.call("plan");
    session.call("doctor");
    session.call("version");
    session.call("runs --kubeconfig nowhere.yaml");
    home.write("empty.yaml", "{}");
    session.call("runs --kubeconfig empty.yaml");
    home.write("broken.yaml", "clusters: [");
    session.call("runs --kubeconfig broken.yaml");
    let dead = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}]}"#;
    home.write("dead.yaml", dead);
    session.call("runs --kubeconfig dead.yaml");
    session.call("version --kubeconfig dead.yaml");
    session.call("runs --kubeconfig dead.yaml --context other");
    std::fs::create_dir_all(home.folder.path().join("data")).unwrap();
    std::fs::write(home.folder.path().join("data/kubeconfig"), dead).unwrap();
    session.call("runs");
    session.call_with(&home.module(), &["fmt"], &[("PATH", "/nowhere")]);
    session.call("status");
    session.call("completion powershell");
    session.call("logs --step nope x");
    session.call("down");
    session.call("install");
    session.call("-chdir=gone plan");
    session.call("man /proc/nowhere");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    session.call(&format!("up --detach --port {}", taken.local_addr().unwrap().port()));
    session.call("up --data-dir /proc/nowhere");
    session.call("up --data-dir=");
    session.call("operator");
    session.call("operator --kubeconfig nowhere.yaml");
    session.call_with(&home.module(), &["runs"], &[("KUBECONFIG", "broken.yaml")]);
    home.ok(&["man", "pages"]);
    std::fs::remove_file(home.module().join("pages/knoll.1")).unwrap();
    std::fs::create_dir(home.module().join("pages/knoll.1")).unwrap();
    session.call("man pages");
    let bin = home.folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("terraform"), "no program").unwrap();
    session.call_with(&home.module(), &["fmt"], &[("PATH", bin.to_str().unwrap())]);
    let unread = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    home.write("deaf.yaml", &dead.replace("127.0.0.1:1", &unread.local_addr().unwrap().to_string()));
    session.call("version --kubeconfig deaf.yaml");
    let gone = home.module().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let words = ["plan", "status --data-dir data"];
    let script = "rmdir ../gone && for words in \"$@\"; do $KNOLL $words; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).args(words).env_clear().envs(home.environment()).current_dir(&gone);
    session.told(
        &words.map(|words| format!("knoll {words}")).join("; "),
        shell.env("KNOLL", env!("CARGO_BIN_EXE_knoll")).output().unwrap(),
    );
    session.check("errors-without-a-cluster");
}

#[test]
fn what_is_in_the_way_is_said() {
    let home = Home::empty();
    let mut session = Session::new(&home);
    session.call("down --data-dir main.tf");
    session.call("status --data-dir main.tf");
    session.call("up --data-dir main.tf");
    home.write("half/cache", "");
    session.call("up --data-dir half --port 0");
    let data = home.folder.path().join("data");
    std::fs::create_dir_all(data.join("knoll.log")).unwrap();
    session.call("up --detach");
    session.answer("runs", "No cluster is configured.", "y\r");
    std::fs::create_dir(data.join("knoll.pid")).unwrap();
    session.call("up");
    std::fs::remove_dir(data.join("knoll.pid")).unwrap();
    // A process holds the lock without a pid, with an unknown pid, or does not stop.
    let held = std::fs::File::create(data.join("knoll.pid")).unwrap();
    held.lock().unwrap();
    session.call("up");
    session.call("down");
    std::fs::write(data.join("knoll.pid"), i32::MAX.to_string()).unwrap();
    session.call("down");
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    std::fs::write(data.join("knoll.pid"), process.id().to_string()).unwrap();
    session.call("down --timeout 1s");
    process.wait().unwrap();

    session.call("runner");
    session.call("runner install /proc/nowhere");
    session.call_with(&home.module(), &["runs"], &[("KUBERNETES_SERVICE_HOST", "127.0.0.1")]);
    let old = old_cluster();
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{old}")}}], "users": [{"name": "u", "user": {}}]});
    home.write("old.yaml", &config.to_string());
    session.call("install --kubeconfig old.yaml");
    session.call("uninstall --kubeconfig old.yaml");
    session.call("operator --kubeconfig old.yaml");
    session.call("doctor --kubeconfig old.yaml");
    session.check("errors-in-the-way");
}

/// A server that claims to be an old Kubernetes, and has no objects.
fn old_cluster() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let names = ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    let mut version: Value = names.map(|name| (name, "v1.29.4")).into_iter().collect();
    version["major"] = "1".into();
    version["minor"] = "29".into();
    let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []});
    let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not found",
        "reason": "NotFound", "code": 404});
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let path = String::from_utf8_lossy(&request[..length]);
            let (status, body) = match path.split(' ').nth(1) {
                Some("/version") => ("200 OK", &version),
                Some("/apis") => ("200 OK", &groups),
                _ => ("404 Not Found", &missing),
            };
            let body = body.to_string();
            let head = format!("content-type: application/json\r\nconnection: close\r\ncontent-length: {}", body.len());
            write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}").unwrap();
            // Unread request bytes must not cut off the response.
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    address
}

#[test]
fn what_is_wrong_with_a_cluster_is_said() {
    let home = Home::with_workspace();
    let mut session = Session::new(&home);
    session.call("workspace new net");
    session.call("workspace new Net_1");
    session.call("workspace new old --tool-version latest");
    session.call("workspace new old --tool pulumi");
    session.call("workspace select gone");
    session.call("workspace show gone");
    session.call("policy explain gone");
    session.call("workspace delete net");
    session.call("workspace delete gone --yes");
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "false")]);
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "echo tool: [ >")]);
    // A concurrent change by another user.
    let patch = r#"patch workspace net --type merge --patch '{"spec":{"stateHistory":7}}'"#;
    let kubeconfig = home.kubeconfig();
    let meanwhile = format!("kubectl --kubeconfig {} {patch} >/dev/null; sed -i s/10/20/", kubeconfig.display());
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", &meanwhile)]);
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "no-such-editor")]);
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "rm")]);
    session.call_with(&home.module(), &["workspace", "edit"], &[("PATH", "/nowhere"), ("EDITOR", "vi")]);
    // An editor without a terminal waited for ever.
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", ""), ("VISUAL", ""), ("KNOLL_EDITOR", "")]);
    session.call("uninstall");
    session.call("plan -n other");
    session.call("workspace new x -n other");
    session.call("plan -w gone");
    session.call("plan -out=plan.bin");
    session.call("plan -chdir=..");
    session.call("apply plan.bin");
    session.call("plan -var-file=gone.tfvars");
    session.call("apply");
    session.call("apply --approval manual -auto-approve");
    session.call("destroy --detach");
    session.call("run show gone");
    session.call("attach gone");
    session.call("cancel gone");
    session.call("approve gone");
    session.call("discard gone");
    session.call("logs gone");
    session.call("stack show gone");
    session.call("stack plan gone");
    session.call("stack apply gone");
    session.call("stack suspend gone");
    session.call("stack resume gone");
    session.call("atom apply web");
    session.call("atom apply web -f gone");
    home.write("broken/web.yaml", "kind: [");
    session.call("atom apply web -f broken");
    home.write("nameless/web.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    session.call("atom apply web -f nameless");
    session.call("atom apply Web_1 -f nameless");
    session.call("atom diff web -f nameless");
    std::fs::create_dir(home.module().join("bare")).unwrap();
    session.call("atom apply web -f bare");
    home.write(
        "large/web.yaml",
        &format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web}}\ndata: {{a: {}}}\n", "x".repeat(2 << 20)),
    );
    session.call("atom apply web -f large");
    home.write("-.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n");
    session.call("atom apply -f ./-.yaml");
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n");
    home.grant_to_atoms();
    home.ok(&["atom", "apply", "web", "-f", "web", "--wait"]);
    session.call_unreadable("atom apply web -f -");
    for (name, input) in [
        ("fed", json!({"name": "word", "secretKeyRef": {"name": "gone", "key": "word"}})),
        ("late", json!({"name": "word", "stackRef": {"name": "gone", "output": "word"}})),
    ] {
        home.create(&json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Atom", "metadata": {"name": name},
            "spec": {"version": "none", "inputs": [input]}}));
    }
    session.call("atom diff late -f web");
    session.call("atom diff fed -f web");
    session.call("atom cancel web");
    session.call("atom rollback web");
    session.call("atom status gone");
    session.call("atom history gone");
    session.call("atom cancel gone");
    session.call("atom rollback gone");
    session.call("state pull");
    session.call("state push gone.json");
    session.call("state push main.tf");
    session.call_unreadable("state push -");
    session.call_unreadable("console");
    session.call("state rollback 7");
    session.call("state diff 1 2");
    session.call("install");
    home.ok(&["plan"]);
    let plan = home.runs().pop().unwrap();
    session.call(&format!("approve {plan}"));
    session.call(&format!("cancel {plan}"));
    session.call(&format!("logs --step apply {plan}"));
    let elsewhere = home.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    session.call_with(&elsewhere, &["plan"], &[]);
    session.call_with(&elsewhere, &["plan", "-w", "net"], &[]);
    std::fs::write(elsewhere.join(".terraform"), "").unwrap();
    session.call_with(&elsewhere, &["workspace", "select", "net"], &[]);
    session.call_with(Path::new("/proc"), &["workspace", "select", "net"], &[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let own = home.kubeconfig().display().to_string();
    let operator = ["operator", "--kubeconfig", &own, "--hub-listen", "127.0.0.1:0", "--metrics-listen", &taken];
    session.call_with(&home.module(), &operator, &[]);
    session.call_with(&home.module(), &["sh", "-c", "true"], &[("TF_VAR_secret", "x")]);
    std::os::unix::fs::symlink("/etc/hosts", home.module().join("hosts")).unwrap();
    session.call("sh -c true");
    // More than fits, and incompressible.
    let mut noise = std::fs::File::open("/dev/urandom").unwrap().take(51 << 20);
    std::io::copy(&mut noise, &mut std::fs::File::create(home.module().join("image.bin")).unwrap()).unwrap();
    session.call("plan");
    std::fs::remove_file(home.module().join("image.bin")).unwrap();
    home.write(".terraform/knoll.json", "{");
    session.call("plan");
    session.check("errors-with-a-cluster");
}

#[test]
fn what_is_wrong_with_a_run_is_said() {
    let home = Home::with_workspace();
    let mut session = Session::new(&home);
    home.ok(&["apply", "-auto-approve"]);
    session.call("state pull --serial 99");
    session.call("state rollback 99 --yes");
    let first = serial(&home);
    session.call(&format!("state rollback {first}"));
    session.call("state diff 98");
    session.call("apply --approval manual --detach -var word=two");
    let run = home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let run = run["metadata"]["name"].as_str().unwrap();
    session.call(&format!("approve {run}"));
    session.call(&format!("discard {run} --yes --comment no"));
    home.until_run("it is discarded", |run| run["status"]["phase"] == "Discarded");
    session.call(&format!("approve {run} --yes"));
    session.call(&format!("attach {run}"));
    session.call(&format!("run show {run}"));
    home.settings(&serde_json::json!({"tool": "tofu"}));
    session.call("plan");
    home.settings(&serde_json::json!({"tool": "terraform", "version": "1.0.0"}));
    session.call("plan");
    home.settings(&serde_json::json!({"tool": "terraform", "version": null}));
    home.ok(&["apply", "-auto-approve", "-var", "word=three"]);
    // The state was edited by hand.
    let state = home.kubectl(&["get", "secret", "-l", "knoll.dev/content=state", "-o", "name"], None);
    for name in state.lines() {
        home.kubectl(&["patch", name, "--type=merge", "--patch", r#"{"stringData": {"content": "damaged"}}"#], None);
    }
    session.call("state pull");
    session.call(&format!("state diff {first}"));
    session.call("plan");
    home.ok(&["state", "rollback", &first, "--yes"]);
    home.ok(&["plan", "-detailed-exitcode"]);
    home.write(".terraformignore", "[z-a]\n");
    session.call("plan");
    session.check_narrow("errors-of-runs");
}

#[test]
fn what_happens_meanwhile_is_said() {
    let home = Home::with_workspace();
    let mut session = Session::new(&home);
    home.ok(&["apply", "-auto-approve"]);
    home.ok(&["apply", "--approval", "manual", "--detach", "-var", "word=two"]);
    let run = home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let run = run["metadata"]["name"].as_str().unwrap();
    session.answer(&format!("approve {run}"), "Approve this plan", "n\r");
    home.ok(&["discard", run, "--yes"]);
    session.answer(&format!("state rollback {}", serial(&home)), "Roll back the state", "n\r");
    session.answer("workspace delete net", "Delete workspace `net`", "n\r");

    let begun = |run: &Value| {
        run["status"]["steps"].as_array().is_some_and(|steps| steps.iter().any(|step| step["name"] == "command"))
    };
    let name = |run: Value| run["metadata"]["name"].as_str().unwrap().to_owned();
    let delete = || {
        let run = name(home.until_run("it runs", begun));
        home.kubectl(&["delete", "run", &run], None);
    };
    session.call_while(&["sh", "-c", "sleep 100"], delete);
    // A forced deletion while the run is active.
    let force = || {
        let run = name(home.until_run("it runs", begun));
        home.kubectl(&["patch", "run", &run, "--type=merge", "--patch", r#"{"metadata": {"finalizers": null}}"#], None);
        home.kubectl(&["delete", "run", &run], None);
    };
    session.fails(&["sh", "-c", "sleep 100"], |_| force());
    home.ok(&["sh", "--detach", "-c", "echo here; sleep 100"]);
    let run = name(home.until_run("it runs", begun));
    session.call(&format!("approve {run}"));
    session.fails(&["logs", "-f", &run], |stdout| {
        stdout.read_exact(&mut [0; 4]).unwrap();
        force();
    });
    let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "waits"},
        "spec": {"source": {"inline": {"main.tf": ""}}, "dependsOn": [{"name": "gone"}]}});
    home.create(&stack);
    session.call_while(&["stack", "apply", "waits", "--follow"], || {
        let asked = r"--for=jsonpath={.metadata.annotations.knoll\.dev/reconcile}";
        home.kubectl(&["wait", asked, "stack/waits", "--timeout=60s"], None);
        home.kubectl(&["delete", "stack", "waits"], None);
    });

    // A pod that waits for a Secret never becomes ready.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"}, "spec": {"containers": [
        {"name": "main", "image": "none", "command": ["true"], "envFrom": [{"secretRef": {"name": "none"}}]}]}});
    home.write("slow/pod.json", &pod.to_string());
    home.grant_to_atoms();
    let words = ["atom", "apply", "slow", "-f", "slow", "--wait"];
    session.fails(&[&words[..], &["--timeout", "1s"]].concat(), |_| {});
    session.fails(&[&words[..], &["--deadline", "7m"]].concat(), |_| {
        home.kubectl(&["wait", "--for=jsonpath={.spec.deadline}=7m", "atom/slow", "--timeout=60s"], None);
        home.kubectl(&["delete", "atom", "slow"], None);
    });
    session.check_narrow("errors-meanwhile");
}

#[test]
fn who_may_not_is_told_so() {
    let home = Home::with_workspace();
    let mut session = Session::new(&home);
    let config = std::fs::read_to_string(home.kubeconfig()).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let mut call = |session: &mut Session<'_>, token: &str, name: &str, calls: &[&str]| {
        config["users"][0]["user"] = serde_json::json!({"token": token});
        home.write(&format!("{name}.yaml"), &config.to_string());
        for words in calls {
            session.call(&format!("{words} --kubeconfig {name}.yaml"));
        }
    };
    call(&mut session, "wrong", "stranger", &["runs", "plan", "doctor", "version", "operator"]);
    home.kubectl(&["create", "serviceaccount", "new"], None);
    let token = home.kubectl(&["create", "token", "new"], None);
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n");
    home.write("state.json", r#"{"version": 4, "serial": 1, "lineage": "l"}"#);
    #[rustfmt::skip]
    let all = [
        "runs", "run show r", "attach r", "logs r", "cancel r", "approve r", "discard r", "plan", "watch",
        "workspace list", "workspace new other", "workspace select net", "workspace show net", "workspace edit net", "workspace delete net --yes",
        "state pull", "state push state.json", "state history", "state rollback 1 --yes", "state diff 1 2",
        "stack list", "stack show s", "stack plan s", "stack apply s", "stack suspend s", "stack resume s", "stack graph",
        "atom list", "atom status a", "atom history a", "atom diff web -f web", "atom apply web -f web", "atom cancel a", "atom rollback a",
        "policy list", "policy explain net", "operator", "uninstall", "doctor", "version",
    ];
    call(&mut session, token.trim(), "new", &all);
    home.kubectl(&["create", "rolebinding", "new", "--clusterrole=knoll-viewer", "--serviceaccount=default:new"], None);
    // The objects to change.
    home.create(&json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "s"},
        "spec": {"suspend": true, "source": {"inline": {"main.tf": ""}}}}));
    home.grant_to_atoms();
    home.ok(&["atom", "apply", "web", "-f", "web", "--wait"]);
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n");
    let run = home.ok(&["apply", "--approval", "manual", "--detach"]);
    let run = run.trim();
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let [approve, discard, cancel] = ["approve", "discard", "cancel"].map(|verb| format!("{verb} {run}"));
    let (approve, discard) = (format!("{approve} --yes"), format!("{discard} --yes"));
    #[rustfmt::skip]
    let changes = [
        "plan", "state pull", "state push state.json", "workspace delete net --yes", &approve, &discard, &cancel,
        "stack plan s", "stack apply s", "stack suspend s", "stack resume s",
        "atom apply web -f web", "atom rollback web", "atom cancel web", "policy explain planned", "doctor",
    ];
    call(&mut session, token.trim(), "viewer", &changes);
    session.call_with(
        &home.module(),
        &["workspace", "edit", "net", "--kubeconfig", "viewer.yaml"],
        &[("EDITOR", "sed -i s/10/20/")],
    );
    // A user with an incomplete custom role.
    home.kubectl(&["create", "serviceaccount", "half"], None);
    let rules = json!([
        {"apiGroups": ["knoll.dev"], "resources": ["runs", "atoms", "workspaces"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["knoll.dev"], "resources": ["runs", "atomversions"], "verbs": ["create"]},
    ]);
    home.create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "half"}, "rules": rules}));
    home.kubectl(&["create", "rolebinding", "half", "--role=half", "--serviceaccount=default:half"], None);
    let token = home.kubectl(&["create", "token", "half"], None);
    let logs = format!("logs {run}");
    #[rustfmt::skip]
    let calls = [&logs, "state push state.json", "atom apply web -f web", "atom apply new -f web", "atom history web", "atom rollback web", "atom rollback web web-1"];
    call(&mut session, token.trim(), "half", &calls);
    // A cluster without Knoll. Objects with finalizers are deleted first.
    home.kubectl(&["delete", "stacks,atoms,runs", "--all", "--timeout=60s"], None);
    home.kubectl(&["delete", "crd", "--all", "--wait=false"], None);
    home.kubectl(&["wait", "--for=delete", "crd", "--all", "--timeout=60s"], None);
    for words in ["runs", "plan", "workspace list", "doctor", "version"] {
        session.call(words);
    }
    session.call_with(&home.module(), &["operator", "--kubeconfig", home.kubeconfig().to_str().unwrap()], &[]);
    session.check("errors-of-access");
}

/// The serial of the state, which each tool counts in its own way.
fn serial(home: &Home) -> String {
    let state = home.kubectl(&["get", "workspace", "net", "-o", "jsonpath={.status.state.serial}"], None);
    assert!(!state.is_empty(), "the Workspace has no state");
    state
}

#[test]
fn the_tables() {
    let home = Home::with_workspace();
    let mut session = Session::new(&home);
    session.call("runs");
    session.call("workspace list");
    home.ok(&["apply", "-auto-approve"]);
    session.call("runs");
    session.call("runs -o wide");
    session.call("runs -o name");
    session.call("runs -A -w other");
    let run = home.runs().pop().unwrap();
    session.call(&format!("run show {run}"));
    session.call("workspace list -o wide -A");
    session.call("workspace show");
    session.call("workspace show net -o yaml");
    session.call("version");
    session.call("doctor");
    session.call("doctor -o yaml");
    session.call("doctor -n nowhere");
    session.call("state history");
    session.call("state diff 98 99");
    session.call("stack graph");
    session.call("stack list");
    session.call("stack list -o json");
    session.call("atom list");
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n");
    session.call("atom diff web -f web");
    home.grant_to_atoms();
    home.ok(&["atom", "apply", "web", "-f", "web", "--wait"]);
    session.call("atom status web");
    session.call("atom list");
    session.call("atom history web");
    session.call("atom rollback web 7");
    session.call("workspace delete net --yes");
    session.check_narrow("tables");
}
