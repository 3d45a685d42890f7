//! Separation of roles with `knoll`: a user cannot approve, an approver cannot run, and a viewer can do neither.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::path::PathBuf;
use std::process::Output;

use knoll::Home;
use knoll::snapshot::{check, settled};
use knoll::terminal::Terminal;
use knoll_api::Workspace;
use serde_json::{Value, json};

/// A person with one role in the namespace of the home, and their own kubeconfig.
struct Person<'a> {
    home: &'a Home,
    user: String,
    kubeconfig: PathBuf,
}

impl<'a> Person<'a> {
    fn with_role(home: &'a Home, name: &str, role: Option<&str>) -> Self {
        let namespace = home.namespace();
        home.kubectl(&["create", "serviceaccount", name, "--namespace", namespace], None);
        let user = format!("system:serviceaccount:{namespace}:{name}");
        if let Some(role) = role {
            let account = format!("{namespace}:{name}");
            let binding = ["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account];
            home.kubectl(&[&binding[..], &["--namespace", namespace]].concat(), None);
        }
        let token = home.kubectl(&["create", "token", name, "--namespace", namespace], None);
        let config = home.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"], None);
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        config["contexts"][0]["context"]["namespace"] = namespace.into();
        let kubeconfig = home.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Person { home, user, kubeconfig }
    }

    fn words<'w>(&'w self, words: &[&'w str]) -> Vec<&'w str> {
        [&["--kubeconfig", self.kubeconfig.to_str().unwrap()], words].concat()
    }

    fn call(&self, words: &[&str]) -> Output {
        self.home.call(&self.words(words))
    }

    #[track_caller]
    fn can(&self, words: &[&str]) -> String {
        self.home.ok(&self.words(words))
    }

    /// The message for a person without the permission.
    #[track_caller]
    fn cannot(&self, words: &[&str], what: &str) {
        let output = self.call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{}: knoll {words:?} must be refused", self.user);
        assert!(said.contains(what) && said.contains("for the role"), "{}: knoll {words:?}: {said}", self.user);
    }
}

#[test]
fn each_role_does_its_part_and_no_other() {
    let home = Home::with_workspace();
    let uma = Person::with_role(&home, "uma", Some("knoll-user"));
    let ann = Person::with_role(&home, "ann", Some("knoll-approver"));
    let vic = Person::with_role(&home, "vic", Some("knoll-viewer"));
    let edy = Person::with_role(&home, "edy", Some("knoll-editor"));
    let nobody = Person::with_role(&home, "nobody", None);

    // A user can use the terminal and read the outputs.
    let mut terminal = Terminal::run(&home, &uma.words(&["apply", "-auto-approve"]), 24, 100);
    terminal.sees("Apply complete!");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(uma.can(&["output", "-raw", "word"]), "hello");
    for who in [&ann, &vic] {
        who.cannot(&["plan"], "cannot upload the files of this directory: ");
        who.cannot(&["output"], "cannot read the outputs of workspace `net`: ");
    }
    for who in [&uma, &ann, &vic] {
        who.cannot(&["workspace", "new", "other"], "cannot create workspace `other`: ");
        let said = who.call(&["workspace", "new", "other"]).stderr;
        assert!(String::from_utf8_lossy(&said).contains("for the role `knoll-editor`"));
    }
    edy.can(&["workspace", "new", "other"]);
    // The new workspace is selected in the directory.
    edy.can(&["workspace", "select", "net"]);

    let run = uma.can(&["apply", "-auto-approve=false", "--approval", "manual", "-var", "word=two", "--detach"]);
    let run = run.trim();
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    for who in [&uma, &edy, &vic] {
        who.cannot(&["approve", run, "--yes"], &format!("cannot approve run `{run}`: "));
        who.cannot(&["discard", run, "--yes"], &format!("cannot discard run `{run}`: "));
    }
    for who in [&ann, &vic] {
        who.cannot(&["cancel", run], &format!("cannot cancel run `{run}`: "));
    }
    let shown = ann.can(&["approve", run, "--yes", "--follow"]);
    assert!(shown.contains("~ terraform_data.a (change)") && shown.contains("Apply complete!"), "{shown}");
    let newest = home.newest_run();
    assert_eq!(newest["spec"]["requestedBy"], uma.user.as_str());
    let status = &newest["status"];
    assert_eq!((&status["phase"], &status["decision"]["by"]), (&"Succeeded".into(), &ann.user.as_str().into()));

    // All three roles can read; a person without a role cannot.
    for who in [&uma, &ann, &vic] {
        assert!(who.can(&["runs"]).contains(run));
        let shown = who.can(&["run", "show", run]);
        assert!(shown.contains(&format!("Requester:  {}", uma.user)), "{shown}");
        assert!(shown.contains(&format!("Decision:   Approve by {}", ann.user)), "{shown}");
        let wide = who.can(&["runs", "-o", "wide"]);
        assert!(wide.contains(&uma.user) && wide.contains(&ann.user), "{wide}");
        assert!(who.can(&["logs", run]).contains("Apply complete!"));
        assert!(who.can(&["workspace", "list", "-o", "name"]).contains("workspace.knoll.dev/net\n"));
    }
    nobody.cannot(&["runs"], "cannot list runs: ");
    nobody.cannot(&["plan"], "cannot read workspace `net`: ");
    // States are Secrets, which viewers and approvers cannot read.
    uma.can(&["state", "pull"]);
    ann.cannot(&["state", "pull"], "cannot read the state of workspace `net`, which is stored in Secrets: ");
    vic.cannot(&["state", "pull"], "cannot read the state of workspace `net`, which is stored in Secrets: ");
}

/// A Policy for the namespace of a home, which is deleted with this value.
struct PolicyFor<'a> {
    home: &'a Home,
    name: String,
}

impl<'a> PolicyFor<'a> {
    fn create(home: &'a Home, name: &str, mut spec: Value) -> Self {
        let name = format!("{}-{name}", home.namespace());
        spec["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": home.namespace()}});
        home.create(&json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": name}, "spec": spec,
        }));
        let shown = || serde_json::from_str::<Value>(&home.ok(&["policy", "explain", "-o", "json"])).unwrap();
        home.until::<Workspace>("the Policy holds", shown, |shown| {
            shown.to_string().contains(&format!("Policy/{name}"))
        });
        Self { home, name }
    }
}

