//! The upload of a module's files, and the download of the lock file.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::path::Path;

use knoll::Home;
use knoll::proxy::Proxy;
use knoll::terminal::Terminal;

#[test]
fn local_modules_beside_the_folder_and_variable_files_travel_along() {
    let home = Home::with_workspace();
    home.write("../shared/word/main.tf", "variable \"word\" {}\noutput \"word\" { value = \"${var.word}!\" }\n");
    home.write("main.tf", "variable \"word\" {}\nmodule \"word\" {\n  source = \"../shared/word\"\n  word = var.word\n}\noutput \"word\" { value = module.word.word }\n");
    home.write("../env/prod.tfvars", "word = \"prod\"\n");
    home.write("terraform.tfstate", "not a state at all");
    home.ok(&["apply", "-auto-approve", "-var-file=../env/prod.tfvars"]);
    assert_eq!(home.ok(&["output", "-raw", "word"]), "prod!");
    // The plan of one pod is applied in another, because the path of the state is the same.
    home.write("../env/prod.tfvars", "word = \"changed\"\n");
    home.ok(&["apply", "--approval", "manual", "-var-file=../env/prod.tfvars", "--detach"]);
    let run = home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let name = run["metadata"]["name"].as_str().unwrap();
    let shown = home.ok(&["approve", name, "--yes", "--follow"]);
    assert!(shown.contains("Approved run"), "{shown}");
    assert_eq!(home.ok(&["output", "-raw", "word"]), "changed!");
}

#[test]
fn the_same_files_are_uploaded_once() {
    let home = Home::with_workspace();
    let proxy = Proxy::to(&home);
    let sent = |words: &[&str]| {
        let before = proxy.sent();
        home.ok(&[words, &["--kubeconfig", proxy.kubeconfig.to_str().unwrap()]].concat());
        proxy.sent() - before
    };
    let digest = || home.newest_run()["spec"]["source"]["bundle"]["digest"].clone();
    std::fs::write(home.module().join("noise.bin"), noise(3 << 20)).unwrap();
    home.write(".terraformignore", "*.md\n");
    let (first, digest_of_first) = (sent(&["validate"]), digest());
    assert!(first > 3 << 20, "{first} bytes were sent");
    // Ignored files do not count, and stored files are not uploaded again.
    home.write("notes.md", "changed");
    let again = sent(&["validate"]);
    assert!(again < 64 << 10, "{again} bytes were sent");
    assert_eq!(digest(), digest_of_first);
    home.write("main.tf", "# changed\n");
    sent(&["validate"]);
    assert_ne!(digest(), digest_of_first);
}

fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(count).collect()
}

