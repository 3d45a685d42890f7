//! Runs the commands of a document again, in one shell, and puts their output into the document.
//!
//! A block of the language `console` has commands after `$ `, their further lines after `> `, and their output. What
//! varies between two runs is replaced, as the document itself says.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use regex::{Captures, Regex};

use super::Home;
use super::snapshot::settled;

/// The directory in which the user of the recording is at home.
const HOME: &str = "/home/me";

/// Runs a command in the shell of the commands before it: its directory, variables and exit code stay.
const SHELL: &str = r#"
test -e "$SHELL_STATE/variables" && . "$SHELL_STATE/variables"
cd "$(cat "$SHELL_STATE/directory")" || exit
eval "$1"
code=$?
pwd > "$SHELL_STATE/directory"
export -p > "$SHELL_STATE/variables"
exit $code
"#;

/// The user of a recording, and what replaces the names that vary.
pub struct Recorder {
    home: Home,
    state: tempfile::TempDir,
    /// The name of an object in this run, by its name in the document.
    names: BTreeMap<String, String>,
}

impl Recorder {
    /// A user with an empty home directory, and `knoll` on the PATH.
    pub fn new() -> Self {
        let home = Home::empty();
        std::fs::remove_dir_all(home.module()).unwrap();
        std::fs::create_dir(home.folder.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_knoll"), home.folder.path().join("bin/knoll")).unwrap();
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("directory"), home.folder.path().to_str().unwrap()).unwrap();
        Recorder { home, state, names: BTreeMap::new() }
    }

    /// The output of a command as the document shows it.
    fn run(&mut self, command: &str) -> String {
        let actual = self.names.iter().fold(command.to_owned(), |text, (shown, name)| text.replace(shown, name));
        let output = self.shell(&actual);
        // A failed test shows how far it came.
        println!("$ {actual}\n{}", String::from_utf8_lossy(&output.stdout));
        let text = realigned(&String::from_utf8_lossy(&output.stdout), |cell| self.shown(cell));
        let text = text.lines().fold(String::new(), |text, line| {
            let line = self.shown(line.trim_end());
            // Terraform and OpenTofu have other empty lines.
            if line.is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
                text
            } else {
                format!("{text}{line}\n")
            }
        });
        let text = text.trim_end();
        let end = if text.is_empty() { String::new() } else { format!("{text}\n") };
        match output.status.code() {
            Some(0) => end,
            code => format!("{end}[exit code {}]\n", code.unwrap_or(-1)),
        }
    }

    fn shell(&self, command: &str) -> std::process::Output {
        let mut shell = Command::new("sh");
        // Standard output and standard error are one stream, in the order in which they were written.
        shell.args(["-c", &format!("exec 2>&1\n{SHELL}"), "sh", command]).env_clear().envs(self.home.environment());
        // The port is a free one, as other tests run beside this one.
        shell.env_remove("KNOLL_DATA_DIR").env("KNOLL_PORT", "0");
        shell.env("SHELL_STATE", self.state.path());
        shell.current_dir(self.home.folder.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Replaces what varies, and remembers the names that were replaced.
    fn shown(&mut self, text: &str) -> String {
        let text = self.with_names(text);
        let text = settled(&self.home, &text);
        let rules = [("/HOME", HOME), (r"\b\d+m(\d+s)?\b", "0s"), (r"/sign-in/[0-9A-Za-z_-]+", "/sign-in/...")];
        rules.iter().fold(text, |text, (pattern, by)| Regex::new(pattern).unwrap().replace_all(&text, *by).into_owned())
    }

    /// Replaces the random part of the names of Runs and Approvals, and of revisions.
    fn with_names(&mut self, text: &str) -> String {
        // The number of a process may look like a revision.
        let text = Regex::new(r"process \d+").unwrap().replace_all(text, "process N").into_owned();
        let run = Regex::new(r"\b(\w+-(?:init|plan|apply|destroy|list)-)[a-z0-9]{5}\b").unwrap();
        let text = run.replace_all(&text, |found: &Captures<'_>| self.remember(found, "xxxxx")).into_owned();
        let of_stack = Regex::new(r"\b(web-\d+-)[0-9a-f]{7}\b").unwrap();
        let text = of_stack.replace_all(&text, |found: &Captures<'_>| self.remember(found, "xxxxxxx")).into_owned();
        let approval = Regex::new(r"(-x{5,7}-)[a-z0-9]{5}\b").unwrap();
        let text = approval.replace_all(&text, "${1}xxxxx").into_owned();
        Regex::new(r"\b[0-9a-f]{7}\b").unwrap().replace_all(&text, "xxxxxxx").into_owned()
    }

    fn remember(&mut self, found: &Captures<'_>, random: &str) -> String {
        let shown = format!("{}{random}", &found[1]);
        // The cells of a table are replaced before the lines.
        if found[0] != *shown {
            self.names.insert(shown.clone(), found[0].to_owned());
        }
        shown
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A recording that ends early leaves its cluster running.
        let _ = self.shell("knoll down");
    }
}

/// The document with the output that its commands have now.
pub fn replay(document: &str, recorder: &mut Recorder) -> String {
    let mut text = String::new();
    let mut lines = document.lines().peekable();
    let mut in_console = false;
    while let Some(line) = lines.next() {
        match line.strip_prefix("```") {
            Some(language) => in_console = !in_console && language == "console",
            None if in_console && !line.starts_with("$ ") => continue,
            None => {}
        }
        text += &format!("{line}\n");
        let Some(first) = line.strip_prefix("$ ").filter(|_| in_console) else { continue };
        let mut command = first.to_owned();
        while let Some(more) = lines.next_if(|line| *line == ">" || line.starts_with("> ")) {
            text += &format!("{more}\n");
            command += &format!("\n{}", more.trim_start_matches('>').strip_prefix(' ').unwrap_or_default());
        }
        text += &recorder.run(&command);
    }
    text
}

/// Lays out the tables of `text` again after `shown` has replaced what varies in their cells.
fn realigned(text: &str, mut shown: impl FnMut(&str) -> String) -> String {
    let head = Regex::new(r"^[A-Z]+(?: [A-Z]+)*(?: {2,}[A-Z]+(?: [A-Z]+)*)+ *$").unwrap();
    let name = Regex::new(r"[A-Z]+(?: [A-Z]+)*").unwrap();
    let mut lines = text.lines().peekable();
    let mut out = String::new();
    while let Some(line) = lines.next() {
        if !head.is_match(line) {
            out += &format!("{line}\n");
            continue;
        }
        let starts: Vec<usize> = name.find_iter(line).map(|found| found.start()).collect();
        let mut rows = vec![line];
        // A hint below a table has no columns.
        while let Some(row) = lines.next_if(|line| line.contains("  ")) {
            rows.push(row);
        }
        let cells = |row: &str| -> Vec<String> {
            let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
            let chars: Vec<char> = row.chars().collect();
            let cell = |(from, to): (usize, usize)| chars[from.min(chars.len())..to.min(chars.len())].iter().collect();
            starts.iter().copied().zip(ends).map(cell).map(|cell: String| cell.trim().to_owned()).collect()
        };
        let rows: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
        let widths: Vec<usize> = (0..starts.len())
            .map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or_default())
            .collect();
        for row in rows {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            out += &format!("{}\n", padded.collect::<Vec<_>>().join("   ").trim_end());
        }
    }
    out
}
