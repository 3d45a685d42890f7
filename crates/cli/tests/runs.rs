//! Runs from the command line: exit codes, uploads, decisions, and the commands about runs.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use knoll::Home;
use knoll::terminal::Terminal;

#[test]
fn exit_codes_are_those_of_terraform() {
    let home = Home::with_workspace();
    let code = |words: &[&str]| home.call(words).status.code();
    assert_eq!(code(&["plan", "-detailed-exitcode"]), Some(2));
    assert_eq!(home.newest_run()["status"]["phase"], "Succeeded");
    assert_eq!(code(&["apply", "-auto-approve"]), Some(0));
    assert_eq!(code(&["plan", "-detailed-exitcode"]), Some(0));
    assert_eq!(code(&["plan", "-no-such-flag"]), Some(1));
    assert_eq!(code(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), Some(137));
    home.write("main.tf", "output \"x\" { value = nothing.here }");
    let output = home.call(&["plan"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("Reference to undeclared resource") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn an_output_is_nothing_but_the_output() {
    let home = Home::with_workspace();
    home.ok(&["apply", "-auto-approve", "-var", "word=world"]);
    assert_eq!(home.ok(&["output", "-raw", "word"]), "world");
    let json: serde_json::Value = serde_json::from_str(&home.ok(&["output", "-json"])).unwrap();
    assert_eq!(json["word"]["value"], "world");
    assert_eq!(home.ok(&["state", "list"]), "terraform_data.a\n");
    home.ok(&["state", "mv", "terraform_data.a", "terraform_data.b"]);
    assert_eq!(home.ok(&["state", "list"]), "terraform_data.b\n");
}

/// The output of `plan -json` began with that of `init`, and a sensitive value elsewhere made that of `show -json` invalid.
#[test]
fn standard_output_is_terraforms_own_and_answers_are_not_masked() {
    let home = Home::with_workspace();
    let sensitive = "output \"s\" {\n  value     = [54321, \"string\"]\n  sensitive = true\n}\n";
    let public = "output \"port\" { value = 54321 }\nresource \"terraform_data\" \"p\" { input = 54321 }\n";
    home.write("main.tf", &format!("{sensitive}{public}"));
    for words in [&["plan", "-json"][..], &["apply", "-json", "-auto-approve"]] {
        let output = home.call(words);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success() && stderr.contains("Initializing"), "{stdout}{stderr}");
        assert!(!stderr.contains("Successfully configured the backend"), "{stderr}");
        for line in stdout.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        assert!(stdout.contains("change_summary"), "{stdout}");
    }
    let shown: serde_json::Value = serde_json::from_str(&home.ok(&["show", "-json"])).unwrap();
    assert_eq!(shown["values"]["outputs"]["port"]["value"], 54321);
    assert_eq!(shown["values"]["outputs"]["s"]["value"], serde_json::json!([54321, "string"]));
    assert!(home.ok(&["state", "show", "terraform_data.p"]).contains("54321"));
    let run = home.newest_run();
    let name = run["metadata"]["name"].as_str().unwrap();
    assert!(!home.ok(&["logs", name]).contains("54321"), "the log is public");
    // In a terminal too.
    let mut terminal = Terminal::run(&home, &["state", "show", "terraform_data.p"], 24, 100);
    terminal.sees("54321");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn what_is_piped_into_a_console_or_a_shell_is_read_over_there() {
    let home = Home::with_workspace();
    let piped = |words: &[&str], input: &str| {
        let file = home.folder.path().join("input");
        std::fs::write(&file, input).unwrap();
        let output = home.command(words).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(piped(&["console"], "6 * 7\n"), "42\n");
    assert_eq!(piped(&["sh"], "echo one\necho two\n"), "one\ntwo\n");
}

#[test]
fn whoever_wants_no_colours_gets_none() {
    let home = Home::with_workspace();
    let coloured = |terminal: &Terminal| terminal.printed.contains("\x1b[3") || terminal.printed.contains("\x1b[1m");
    for (variables, expect) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        for words in [&["plan"][..], &["runs"][..], &["workspace", "delete", "gone", "--yes"][..]] {
            let mut terminal = Terminal::run_with(&home, words, 24, 100, variables);
            terminal.ends();
            assert_eq!(coloured(&terminal), expect, "{words:?}: {:?}", terminal.printed);
        }
    }
    // The log of a run in a terminal has colours, and a pipe gets none.
    for run in home.runs() {
        let log = home.ok(&["logs", &run]);
        assert!(log.contains("Plan:") && !log.contains('\x1b'), "{log:?}");
    }
}

#[test]
fn the_settings_of_a_workspace_are_edited() {
    let home = Home::with_workspace();
    let edit = |editor: &str| home.command(&["workspace", "edit"]).env("EDITOR", editor).output().unwrap();
    let said = |output: std::process::Output| {
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    assert_eq!(said(edit("true")), (Some(0), "Unchanged workspace `net`\n".to_owned()));
    assert_eq!(said(edit("sed -i s/10/20/")), (Some(0), "Changed workspace `net`\n".to_owned()));
    let history = || home.kubectl(&["get", "workspace", "net", "-o", "jsonpath={.spec.stateHistory}"], None);
    assert_eq!(history(), "20");
    // Other fields than the spec may change in the meantime, as the status does.
    let kubectl = format!("kubectl --kubeconfig {} --namespace {}", home.kubeconfig().display(), home.namespace());
    let meanwhile = format!("{kubectl} annotate workspace net seen=yes; sed -i s/20/30/");
    let (code, text) = said(edit(&meanwhile));
    assert!(code == Some(0) && text.ends_with("Changed workspace `net`\n"), "{text}");
    assert_eq!(history(), "30");
    // A misspelt field was left out, and the edit with it.
    let (code, text) = said(edit("sed -i s/stateHistory/stateHistroy/"));
    assert!(code == Some(1) && text.contains("stateHistroy") && text.contains("your changes are saved in"), "{text}");
    let (code, text) = said(edit("sed -i s/terraform$/pulumi/"));
    assert!(code == Some(1) && text.contains("nothing was changed; your changes are saved in"), "{text}");
}

#[test]
fn a_plan_is_decided_by_whoever_looks_at_it() {
    let home = Home::with_workspace();
    let run = home.ok(&["apply", "--approval", "manual", "--detach"]);
    let run = run.trim();
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let error = home.fails(&["approve", run]);
    assert!(error.contains("--yes"), "{error}");
    let mut terminal = Terminal::run(&home, &["approve", run, "--comment", "looks right", "--follow"], 30, 100);
    terminal.prints("resource \"terraform_data\" \"a\"");
    terminal.sees("+ terraform_data.a (create)");
    terminal.sees("Approve this plan");
    terminal.types("y\n");
    terminal.sees("Apply complete!");
    assert_eq!(terminal.ends().code(), Some(0));
    let status = home.newest_run()["status"].clone();
    assert_eq!((&status["decision"]["decision"], &status["phase"]), (&"Approve".into(), &"Succeeded".into()));
    assert!(!status["decision"]["by"].as_str().unwrap().is_empty());
    let error = home.fails(&["discard", run, "--yes"]);
    assert!(error.contains("already has a decision: Approve by"), "{error}");

    let run = home.ok(&["destroy", "--approval", "manual", "--detach"]);
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    home.ok(&["discard", run.trim(), "--yes"]);
    let ended = home.until_run("it is discarded", |run| run["status"]["phase"] == "Discarded");
    assert_eq!(ended["metadata"]["name"], run.trim());
    assert_eq!(home.call(&["attach", run.trim()]).status.code(), Some(1));
}

#[test]
fn whoever_decides_second_is_told_who_was_first() {
    let home = Home::with_workspace();
    let run = home.ok(&["apply", "--approval", "manual", "--detach"]);
    let run = run.trim();
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let mut terminal = Terminal::run(&home, &["approve", run], 30, 100);
    terminal.sees("Approve this plan");
    home.ok(&["discard", run, "--yes"]);
    home.until_run("it is discarded", |run| run["status"]["phase"] == "Discarded");
    terminal.types("y\n");
    assert_eq!(terminal.ends().code(), Some(1), "{}", terminal.printed);
    terminal.prints("already has a decision: Discard by");
}

/// A plan beside a run that changes the state said nothing of it.
#[test]
fn a_plan_beside_an_apply_names_that_run() {
    let home = Home::with_workspace();
    let run = home.ok(&["apply", "--approval", "manual", "--detach"]);
    home.until_run("the plan waits", |run| run["status"]["phase"] == "Review");
    let said = String::from_utf8(home.call(&["plan"]).stderr).unwrap();
    let expect =
        format!("note: this plan is made from the state as it is now, while run `{}` is waiting for", run.trim());
    assert!(said.contains(&expect), "{said}");
    home.ok(&["discard", run.trim(), "--yes"]);
    let said = String::from_utf8(home.call(&["plan"]).stderr).unwrap();
    assert!(!said.contains("this plan is made from"), "{said}");
}

/// The number of consecutive runs: six, or a hundred with `cargo xtask test --thorough`.
fn in_a_row() -> u32 {
    if std::env::var_os("KNOLL_TEST_THOROUGH").is_some() { 100 } else { 6 }
}

/// The first and the last line of each run are present, and all lines in between.
#[test]
fn attached_runs_in_a_row_lose_nothing() {
    let home = Home::with_tool("validate", "echo first line; seq 1 400; echo last line; exit 0");
    for number in 1..=in_a_row() {
        let mut terminal = Terminal::run(&home, &["validate"], 24, 100);
        let code = terminal.ends().code();
        let printed = terminal.printed.replace('\r', "");
        let lines: Vec<&str> = printed.lines().skip_while(|line| !line.ends_with("first line")).collect();
        let expect = (1..=400).map(|n| n.to_string()).chain(["last line".to_owned()]);
        assert!(lines[1..].iter().copied().eq(expect), "run {number}: {printed}");
        assert_eq!(code, Some(0), "run {number}");
    }
}

#[test]
fn runs_without_a_terminal_lose_nothing_either() {
    let home = Home::with_tool("validate", "echo first line; seq 1 400; echo last line; exit 0");
    let expect: String = (1..=400).map(|n| format!("{n}\n")).collect();
    for number in 1..=in_a_row() {
        assert_eq!(home.ok(&["validate"]), format!("first line\n{expect}last line\n"), "run {number}");
    }
}

#[test]
fn knoll_is_a_plugin_of_kubectl() {
    let home = Home::with_workspace();
    let bin = home.folder.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_knoll"), bin.join("kubectl-knoll")).unwrap();
    let kubectl = |words: &[&str]| {
        let output = std::process::Command::new("kubectl")
            .arg("knoll")
            .args(words)
            .env_clear()
            .envs(home.environment())
            .current_dir(home.module())
            .output()
            .unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    assert!(kubectl(&["plan", "--help"]).0.contains("Usage: kubectl knoll plan"));
    assert_eq!(kubectl(&["workspace", "list", "-o", "name"]).0, "workspace.knoll.dev/net\n");
    assert_eq!(kubectl(&["plan", "-detailed-exitcode"]).1, Some(2));
}

/// What bash offers for the last of the words.
fn complete(home: &Home, words: &[&str]) -> String {
    let mut command = home.command(&["--", "knoll"]);
    command.args(words).env("KNOLL_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false").env("_CLAP_IFS", "\n");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn shells_complete_commands_and_live_names() {
    let home = Home::with_workspace();
    assert!(home.ok(&["completion", "bash"]).contains("KNOLL_COMPLETE"));
    assert!(home.ok(&["completion", "zsh"]).contains("#compdef knoll"));
    assert!(home.ok(&["completion", "fish"]).contains("complete"));
    assert!(complete(&home, &["pl"]).lines().any(|line| line == "plan"));
    assert_eq!(complete(&home, &["workspace", "select", "n"]), "net");
    assert_eq!(complete(&home, &["plan", "-w", "n"]), "net");
    home.ok(&["plan"]);
    assert_eq!(complete(&home, &["run", "show", ""]).lines().next(), home.runs().first().map(String::as_str));
}

#[test]
fn shells_complete_the_flags_of_terraform_and_the_addresses_of_the_state() {
    let home = Home::with_workspace();
    // Without a state there is nothing to offer.
    assert_eq!(complete(&home, &["taint", "ter"]), "");
    home.write(
        "main.tf",
        "resource \"terraform_data\" \"a\" {\n  for_each = toset([\"x\"])\n}\nresource \"terraform_data\" \"b\" {}\n",
    );
    home.ok(&["apply", "-auto-approve"]);
    assert_eq!(complete(&home, &["plan", "-destr"]), "-destroy");
    assert_eq!(complete(&home, &["plan", "-no-color", "-targ"]), "-target=\n-target-file=");
    assert_eq!(complete(&home, &["state", "mv", "-dry"]), "-dry-run");
    assert_eq!(complete(&home, &["sh", "-destr"]), "");
    let both = "terraform_data.a\\[\\\"x\\\"\\]\nterraform_data.b";
    for words in [&["state", "show", "ter"][..], &["state", "rm", "ter"], &["state", "mv", "terraform_data.b", "ter"]] {
        assert_eq!(complete(&home, words), both, "{words:?}");
    }
    assert_eq!(complete(&home, &["untaint", "-w", "net", "terraform_data.b"]), "terraform_data.b");
    assert_eq!(complete(&home, &["plan", "-target=terraform_data.b"]), "-target=terraform_data.b");
    // Bash splits words at `=`.
    assert_eq!(complete(&home, &["apply", "-replace", "=", "terraform_data.b"]), "terraform_data.b");
    assert_eq!(complete(&home, &["taint", "-w", "other", "ter"]), "");
}

#[test]
fn kubectl_completes_its_plugin() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::with_workspace();
    let bin = home.folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_knoll"), bin.join("kubectl-knoll")).unwrap();
    let program = bin.join("kubectl_complete-knoll");
    std::fs::write(&program, home.ok(&["completion", "kubectl"])).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    // The shell's script for kubectl calls `__complete`.
    let complete = |words: &[&str]| home.kubectl(&[&["__complete", "knoll"], words].concat(), None);
    assert_eq!(complete(&["workspace", "select", "n"]), "net\n:4\n");
    assert!(complete(&["pl"]).starts_with("plan\t"));
    assert_eq!(complete(&["plan", "-generate"]), "-generate-config-out=\n:6\n");
    assert_eq!(complete(&["workspace", "select", "none"]).trim_start(), ":4\n");
}

#[test]
fn manual_pages_are_written() {
    let home = Home::empty();
    home.ok(&["man", "pages"]);
    let page = std::fs::read_to_string(home.module().join("pages/knoll-plan.1")).unwrap();
    assert!(page.contains("knoll\\-plan") || page.contains("knoll-plan"), "{page}");
    assert!(home.module().join("pages/knoll-workspace-new.1").is_file());
}

#[test]
fn a_watch_prints_what_changes() {
    use std::io::{BufRead, BufReader};
    let home = Home::with_workspace();
    /// A command that is killed on drop.
    struct Command(std::process::Child);
    impl Drop for Command {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut child = Command(home.command(&["watch"]).stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // The first run may finish before the watch starts; the second does not.
    home.ok(&["plan"]);
    home.ok(&["plan"]);
    let run = home.runs().pop().unwrap();
    let seen = lines.find(|line| {
        line.as_ref().is_ok_and(|line| line.starts_with(&format!("run\t{run}\t")) && line.ends_with("\tSucceeded"))
    });
    assert!(seen.is_some());
    home.create(&serde_json::json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "base"},
        "spec": {"source": {"inline": {"main.tf": "output \"id\" { value = 1 }"}}},
    }));
    let seen = lines
        .find(|line| line.as_ref().is_ok_and(|line| line.starts_with("stack\tbase\t") && line.ends_with("\tReady")));
    assert!(seen.is_some());
    drop(child);
    let mut terminal = Terminal::run(&home, &["watch"], 24, 100);
    terminal.sees("REVISION");
    terminal.sees("base");
    terminal.sees(&run);
    terminal.types("\x03");
    assert_eq!(terminal.ends().code(), Some(0));
    // The last tables stay on the screen.
    assert!(terminal.screen().contains(&run), "{}", terminal.screen());
}

#[test]
fn a_watch_has_keys_and_shows_decisions_first() {
    let home = Home::with_workspace();
    home.ok(&["plan"]);
    home.ok(&["show"]);
    home.ok(&["apply", "--approval", "manual", "--detach"]);
    let name = |run: serde_json::Value| run["metadata"]["name"].as_str().unwrap().to_owned();
    let review = name(home.until_run("the plan waits", |run| run["status"]["phase"] == "Review"));
    let runs = home.runs();
    let find = |command: &str| runs.iter().find(|run| run.starts_with(&format!("net-{command}-"))).unwrap();
    let (plan, show) = (find("plan"), find("show"));
    let mut terminal = Terminal::run(&home, &["watch"], 24, 100);
    // The line of the keys is drawn last.
    terminal.sees("q quit");
    let screen = terminal.screen();
    assert!(!screen.contains(show), "{screen}");
    assert!(screen.find(&review) < screen.find(plan) && screen.contains(plan), "{screen}");
    terminal.types("\x1b[B");
    terminal.sees(&format!("> {review}"));
    terminal.types("j");
    terminal.sees(&format!("> {plan}"));
    terminal.types("k\r");
    terminal.sees(&format!("knoll approve {review}"));
    // The screen may be seen half drawn, so each line is waited for.
    terminal.sees("Decision:   open");
    terminal.types("\x1b");
    terminal.sees(&format!("> {review}"));
    terminal.types("/plan");
    terminal.sees("Filter: plan_");
    assert!(!terminal.screen().contains(&review), "{}", terminal.screen());
    terminal.types("\r");
    terminal.sees("Filter: plan");
    terminal.types("\x1b");
    terminal.sees(&format!("> {review}"));
    terminal.types("q");
    assert_eq!(terminal.ends().code(), Some(0));
    assert!(terminal.printed.contains("\x1b[?1049l"));
    assert!(terminal.screen().contains(&review) && terminal.echoes(), "{}", terminal.screen());
    // A terminated watch restores the terminal too.
    let mut terminal = Terminal::run(&home, &["watch"], 24, 100);
    terminal.sees("q quit");
    assert!(!terminal.echoes());
    terminal.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(terminal.ends().code(), Some(143));
    assert!(terminal.echoes() && terminal.printed.contains("\x1b[?1049l"));
}

#[test]
fn states_are_kept_compared_brought_back_and_pushed() {
    let home = Home::with_workspace();
    assert!(home.fails(&["state", "pull"]).contains("has no state yet"));
    home.ok(&["apply", "-auto-approve", "-var", "word=one"]);
    let one = home.ok(&["state", "pull"]);
    let first: serde_json::Value = serde_json::from_str(&one).unwrap();
    let serial = first["serial"].as_u64().unwrap().to_string();
    home.ok(&["apply", "-auto-approve", "-var", "word=two"]);
    let history = home.ok(&["state", "history", "-o", "name"]);
    assert!(history.lines().any(|line| line == serial), "{history}");
    assert_eq!(home.ok(&["state", "pull", "--serial", &serial]), one);
    let output = home.call(&["state", "diff", &serial]);
    let diff = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(diff.contains("~ output.word\n    - \"one\"\n    + \"two\"\n"), "{diff}");

    assert!(home.fails(&["state", "rollback", &serial]).contains("--yes"));
    assert!(home.fails(&["state", "rollback", "999", "--yes"]).contains("has no stored state with serial 999"));
    assert!(home.ok(&["state", "rollback", &serial, "--yes"]).contains(&format!("Restored serial {serial}")));
    assert_eq!(home.ok(&["output", "-raw", "word"]), "one");

    let file = home.module().join("moved.json");
    let mut state: serde_json::Value = serde_json::from_str(&home.ok(&["state", "pull"])).unwrap();
    state["serial"] = (state["serial"].as_u64().unwrap() + 5).into();
    state["outputs"]["word"]["value"] = "pushed".into();
    std::fs::write(&file, state.to_string()).unwrap();
    home.ok(&["state", "push", file.to_str().unwrap()]);
    assert_eq!(home.ok(&["output", "-raw", "word"]), "pushed");
    std::fs::write(&file, "[]").unwrap();
    assert!(home.fails(&["state", "push", file.to_str().unwrap()]).contains("is not a terraform state file"));
}

/// `echo yes | knoll apply` answers terraform as it does without Knoll.
#[test]
fn a_piped_answer_is_the_answer_to_terraform() {
    let home = Home::with_workspace();
    std::fs::write(home.module().join("piped.tf"), "resource \"terraform_data\" \"piped\" {}\n").unwrap();
    let answered = |answer: &str| {
        let mut command = home.command_in(&home.module(), &["apply"]);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    for (answer, success, expect) in
        [("no\n", false, "Apply cancelled"), ("", false, "there is no terminal"), ("yes\n", true, "Apply complete!")]
    {
        let (succeeded, said) = answered(answer);
        assert!(succeeded == success && said.contains(expect), "{answer:?}: {said}");
    }
}