impl Drop for PolicyFor<'_> {
    fn drop(&mut self) {
        self.home.kubectl(&["delete", "policy.knoll.dev", &self.name, "--ignore-not-found"], None);
    }
}

#[test]
fn an_approval_that_does_not_count_is_not_said_to_be_one() {
    let home = Home::with_workspace();
    let uma = Person::with_role(&home, "uma", Some("knoll-user"));
    let account = format!("{}:uma", home.namespace());
    let also = ["create", "rolebinding", "uma-too", "--clusterrole", "knoll-approver", "--serviceaccount", &account];
    home.kubectl(&[&also[..], &["--namespace", home.namespace()]].concat(), None);
    let [ann, bob] = ["ann", "bob"].map(|name| Person::with_role(&home, name, Some("knoll-approver")));
    let review = json!({"review": {"floor": "Manual", "fourEyes": true, "approvers": 2}});
    let policy = PolicyFor::create(&home, "eyes", review);

    let run = uma.can(&["apply", "-auto-approve", "--detach"]);
    let run = run.trim();
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let decide = |who: &Person<'_>| {
        let output = who.call(&["approve", run, "--yes"]);
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (succeeded, said) = decide(&uma);
    assert!(!succeeded && !said.contains("Approved"), "{said}");
    assert!(said.contains(&format!("run `{run}` was not approved by Approval `{run}-")), "{said}");
    assert!(said.contains(&format!("Policy `{}` (spec.review.fourEyes)", policy.name)), "{said}");
    let (succeeded, said) = decide(&ann);
    assert!(succeeded && said.contains("has 1 of 2 Approvals"), "{said}");
    // The same user counts once: of two Approvals of one second, the one whose name comes first.
    let (succeeded, said) = decide(&ann);
    assert!(
        if succeeded { said.contains("has 1 of 2 Approvals") } else { said.contains("has already approved") },
        "{said}"
    );
    // A run that waits says why it is reviewed, and how far the review is.
    let shown = uma.can(&["run", "show", run]);
    assert!(shown.contains(&format!("Policy `{}` demands a review (spec.review.floor)", policy.name)), "{shown}");
    assert!(shown.contains(&format!("It has 1 of 2 Approvals (by {})", ann.user)), "{shown}");
    let (succeeded, said) = decide(&bob);
    assert!(succeeded && said.contains("Approved"), "{said}");
    home.until_run("it is applied", |run| run["status"]["phase"] == "Succeeded");
}

