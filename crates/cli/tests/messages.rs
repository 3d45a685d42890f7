//! What a user reads: the help, the tables, and every error that a user can cause.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::fmt::Write;
use std::path::Path;

use knoll::Home;
use knoll::snapshot::{check, narrow, settled};

/// Calls commands one after the other, and writes down what they say.
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
        let output = command.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let env: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let call = format!("$ {env}knoll {}", words.join(" "));
        let code = output.status.code().unwrap_or(-1);
        let end = if code == 0 { String::new() } else { format!("[{code}]\n") };
        let _ = writeln!(self.text, "{}\n{}{end}", settled(self.home, &call), settled(self.home, &said));
    }

    /// The help of a command, and of all commands below it.
    fn help(&mut self, command: &str) {
        let words = format!("{command} --help");
        self.call(words.trim());
        let text = self.home.ok(&words.split_whitespace().collect::<Vec<_>>());
        let list = text.split("Commands:\n").nth(1).unwrap_or_default();
        for line in list.lines().take_while(|line| !line.is_empty()) {
            // What goes on from the line above stands further to the right.
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
    session.check("errors-without-a-cluster");
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
    session.call("workspace delete net");
    session.call("workspace delete gone --yes");
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "false")]);
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", "echo tool: [ >")]);
    // Somebody else changes it in the meantime.
    let patch = r#"patch workspace net --type merge --patch '{"spec":{"stateHistory":7}}'"#;
    let kubeconfig = home.kubeconfig();
    let meanwhile = format!("kubectl --kubeconfig {} {patch} >/dev/null; sed -i s/10/20/", kubeconfig.display());
    session.call_with(&home.module(), &["workspace", "edit"], &[("EDITOR", &meanwhile)]);
    session.call("plan -n other");
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
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n");
    home.ok(&["atom", "apply", "web", "-f", "web", "--wait"]);
    session.call("atom cancel web");
    session.call("atom rollback web");
    session.call("atom status gone");
    session.call("atom history gone");
    session.call("atom cancel gone");
    session.call("atom rollback gone");
    session.call("state pull");
    session.call("state push gone.json");
    session.call("state push main.tf");
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
    session.call_with(&home.module(), &["sh", "-c", "true"], &[("TF_VAR_secret", "x")]);
    std::os::unix::fs::symlink("/etc/hosts", home.module().join("hosts")).unwrap();
    session.call("sh -c true");
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
    session.call("state rollback 2");
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
    home.write(".terraformignore", "[z-a]\n");
    session.call("plan");
    session.check_narrow("errors-of-runs");
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
    call(&mut session, "wrong", "stranger", &["runs", "plan", "doctor", "version"]);
    home.kubectl(&["create", "serviceaccount", "new"], None);
    let token = home.kubectl(&["create", "token", "new"], None);
    let all = ["runs", "workspace list", "workspace new other", "plan", "watch", "stack list", "doctor", "version"];
    call(&mut session, token.trim(), "new", &all);
    home.kubectl(&["create", "rolebinding", "new", "--clusterrole=knoll-viewer", "--serviceaccount=default:new"], None);
    call(&mut session, token.trim(), "viewer", &["plan", "state pull", "workspace delete net --yes", "doctor"]);
    // A cluster without Knoll.
    home.kubectl(&["delete", "crd", "--all", "--wait=false"], None);
    home.kubectl(&["wait", "--for=delete", "crd/runs.knoll.dev", "crd/workspaces.knoll.dev", "--timeout=60s"], None);
    for words in ["runs", "plan", "workspace list", "doctor", "version"] {
        session.call(words);
    }
    session.check("errors-of-access");
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
    session.call("state history");
    session.call("state diff 1 2");
    session.call("stack graph");
    session.call("stack list");
    session.call("stack list -o json");
    session.call("atom list");
    home.write("web/web.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n");
    session.call("atom diff web -f web");
    home.ok(&["atom", "apply", "web", "-f", "web", "--wait"]);
    session.call("atom status web");
    session.call("atom list");
    session.call("atom history web");
    session.call("atom rollback web 7");
    session.call("workspace delete net --yes");
    session.check_narrow("tables");
}
