//! Runs in a real terminal: prompts, keys, sizes, detaching and attaching.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use knoll::proxy::Proxy;
use knoll::terminal::Terminal;
use knoll::{Gate, Home};
use nix::sys::signal::Signal;

#[test]
fn terraform_asks_and_is_answered() {
    let home = Home::with_workspace();
    let mut terminal = Terminal::run(&home, &["apply", "-var", "word=world"], 24, 100);
    terminal.sees("Only 'yes' will be accepted to approve.");
    terminal.sees("Enter a value:");
    terminal.types("yes\n");
    terminal.sees("Apply complete! Resources: 1 added, 0 changed, 0 destroyed.");
    terminal.sees("word = \"world\"");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(home.ok(&["output", "-raw", "word"]), "world");

    let mut terminal = Terminal::run(&home, &["destroy"], 24, 100);
    terminal.sees("Enter a value:");
    terminal.types("no\n");
    terminal.sees("Destroy cancelled");
    assert_eq!(terminal.ends().code(), Some(1));
    let run = home.newest_run();
    assert_eq!(run["status"]["phase"], "Cancelled", "{run:#}");
    assert_eq!(run["status"]["plan"]["destroy"], 1, "{run:#}");
    assert_eq!(home.ok(&["state", "list"]), "terraform_data.a\n");
}

#[test]
fn the_console_answers_and_the_shell_has_the_size_of_the_terminal() {
    let home = Home::with_workspace();
    let mut terminal = Terminal::run(&home, &["console"], 24, 80);
    terminal.sees("> ");
    terminal.types("6 * 7\n");
    terminal.sees("42");
    // Ctrl-D ends the console.
    terminal.types("\x04");
    assert_eq!(terminal.ends().code(), Some(0));

    let mut terminal = Terminal::run(&home, &["sh"], 30, 90);
    terminal.types("stty size\n");
    terminal.sees("30 90");
    terminal.resize(40, 120);
    // The shell reports the new size when it has arrived.
    terminal.types("until stty size | grep -q '40 120'; do :; done; echo resized to $(stty size)\n");
    terminal.sees("resized to 40 120");
    // Ctrl-C goes to the shell and ends its child, not the run.
    // The child prints only once it has the terminal.
    terminal.types("sh -c 'echo wait; exec sleep 600'\n");
    terminal.prints("wait\r");
    terminal.types("\x03");
    terminal.types("echo still here\n");
    terminal.sees("still here");
    terminal.types("exit 7\n");
    assert_eq!(terminal.ends().code(), Some(7));
}

#[test]
fn ctrl_c_cancels_gently_and_says_so() {
    let home = Home::with_workspace();
    let _gate = Gate::in_module(&home);
    let mut terminal = Terminal::run(&home, &["apply", "-auto-approve"], 24, 100);
    terminal.prints("begun");
    terminal.types("\x03");
    terminal.prints("cancelling: terraform, if it runs, finishes the operation in progress");
    terminal.prints("Gracefully shutting down");
    let code = terminal.ends().code();
    terminal.sees("was cancelled");
    assert!(matches!(code, Some(1 | 130)), "{code:?}");
    let run = home.newest_run();
    assert_eq!(run["status"]["phase"], "Cancelled", "{run:#}");
}

#[test]
fn ctrl_c_twice_stops_hard() {
    let stubborn = "trap 'echo not yet' INT; echo begun; while :; do sleep 0.05; done";
    let home = Home::with_tool("validate", stubborn);
    let mut terminal = Terminal::run(&home, &["validate"], 24, 100);
    terminal.sees("begun");
    terminal.types("\x03");
    terminal.sees("press Ctrl-C again to kill it");
    terminal.sees("not yet");
    terminal.types("\x03");
    terminal.sees("killing terraform");
    // A process ended by SIGTERM has the exit code 143.
    assert_eq!(terminal.ends().code(), Some(143));
    let run = home.until_run("the run ends", |run| run["status"]["finishedAt"].is_string());
    assert_eq!(run["status"]["phase"], "Cancelled", "{run:#}");
}