#[test]
fn the_doctor_knows_what_each_role_may_do() {
    let home = Home::with_workspace();
    let rows = [
        ("uma", "knoll-user", [true, false, false, true]),
        ("edy", "knoll-editor", [true, true, false, true]),
        ("ann", "knoll-approver", [false, false, true, false]),
        ("vic", "knoll-viewer", [false, false, false, false]),
    ];
    for (name, role, expect) in rows {
        let said = Person::with_role(&home, name, Some(role)).can(&["doctor"]);
        let may: Vec<bool> = ["start runs", "create workspaces", "approve plans", "read states"]
            .iter()
            .map(|what| said.contains(&format!("you can {what}")))
            .collect();
        assert_eq!(may, expect, "{role}: {said}");
    }
}

/// The flags that leave the operator as it is: other tests of this cluster need them.
fn flags_of_the_installation(home: &Home) -> Vec<String> {
    let deployment = ["get", "deployment", "knoll-operator", "--namespace", "knoll-system", "--output", "json"];
    let deployment: Value = serde_json::from_str(&home.kubectl(&deployment, None)).unwrap();
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| env.iter().find(|entry| entry["name"] == name).and_then(|entry| entry["value"].as_str());
    let ranges = value("KNOLL_ALLOW_SOURCE_CIDR").map(|ranges| format!("--allow-source-cidr={ranges}"));
    let plain = value("KNOLL_PLAIN_HTTP_CREDENTIALS").map(|_| "--plain-http-credentials".to_owned());
    let volumes = value("KNOLL_IMAGE_VOLUMES").map(|_| "--image-volumes".to_owned());
    ranges.into_iter().chain(plain).chain(volumes).collect()
}

/// The embedded cluster already includes Knoll, so only a real cluster gives this message.
#[test]
fn who_may_not_install_is_told_so_and_so_is_who_installs_twice() {
    let home = Home::with_workspace();
    if !home.is_guest() {
        let said = home.fails(&["install"]);
        assert!(said.contains("already includes Knoll"), "{said}");
        return;
    }
    let uma = Person::with_role(&home, "uma", Some("knoll-user"));
    let mut text = String::new();
    let calls: [&[&str]; 3] = [&["install"], &["uninstall"], &["install", "--namespace", "elsewhere"]];
    for (words, output) in calls.iter().zip([uma.call(calls[0]), uma.call(calls[1]), home.call(calls[2])]) {
        let said = [output.stdout, output.stderr].concat();
        let code = output.status.code().unwrap();
        text +=
            &format!("$ knoll {}\n{}[{code}]\n\n", words.join(" "), settled(&home, &String::from_utf8_lossy(&said)));
    }
    // A node without image volumes is reported before anything changes. No pod is scheduled on this one.
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "knoll-old"}, "spec": {"unschedulable": true},
        "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://1.6.20"}},
    });
    home.kubectl(&["create", "-f", "-"], Some(&node));
    let output = home.call(&["install", "--image-volumes"]);
    home.kubectl(&["delete", "node", "knoll-old"], None);
    let said = settled(&home, &String::from_utf8_lossy(&output.stderr));
    text += &format!("$ knoll install --image-volumes\n{said}[{}]\n\n", output.status.code().unwrap());
    // With a zero timeout: the first command applies the manifests that are there, and the second does not even read.
    let installed = flags_of_the_installation(&home);
    let flags: Vec<&str> = installed.iter().map(String::as_str).collect();
    for (words, flags) in
        [(vec!["install", "--timeout", "0s"], flags), (vec!["uninstall", "--keep-objects", "--timeout", "0s"], vec![])]
    {
        let said = settled(&home, &home.fails(&[&words[..], &flags].concat()));
        let changed = said.lines().any(|line| line.trim_start().starts_with("changed "));
        assert!(!changed, "other tests need the operator as it is: {said}");
        let error = &said[said.find("error: ").unwrap_or_default()..];
        text += &format!("$ knoll {}\n{error}\n", words.join(" "));
    }
    check("errors-of-install", &text);
}
