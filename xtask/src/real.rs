//! The tests on a real cluster: the same programs that run on the embedded one, with Knoll installed as a user would.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::build;
use crate::cluster::{self, Place, Up, down, node_possible};
use crate::image;
use crate::progress::{phase, status};
use crate::suite::{self, Program};

/// The programs that run on any cluster: those of the package `e2e`, and these.
const PROGRAMS: [&str; 7] =
    ["cli attach", "cli files", "cli kills", "cli promises", "cli roles", "cli runs", "cli steps"];
/// Those of them that end the operator, which all of them share.
const ALONE: [&str; 2] = ["cli kills", "e2e crash"];
/// What they leave to the embedded cluster.
const WITHOUT: [&str; 2] = ["--skip", "embedded::"];

/// Those that run again where pods take the runner from an image volume.
const AGAIN: [&str; 2] = ["cli steps", "e2e thin_path"];
/// The cluster has image volumes, and Runs start sooner with them.
pub const IMAGE_VOLUMES: [&str; 1] = ["--image-volumes"];

/// A node on two cores has enough to do with two.
const LANES: usize = 2;

/// Runs them, or says that nothing can run them here; how many have passed. A machine for CI must be able to.
pub fn run(programs: &[Program], settings: &[(&str, &str)]) -> anyhow::Result<usize> {
    let runs_anywhere = |name: &str| name.starts_with("e2e ") && name != "e2e (lib)" || PROGRAMS.contains(&name);
    let programs: Vec<Program> = programs.iter().filter(|program| runs_anywhere(&program.name)).cloned().collect();
    if let Err(why) = node_possible() {
        let count = suite::count(&programs, &WITHOUT)?;
        if std::env::var("CI").is_ok_and(|ci| ci == "true") {
            bail!("{count} tests need a real cluster, and CI must run them: {why}");
        }
        println!("==> NOT RUN: {count} tests on a real cluster: {why}");
        return Ok(0);
    }
    let place = Place::of(None)?;
    let ran = place.kubeconfig().exists();
    phase("starting a real cluster with a node", || Up { node: true, ..Up::default() }.run(&place))?;
    let tested = on(&place, &programs, settings);
    // A cluster that was there before is somebody's.
    if !ran {
        down(&place, true)?;
    }
    tested
}

fn on(place: &Place, programs: &[Program], settings: &[(&str, &str)]) -> anyhow::Result<usize> {
    let built = build::folder("debug")?;
    phase("loading images", || image::load_built(place, &built))?;
    install(&built.join("knoll"), place, &[])?;
    let kubeconfig = place.kubeconfig();
    let kubeconfig = kubeconfig.to_string_lossy();
    let settings = [settings, &[("KNOLL_E2E", "real"), ("KNOLL_E2E_KUBECONFIG", &kubeconfig)]].concat();
    let run = |lanes, programs: &[Program]| {
        suite::run_in(lanes, programs, &settings, &WITHOUT, &|| look_around(place, &kubeconfig))
    };
    let passed = phase("tests on the real cluster", || {
        let (alone, beside): (Vec<Program>, Vec<Program>) =
            programs.iter().cloned().partition(|program| ALONE.contains(&program.name.as_str()));
        Ok(run(LANES, &beside)? + run(1, &alone)?)
    })?;
    install(&built.join("knoll"), place, &IMAGE_VOLUMES)?;
    let again: Vec<Program> =
        programs.iter().filter(|program| AGAIN.contains(&program.name.as_str())).cloned().collect();
    Ok(passed + phase("tests with image volumes", || run(LANES, &again))?)
}

/// Shows what a person would look at first when a test has failed: whether all of the cluster runs, and the operator.
fn look_around(place: &Place, kubeconfig: &str) {
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
        // Whatever it cannot say is a finding too.
        let _ = kubectl.status();
    }
}

/// Installs Knoll with these flags, or what is new of it.
pub fn install(knoll: &Path, place: &Place, flags: &[&str]) -> anyhow::Result<()> {
    let kubeconfig = place.kubeconfig();
    phase("installing Knoll", || {
        status(Command::new(knoll).arg("install").arg("--kubeconfig").arg(&kubeconfig).args(flags))?;
        // The image has the name that it had before, and an operator that was there does not know that it is another.
        for words in [["restart", "deployment/knoll-operator"], ["status", "deployment/knoll-operator"]] {
            let mut kubectl = Command::new("kubectl");
            kubectl.arg("--kubeconfig").arg(&kubeconfig).args(["--namespace", "knoll-system", "rollout"]).args(words);
            status(&mut kubectl)?;
        }
        Ok(())
    })
}
