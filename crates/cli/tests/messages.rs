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
    let commands = "init plan apply destroy refresh import state taint untaint output show console validate providers \
                    graph force-unlock test sh fmt workspace runs run attach logs cancel approve discard watch up down \
                    status install uninstall doctor version completion";
    session.call("--help");
    for command in commands.split_whitespace() {
        session.call(&format!("{command} --help"));
    }
    for command in ["new", "list", "select", "show", "delete", "edit"] {
        session.call(&format!("workspace {command} --help"));
    }
    for command in ["list", "mv", "pull", "push", "history", "rollback", "diff"] {
        session.call(&format!("state {command} --help"));
    }
    session.call("run show --help");
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
    session.call("plan -n other");
    session.call("plan -w gone");
    session.call("plan -out=plan.bin");
    session.call("plan -chdir=..");
    session.call("plan -var-file=gone.tfvars");
    session.call("apply");
    session.call("apply --approval manual -auto-approve");
    session.call("destroy --detach");
    session.call("run show gone");
    session.call("attach gone");
    session.call("cancel gone");
    session.call("approve gone");
    home.ok(&["plan"]);
    let plan = home.runs().pop().unwrap();
    session.call(&format!("approve {plan}"));
    session.call(&format!("cancel {plan}"));
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
    session.call("workspace delete net --yes");
    session.check_narrow("tables");
}
