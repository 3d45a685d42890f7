//! The upload of a module's files, and the download of the lock file.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use knoll::Home;
use knoll::proxy::Proxy;

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
    let output = home.call(&["sh", "-c", "find . -not -type d -not -path './.terraform/*' | sort"]);
    let found = String::from_utf8(output.stdout).unwrap();
    let found: Vec<&str> = found.lines().filter(|line| !line.contains("knoll")).collect();
    assert_eq!(found, ["./.terraformignore", "./inside", "./main.tf", "./sub/x.sh"]);
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