#[test]
fn what_is_private_stays_at_home() {
    let home = Home::with_workspace();
    home.write(".terraformignore", "docs/\n!terraform.tfstate\n");
    for name in ["terraform.tfstate", "old.tfstate.backup", ".terraform/x", "docs/a.md", ".git/config", "sub/x.sh"] {
        home.write(name, "secret");
    }
    std::os::unix::fs::symlink("/etc/passwd", home.module().join("away")).unwrap();
    std::os::unix::fs::symlink("main.tf", home.module().join("inside")).unwrap();
    // A shell sees the state of the Workspace by a link, whose target is empty here.
    let output = home.call(&[
        "sh",
        "-c",
        "cat terraform.tfstate 2>/dev/null; find . -not -type d -not -path './.terraform/*' | sort",
    ]);
    let found = String::from_utf8(output.stdout).unwrap();
    let found: Vec<&str> = found.lines().filter(|line| !line.contains("knoll")).collect();
    assert_eq!(found, ["./.terraformignore", "./inside", "./main.tf", "./sub/x.sh", "./terraform.tfstate"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("away`: its target is outside of the module"), "{said}");
}

#[test]
fn a_lock_file_comes_back_from_init() {
    let home = Home::with_workspace();
    home.ok(&["init"]);
    assert!(!home.module().join(".terraform.lock.hcl").exists(), "a module without providers has none");
    let make = "echo '# made over there' > .terraform.lock.hcl; echo initialised; exit 0";
    drop(home);
    let home = Home::with_tool("init", make);
    let output = home.call(&["init"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("initialised"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`.terraform.lock.hcl` was created"));
    let lock = std::fs::read_to_string(home.module().join(".terraform.lock.hcl")).unwrap();
    assert_eq!(lock, "# made over there\n");
}

/// A module with a backend, or a directory with a state, was applied to an empty state without a word.
#[test]
fn an_apply_on_an_empty_state_built_production_a_second_time() {
    let home = Home::with_workspace();
    home.write("backend.tf", "terraform {\n  backend \"s3\" {\n    bucket = \"prod\"\n  }\n}\n");
    for words in [&["plan"][..], &["apply", "-auto-approve"], &["destroy", "-auto-approve"]] {
        let error = home.fails(words);
        for says in ["declares `backend \"s3\"`", "--external-state", "knoll state push FILE", "remove the block"] {
            assert!(error.contains(says), "{error}");
        }
    }
    std::fs::remove_file(home.module().join("backend.tf")).unwrap();
    let state = r#"{"version": 4, "terraform_version": "1.9.0", "serial": 3, "lineage": "l", "outputs": {}, "resources": [
        {"mode": "managed", "type": "terraform_data", "name": "a", "provider": "provider[\"terraform.io/builtin/terraform\"]",
         "instances": [{"schema_version": 0, "attributes": {"id": "1", "input": null, "output": null, "triggers_replace": null}}]}]}"#;
    home.write("terraform.tfstate", state);
    let error = home.fails(&["apply", "-auto-approve"]);
    assert!(error.contains("knoll state push terraform.tfstate"), "{error}");
    assert!(home.runs().is_empty(), "nothing was started");
    // The way that the message names.
    home.ok(&["state", "push", "terraform.tfstate"]);
    let plan = home.ok(&["plan"]);
    assert!(plan.contains("0 to add"), "{plan}");
    // Beside a state of Knoll the block has no effect, and that is said.
    home.write("backend.tf", "terraform {\n  backend \"s3\" {\n    bucket = \"prod\"\n  }\n}\n");
    let said = String::from_utf8(home.call(&["plan"]).stderr).unwrap();
    assert!(said.contains("note: `backend \"s3\"` of this module is not used"), "{said}");
}

/// Another kubeconfig led the directory to another cluster without a word.
#[test]
fn a_directory_planned_in_whatever_cluster_the_kubeconfig_named() {
    let home = Home::with_workspace();
    let file = home.module().join(".terraform/knoll.json");
    let mut choice: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(choice["cluster"]["uid"].is_string(), "{choice}");
    // The same cluster at another address is the same cluster.
    choice["cluster"]["server"] = "https://elsewhere:6443".into();
    std::fs::write(&file, choice.to_string()).unwrap();
    home.ok(&["workspace", "show"]);
    choice["cluster"]["uid"] = "another".into();
    std::fs::write(&file, choice.to_string()).unwrap();
    let error = home.fails(&["plan"]);
    assert!(error.contains("workspace `net` of another cluster, https://elsewhere:6443"), "{error}");
    assert!(error.contains("knoll workspace select NAME"), "{error}");
    let mut terminal = Terminal::run(&home, &["workspace", "show"], 30, 200);
    terminal.sees("[y/N]");
    terminal.types("n\n");
    assert_eq!(terminal.ends().code(), Some(1));
    home.ok(&["workspace", "show", "-w", "net"]);
    home.ok(&["workspace", "select", "workspace/net"]);
    home.ok(&["workspace", "show"]);
    let said = String::from_utf8(home.call(&["plan"]).stderr).unwrap();
    let first = said.lines().next().unwrap_or_default();
    for part in ["knoll: run `net-plan-", "workspace `net`", "namespace `", "cluster https://"] {
        assert!(first.contains(part), "{said}");
    }
    std::fs::write(home.folder.path().join("empty"), "").unwrap();
    let empty = home.folder.path().join("empty");
    let output = home.command(&["runs"]).env("KUBECONFIG", &empty).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("$KUBECONFIG has no cluster"), "{said}");
}

/// The workspace was there, and the command had failed.
#[test]
fn a_workspace_was_made_although_its_selection_could_not_be_stored() {
    let home = Home::with_workspace();
    let output = home.command_in(Path::new("/proc"), &["workspace", "new", "lost"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot be stored in `/proc`"), "{said}");
    assert!(home.fails(&["workspace", "show", "lost"]).contains("not found"));
    // A state that an earlier workspace has left is announced.
    home.ok(&["apply", "-auto-approve"]);
    home.ok(&["workspace", "delete", "net", "--yes"]);
    home.kubectl(&["wait", "--for=delete", "workspace/net", "--timeout=60s"], None);
    let output = home.call(&["workspace", "new", "net"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("takes over the state of an earlier workspace"), "{said}");
    // An external state says so.
    home.ok(&["workspace", "new", "outside", "--external-state"]);
    let shown = home.ok(&["workspace", "show", "outside"]);
    assert!(shown.contains("external, in the module's own backend"), "{shown}");
}

/// A program had to parse terraform's text to learn the result of a run.
#[test]
fn the_result_of_a_run_is_json_when_asked_for() {
    let home = Home::with_workspace();
    let output = home.call(&["apply", "-auto-approve", "-o", "json"]);
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&run["kind"], &run["status"]["phase"]), (&"Run".into(), &"Succeeded".into()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Apply complete!"));
    let name = run["metadata"]["name"].as_str().unwrap();
    for form in [format!("run/{name}"), format!("run.knoll.dev/{name}")] {
        assert!(home.ok(&["run", "show", &form]).contains(name));
    }
    let made: serde_json::Value = serde_json::from_str(&home.ok(&["plan", "--detach", "-o", "json"])).unwrap();
    assert_eq!(made["spec"]["operation"], "plan");
}

/// Values of variables in the environment of the caller were left behind, and only some of them were named.
#[test]
fn variables_of_the_environment_travel_when_asked_for() {
    let home = Home::with_workspace();
    let call = |words: &[&str]| {
        let output =
            home.command(words).env("TF_VAR_word", "from-my-shell").env("TF_CLI_ARGS_plan", "-x").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, said] = call(&["apply", "-auto-approve"]);
    assert!(said.contains("`TF_CLI_ARGS_plan` and 1 more of your environment are not passed to the run"), "{said}");
    assert_eq!(home.ok(&["output", "-raw", "word"]), "hello");
    let [_, said] = call(&["apply", "-auto-approve", "--with-env"]);
    assert!(said.contains("`TF_CLI_ARGS_plan` of your environment is not passed"), "{said}");
    assert_eq!(home.ok(&["output", "-raw", "word"]), "from-my-shell");
    assert!(!home.newest_run()["spec"].to_string().contains("from-my-shell"), "the value is in a Secret");
}