#[test]
fn a_closed_terminal_leaves_the_run_and_attach_comes_back() {
    let home = Home::with_workspace();
    let gate = Gate::in_module(&home);
    let mut terminal = Terminal::run(&home, &["apply", "-auto-approve"], 24, 100);
    terminal.prints("begun");
    terminal.signal(Signal::SIGHUP);
    assert_eq!(terminal.ends().code(), Some(129));
    let run = home.newest_run();
    assert_eq!(run["status"]["phase"], "Running");
    let name = run["metadata"]["name"].as_str().unwrap();

    let mut terminal = Terminal::run(&home, &["attach", name], 24, 100);
    // Earlier output is printed again, and the rest follows.
    terminal.prints("Initializing the backend");
    terminal.prints("begun");
    gate.open(&home);
    terminal.sees("Apply complete!");
    assert_eq!(terminal.ends().code(), Some(0));
    assert_eq!(terminal.printed.matches("Executing:").count(), 1, "{}", terminal.printed);
    // A finished run shows its output too.
    let mut terminal = Terminal::run(&home, &["attach", name], 24, 100);
    terminal.sees("Apply complete!");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn whoever_waits_is_told_for_whom() {
    let home = Home::with_workspace();
    let gate = Gate::in_module(&home);
    let first = home.ok(&["apply", "-auto-approve", "--detach"]);
    let running = home.until_run("the first one runs", |run| run["status"]["phase"] == "Running");
    let mut terminal = Terminal::run(&home, &["apply", "-auto-approve"], 24, 120);
    terminal.sees(&format!("position 1 in the queue of `net`; `{}` is running", first.trim()));
    gate.open_of(&home, running["status"]["podName"].as_str().unwrap());
    terminal.sees("No changes.");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn a_lost_connection_comes_back() {
    let home = Home::with_workspace();
    let gate = Gate::in_module(&home);
    let proxy = Proxy::to(&home);
    let kubeconfig = proxy.kubeconfig.to_str().unwrap();
    let mut terminal = Terminal::run(&home, &["apply", "-auto-approve", "--kubeconfig", kubeconfig], 24, 100);
    terminal.prints("begun");
    proxy.cut();
    terminal.sees("connection lost");
    proxy.mend();
    gate.open(&home);
    terminal.sees("Apply complete!");
    assert_eq!(terminal.ends().code(), Some(0));
    // Lines are complete wherever the connection was cut.
    let says = |words: &str| format!("\u{1b}[1mterraform_data.slow (local-exec):\u{1b}[0m \u{1b}[0m{words}");
    for line in [says("Executing:"), says("begun"), says("passed"), "\nApply complete!".to_owned()] {
        assert_eq!(terminal.printed.matches(&line).count(), 1, "{line:?} in {:?}", terminal.printed);
    }
}

mod embedded {
    use super::*;

    #[test]
    fn a_cluster_that_dies_and_comes_back_is_found_again() {
        let home = Home::with_workspace();
        let gate = Gate::in_module(&home);
        let mut terminal = Terminal::run(&home, &["apply", "-auto-approve"], 24, 100);
        terminal.prints("begun");
        home.kill_cluster();
        terminal.sees("connection lost");
        home.restart();
        gate.open(&home);
        terminal.sees("Apply complete!");
        assert_eq!(terminal.ends().code(), Some(0));
        assert_eq!(terminal.printed.matches("Executing:").count(), 1, "{}", terminal.printed);
        assert_eq!(terminal.printed.matches("Apply complete!").count(), 1, "{}", terminal.printed);
    }

    #[test]
    fn a_run_could_not_be_left_while_its_cluster_was_away() {
        let home = Home::with_workspace();
        let gate = Gate::in_module(&home);
        let mut terminal = Terminal::run(&home, &["apply", "-auto-approve"], 24, 100);
        terminal.prints("begun");
        home.kill_cluster();
        terminal.sees("connection lost");
        terminal.types("\x03");
        terminal.sees("press Ctrl-C once more to detach");
        terminal.types("\x03");
        assert_eq!(terminal.ends().code(), Some(130));
        assert!(terminal.screen().contains("detached from run"), "{}", terminal.screen());
        // Each line of a message begins at the left, although the terminal is raw.
        assert!(terminal.screen().lines().any(|line| line.starts_with("press Ctrl-C")), "{}", terminal.screen());
        home.restart();
        gate.open(&home);
        home.until_run("the run went on", |run| run["status"]["phase"] == "Succeeded");
    }
}
