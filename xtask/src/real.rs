//! The tests on a real cluster: the same programs that run on the embedded one, with Knoll installed as a user would.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::build;
use crate::cluster::{self, Place, Up, down, node_possible};
use crate::image;
use crate::permissions;
use crate::progress::{phase, status};
use crate::suite::{self, TestProgram};

/// The programs that run on any cluster: those of the package `e2e`, and these.
const PROGRAMS: [&str; 9] = [
    "cli attach",
    "cli files",
    "cli kills",
    "cli promises",
    "cli roles",
    "cli runs",
    "cli secrets",
    "cli steps",
    "cli sweep",
];
/// Programs that run alone, because all programs share the cluster: they kill the operator, or sweep what is stored as if
/// it were older than it is.
const ALONE: [&str; 3] = ["cli kills", "cli sweep", "e2e crash"];
/// Tests in these programs that run on the embedded cluster only.
const WITHOUT: [&str; 2] = ["--skip", "embedded::"];

/// Programs that run again with the runner in an image volume.
const AGAIN: [&str; 2] = ["cli steps", "e2e thin_path"];
/// The flag of `knoll install` for image volumes, which make Runs start sooner.
pub const IMAGE_VOLUMES: [&str; 1] = ["--image-volumes"];

/// Programs that run at once. Two keep a node on two cores busy.
const LANES: usize = 2;

/// Whether a test program runs on any cluster.
fn runs_anywhere(name: &str) -> bool {
    name.starts_with("e2e ") && name != "e2e (lib)" || PROGRAMS.contains(&name)
}

/// Runs the tests on a real cluster, where this machine can have one, and returns how many passed.
pub fn run(programs: &[TestProgram], settings: &[(&str, &str)]) -> anyhow::Result<usize> {
    let programs: Vec<TestProgram> = programs.iter().filter(|program| runs_anywhere(&program.name)).cloned().collect();
    if let Err(why) = node_possible() {
        let count = suite::count(&programs, &WITHOUT)?;
        not_run(&format!("{count} tests on a real cluster"), &why)?;
        return Ok(0);
    }
    let place = Place::of(None)?;
    let ran = place.kubeconfig().exists();
    phase("starting a real cluster with a node", || Up { node: true, ..Up::default() }.run(&place))?;
    let tested = on(&place, &programs, settings);
    // A cluster that ran before belongs to the user.
    if !ran {
        down(&place, true)?;
    }
    tested
}

/// Reports tests that cannot run on this machine. CI must run them.
pub fn not_run(tests: &str, why: &str) -> anyhow::Result<()> {
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        bail!("CI must run {tests}: {why}");
    }
    println!("==> NOT RUN: {tests}: {why}");
    Ok(())
}

fn on(place: &Place, programs: &[TestProgram], settings: &[(&str, &str)]) -> anyhow::Result<usize> {
    let built = build::folder("debug")?;
    phase("loading images", || image::load_built(place, &built))?;
    install(&built.join("knoll"), place, &[])?;
    let kubeconfig = place.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let settings = [settings, &[("KNOLL_E2E", "real"), ("KNOLL_E2E_KUBECONFIG", &kubeconfig)]].concat();
    let run = |lanes, programs: &[TestProgram]| {
        suite::run_in(lanes, programs, &settings, &WITHOUT, &|| diagnose(place, &kubeconfig))
    };
    let passed = phase("tests on the real cluster", || {
        let (alone, beside): (Vec<TestProgram>, Vec<TestProgram>) =
            programs.iter().cloned().partition(|program| ALONE.contains(&program.name.as_str()));
        Ok(run(LANES, &beside)? + run(1, &alone)?)
    })?;
    install(&built.join("knoll"), place, &IMAGE_VOLUMES)?;
    let again: Vec<TestProgram> =
        programs.iter().filter(|program| AGAIN.contains(&program.name.as_str())).cloned().collect();
    let passed = passed + phase("tests with image volumes", || run(LANES, &again))?;
    phase("comparing the operator's role with the audit log", || permissions::check(place))?;
    Ok(passed)
}

/// Prints the state of the cluster and of the operator after a test has failed.
fn diagnose(place: &Place, kubeconfig: &str) {
    let _ = cluster::status(place);
    let system = ["--namespace", "knoll-system"];
    let questions: [&[&str]; 4] = [
        &["get", "nodes,pods", "--all-namespaces", "--output", "wide"],
        &["get", "events", "--sort-by", ".metadata.creationTimestamp"],
        &["get", "leases", "--output", "wide"],
        &["logs", "--selector", "app.kubernetes.io/name=knoll", "--tail", "15"],
    ];
    for words in questions {
        println!("$ kubectl {}", words.join(" "));
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["--kubeconfig", kubeconfig, "--request-timeout", "5s"]).args(system).args(words);
        // A question that fails is part of the diagnosis.
        let _ = kubectl.status();
    }
}

fn node_address(kubeconfig: &Path) -> anyhow::Result<String> {
    let path = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    let mut kubectl = Command::new("kubectl");
    let output = kubectl.arg("--kubeconfig").arg(kubeconfig).args(["get", "nodes", "--output", path]).output()?;
    let address = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if address.is_empty() {
        bail!("the node has no address: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(address)
}

/// Installs Knoll with these flags, or updates it.
pub fn install(knoll: &Path, place: &Place, flags: &[&str]) -> anyhow::Result<()> {
    let kubeconfig = place.kubeconfig();
    phase("installing Knoll", || {
        let mut install = Command::new(knoll);
        install.arg("install").arg("--kubeconfig").arg(&kubeconfig).args(flags);
        // The git servers of tests listen on the node's address, and speak plain http.
        install.args(["--allow-source-cidr", &node_address(&kubeconfig)?, "--plain-http-credentials"]);
        status(&mut install)?;
        // The node has an image of the terraform of this machine, in its version.
        let version = format!("KNOLL_TERRAFORM_VERSION={}", image::terraform_version()?);
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace", "knoll-system", "set", "env"]);
        status(kubectl.args(["deployment/knoll-operator", &version]))?;
        // A new image has the same name, so a running operator must be restarted to use it.
        for words in [["restart", "deployment/knoll-operator"], ["status", "deployment/knoll-operator"]] {
            let mut kubectl = Command::new("kubectl");
            kubectl.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace", "knoll-system", "rollout"]).args(words);
            status(&mut kubectl)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::progress::root;

    /// The tests of a table of `docs/trust-tests.md`: program, function, clusters.
    fn rows(text: &str) -> Vec<[&str; 3]> {
        text.lines()
            .filter_map(|line| {
                let mut cells = line.strip_suffix(" |")?.rsplit(" | ");
                let (on, test) = (cells.next()?, cells.next()?);
                let (program, function) = test.split_once(": ")?;
                Some([program.trim_matches('`'), function.trim_matches('`'), on])
            })
            .collect()
    }

    #[test]
    fn the_page_of_tests_names_tests_that_run_where_it_says() {
        let text = std::fs::read_to_string(root().join("docs/trust-tests.md")).unwrap();
        let rows = rows(&text);
        assert!(rows.len() > 30, "{rows:?}");
        for [program, function, on] in rows {
            let (package, name) = program.split_once(' ').unwrap();
            let file = root().join(format!("crates/{package}/tests/{name}.rs"));
            let source = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(source.contains(&format!("fn {function}()")), "{program} has no test `{function}`");
            assert_eq!(runs_anywhere(program), matches!(on, "both" | "real"), "{program}: {on}");
            assert!(matches!(on, "both" | "real" | "embedded"), "{program}: {on}");
        }
    }
}
