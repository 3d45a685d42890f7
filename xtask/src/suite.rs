//! Runs test programs side by side, the slowest of the last time first, and shows a line for each.
//!
//! `cargo test` runs one program after the other, and most of ours wait more than they compute.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::build::{building, folder};
use crate::tools::tofu;

/// Most programs wait for others more than they compute.
const LANES_A_CORE: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct TestProgram {
    /// Its package and its own name: `knoll-embedded scale`.
    pub name: String,
    executable: PathBuf,
    folder: PathBuf,
}

/// Builds the test programs that `cargo test` would run with these arguments.
pub fn build(words: &[&str]) -> anyhow::Result<Vec<TestProgram>> {
    let mut command = building("test")?;
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]).args(words);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start `cargo`")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The test program that a line of cargo's JSON messages describes.
fn program(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    let executable = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let name = if kind == "test" { format!("{package} {target}") } else { format!("{package} ({kind})") };
    Some(TestProgram { name, executable: executable.into(), folder: folder.to_owned() })
}

/// Runs the programs, more at once than there are cores, and returns how many tests passed. If one fails, all others
/// still run before the error.
pub fn run(programs: &[TestProgram], settings: &[(&str, &str)], words: &[&str]) -> anyhow::Result<usize> {
    let lanes = LANES_A_CORE * std::thread::available_parallelism().map_or(2, usize::from);
    run_in(lanes, programs, settings, words, &|| {})
}

/// Runs the programs, so many at once. `on_failure` runs after each that fails.
pub fn run_in(
    lanes: usize,
    programs: &[TestProgram],
    settings: &[(&str, &str)],
    words: &[&str],
    on_failure: &(dyn Fn() + Sync),
) -> anyhow::Result<usize> {
    let memory = folder("debug")?.join("test-times.json");
    let known: BTreeMap<String, f64> =
        std::fs::read(&memory).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let waiting = Mutex::new(slowest_first(programs, &known));
    let times = Mutex::new(known.clone());
    let failed = Mutex::new(Vec::new());
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                // A function of its own, so that nobody waits for the lock while a program runs.
                let next = || locked(&waiting).pop_front();
                while let Some(program) = next() {
                    let begun = Instant::now();
                    let result = start(&program, settings, words);
                    let took = begun.elapsed();
                    locked(&times).insert(program.name.clone(), took.as_secs_f64());
                    match report(&program.name, took, result) {
                        Ok(count) => drop(passed.fetch_add(count, Ordering::Relaxed)),
                        Err(output) => {
                            on_failure();
                            locked(&failed).push((program.name, output));
                        }
                    }
                }
            });
        }
    });
    // The times only affect the order of the next run.
    let _ = std::fs::write(&memory, serde_json::to_vec(&*locked(&times))?);
    let failed = locked(&failed);
    for (name, output) in failed.iter() {
        println!("\n---- {name} ----\n{output}");
    }
    if !failed.is_empty() {
        let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
        bail!("{} of {} test programs failed: {}", names.len(), programs.len(), names.join(", "));
    }
    Ok(passed.into_inner())
}

/// How many tests the programs have, with these arguments.
pub fn count(programs: &[TestProgram], words: &[&str]) -> anyhow::Result<usize> {
    let mut count = 0;
    for program in programs {
        let words = [&["--list", "--format", "terse"], words].concat();
        let output = start(program, &[], &words).with_context(|| format!("cannot start {}", program.name))?;
        count += String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.ends_with(": test")).count();
    }
    Ok(count)
}

/// Locks a mutex. A thread that panicked leaves valid values here.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn slowest_first(programs: &[TestProgram], known: &BTreeMap<String, f64>) -> VecDeque<TestProgram> {
    let mut sorted = programs.to_vec();
    let time = |program: &TestProgram| known.get(&program.name).copied().unwrap_or(f64::MAX);
    sorted.sort_by(|a, b| time(b).total_cmp(&time(a)));
    sorted.into()
}

fn start(program: &TestProgram, settings: &[(&str, &str)], words: &[&str]) -> std::io::Result<Output> {
    Command::new(&program.executable)
        .args(words)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .envs(settings.iter().copied())
        .envs(tofu::cached().ok().flatten().map(|path| ("KNOLL_TOFU", path)))
        .stdin(Stdio::null())
        .output()
}

/// Prints how a program ended, and returns how many of its tests passed, or its output if it failed.
fn report(name: &str, took: Duration, result: std::io::Result<Output>) -> Result<usize, String> {
    let seconds = took.as_secs_f64();
    match result {
        Ok(output) if output.status.success() => {
            let passed = passed(&String::from_utf8_lossy(&output.stdout));
            println!("    ok      {seconds:>6.1} s  {name}: {passed} passed");
            Ok(passed)
        }
        Ok(output) => {
            println!("    FAILED  {seconds:>6.1} s  {name}");
            Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
        }
        Err(error) => {
            println!("    FAILED  {seconds:>6.1} s  {name}");
            Err(format!("cannot start it: {error}"))
        }
    }
}

/// How many tests have passed, by the summaries of test programs.
pub fn passed(output: &str) -> usize {
    let summaries = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    summaries.filter_map(|summary| summary.split(' ').next()?.parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_the_messages_of_cargo() {
        let line = |test: bool, kind: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/r/crates/hub/Cargo.toml",
                "target": {"kind": [kind], "name": "hub"}, "profile": {"test": test}, "executable": "/r/target/hub-1",
            })
            .to_string()
        };
        assert_eq!(program(&line(true, "test")).map(|p| p.name).as_deref(), Some("hub hub"));
        assert_eq!(program(&line(true, "lib")).map(|p| p.name).as_deref(), Some("hub (lib)"));
        assert_eq!(program(&line(false, "bin")), None);
        assert_eq!(program("not json"), None);
    }

    #[test]
    fn unknown_and_slow_programs_come_first() {
        let program = |name: &str| TestProgram { name: name.into(), executable: "x".into(), folder: "f".into() };
        let known = BTreeMap::from([("slow".to_owned(), 9.0), ("quick".to_owned(), 1.0)]);
        let order = slowest_first(&["quick", "new", "slow"].map(program), &known);
        assert_eq!(order.into_iter().map(|p| p.name).collect::<Vec<_>>(), ["new", "slow", "quick"]);
    }

    #[test]
    fn the_summary_is_read_from_the_output() {
        let output = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\n";
        assert_eq!(passed(output), 2);
        assert_eq!(passed(&output.repeat(3)), 6);
        assert_eq!(passed(""), 0);
    }
}
