//! What the rules of Policies judge: the JSON of a plan, and the pod that makes it from a stored plan alone.
//!
//! *Guarantees.* Nothing of the module, its variables, its arguments or its environment is written or run in that pod: terraform reads
//! the plan, which has its own copy of the configuration. Providers run, because they describe their resources; they are those
//! of the plan's own lock file, and come from the Policy's mirror alone if it names one.

use std::fs;
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::str::FromStr;

use hcl_edit::structure::Body;
use knoll_api::wire::{EndReason, Job, LARGEST_PLAN_JSON, PlanJudged, VERDICT_TIMEOUT, path};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::setup::{Folders, SetupError, write};
use crate::steps::{Failure, Steps};
use crate::tool;

/// The lock file among the files of a plan.
const LOCK_FILE: &str = ".terraform.lock.hcl";
/// A larger lock file is none of terraform's: one of a hundred providers has 150 KiB.
const LARGEST_LOCK_FILE: u64 = 4 << 20;
/// The length of the end of a zip archive's directory, without a comment.
const END_OF_DIRECTORY: usize = 22;

/// The job without what comes from the user. The values that have to be masked are known by now.
pub fn without_inputs(job: Job) -> Job {
    Job {
        args: Vec::new(),
        variables: Vec::new(),
        variable_files: Default::default(),
        sensitive_files: Vec::new(),
        input: None,
        targets: Vec::new(),
        replace: Vec::new(),
        hooks: Vec::new(),
        lock_file: None,
        managed_state: false,
        ..job
    }
}

/// Writes the plan, and what terraform needs to read it.
///
/// # Errors
/// If the plan is not one of terraform's, or a file cannot be written.
pub fn prepare(job: &Job, plan: &[u8], folders: &Folders) -> Result<(), SetupError> {
    let module = folders.bundle();
    let failed = |path: PathBuf| |source| SetupError::Write { path, source };
    // A restarted container finds the files of the previous one.
    if module.exists() {
        fs::remove_dir_all(&module).map_err(failed(module.clone()))?;
    }
    fs::create_dir_all(&module).map_err(failed(module.clone()))?;
    let lock_file = lock_file(plan).ok_or(SetupError::Plan)?;
    let mut settings = Map::new();
    settings.insert("required_providers".to_owned(), providers(&lock_file).ok_or(SetupError::Plan)?);
    if let Some(version) = &job.version {
        settings.insert("required_version".to_owned(), tool::constraint(version).into());
    }
    write(&module.join("providers.tf.json"), json!({"terraform": settings}).to_string().as_bytes())?;
    write(&module.join(LOCK_FILE), lock_file.as_bytes())?;
    write(&folders.plan(), plan)?;
    write(&folders.registry().settings(), job.mirror.as_deref().map(mirrored).unwrap_or_default().as_bytes())
}

impl Steps {
    /// Sends the plan's JSON to the hub, which judges it by the rules of Policies, and prints what they say. What follows
    /// from it is the hub's decision.
    pub(crate) async fn have_judged(&self, digest: &str) -> Result<(), Failure> {
        let failed = |why: String| {
            Failure::new(EndReason::StepFailed, format!("the plan cannot be judged by the rules of Policies: {why}"))
        };
        let json = std::fs::read(self.folders.plan_json()).map_err(|error| failed(error.to_string()))?;
        if json.len() as u64 > LARGEST_PLAN_JSON {
            let (has, most) = (json.len() >> 20, LARGEST_PLAN_JSON >> 20);
            return Err(failed(format!("its JSON has {has} MiB, and they judge {most} MiB at most; split the module")));
        }
        let address = format!("{}?digest={digest}", path::PLAN_JSON);
        let judged = self.hub.submit("the plan's JSON", Method::PUT, &address, json.into(), VERDICT_TIMEOUT).await;
        let judged = judged.map_err(|error| failed(error.sentence()))?;
        let PlanJudged { results } = serde_json::from_slice(&judged).map_err(|error| failed(error.to_string()))?;
        for result in results {
            self.console.line(&format!("knoll: {result}")).await;
        }
        Ok(())
    }

    /// Lets the hub keep the JSON of a plan that no rule judges, so that new rules can be tried on it. The run goes on
    /// without that.
    pub(crate) async fn have_kept(&self, digest: &str) {
        let json = std::fs::read(self.folders.plan_json()).unwrap_or_default();
        // The pod that describes the stored plan hands in its own.
        if json.is_empty() || json.len() as u64 > LARGEST_PLAN_JSON || self.job.isolated {
            return;
        }
        let address = format!("{}?digest={digest}", path::PLAN_JSON);
        if let Err(error) = self.hub.send("the plan's JSON", Method::PUT, &address, json.into()).await {
            tracing::warn!(%error, "the JSON of the plan is not kept");
        }
    }
}

/// Settings by which every provider comes from one mirror.
fn mirrored(url: &str) -> String {
    // The address has neither quotes nor escapes: the kind's rule says so.
    format!("provider_installation {{\n  network_mirror {{\n    url = \"{url}\"\n  }}\n}}\n")
}

/// The lock file of a plan, which is a zip archive. None if terraform could find another one in the same bytes.
fn lock_file(plan: &[u8]) -> Option<String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(plan)).ok().filter(|_| has_one_directory(plan))?;
    if archive.has_duplicate_names() || archive.offset() != 0 {
        return None;
    }
    for number in 0..archive.len() {
        let entry = archive.by_index_raw(number).ok()?;
        // An extra field can give an entry another name for some readers.
        if entry.name().ok()?.as_bytes() != entry.name_raw() {
            return None;
        }
    }
    let mut text = String::new();
    let entry = archive.by_name(LOCK_FILE).ok()?;
    entry.take(LARGEST_LOCK_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether every reader finds the same directory in an archive: its end is that of the bytes, with nothing between the two.
/// Terraform and tofu write plans without a comment, and far smaller than what needs the larger form.
fn has_one_directory(archive: &[u8]) -> bool {
    let Some((rest, end)) = archive.split_last_chunk::<END_OF_DIRECTORY>() else { return false };
    let number = |at: usize| u32::from_le_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]) as usize;
    let (size, offset) = (number(12), number(16));
    end.starts_with(b"PK\x05\x06") && end.ends_with(&[0, 0]) && offset.checked_add(size) == Some(rest.len())
}

/// The providers of a lock file, each in exactly its version.
fn providers(lock_file: &str) -> Option<Value> {
    let body = Body::from_str(lock_file).ok()?;
    let mut found = Map::new();
    for (number, block) in body.get_blocks("provider").enumerate() {
        let source = block.labels.first()?.as_str();
        let version = block.body.get_attribute("version")?.value.as_str()?;
        let provider = json!({"source": source, "version": format!("= {version}")});
        found.insert(format!("p{number}"), provider);
    }
    Some(found.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use super::*;

    fn plan(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in files {
            archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn the_providers_are_those_of_the_plan_in_their_versions() {
        let lock = "provider \"registry.terraform.io/hashicorp/aws\" {\n  version     = \"5.100.0\"\n  hashes = [\"h1:x\"]\n}\n\
                    provider \"example.com/team/own\" {\n  version = \"1.0.0\"\n}\n";
        let found = lock_file(&plan(&[("tfplan", "x"), (LOCK_FILE, lock)])).unwrap();
        assert_eq!(found, lock);
        let expect = json!({
            "p0": {"source": "registry.terraform.io/hashicorp/aws", "version": "= 5.100.0"},
            "p1": {"source": "example.com/team/own", "version": "= 1.0.0"},
        });
        assert_eq!(providers(&found), Some(expect));
        assert_eq!(providers("# nothing\n"), Some(json!({})));
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        assert_eq!(lock_file(b"nonsense"), None);
        assert_eq!(lock_file(&plan(&[("tfplan", "x")])), None);
        assert_eq!(providers("provider \"a\" {}"), None);
        assert_eq!(providers("provider {"), None);
    }

    /// The plan that was described had one lock file for this reader, and another one for terraform.
    #[test]
    fn a_plan_that_two_readers_could_read_differently_was_described() {
        let other = ".terraform.lock.hcX";
        let one = plan(&[("tfplan", "x"), (LOCK_FILE, "# mine")]);
        let mut two = plan(&[(LOCK_FILE, "# mine"), ("tfplan", "x"), (other, "# other")]);
        assert_eq!(lock_file(&two).as_deref(), Some("# mine"));
        while let Some(at) = two.windows(other.len()).position(|bytes| bytes == other.as_bytes()) {
            two[at..at + other.len()].copy_from_slice(LOCK_FILE.as_bytes());
        }
        assert_eq!(lock_file(&two), None, "two entries of one name");
        let with_comment = |length: usize| {
            let mut bytes = one.clone();
            let end = bytes.len();
            bytes[end - 2..].copy_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
            bytes.extend(std::iter::repeat_n(b' ', length));
            bytes
        };
        let rows = [
            ("in front of another archive", [one.clone(), one.clone()].concat()),
            ("behind other bytes", [b"PK".to_vec(), one.clone()].concat()),
            ("with bytes behind it", [one.clone(), vec![0]].concat()),
            ("with a comment", with_comment(30)),
            ("cut off", one[..one.len() - 1].to_vec()),
        ];
        for (what, bytes) in rows {
            assert_eq!(lock_file(&bytes), None, "{what}");
        }
        assert_eq!(lock_file(&one).as_deref(), Some("# mine"));
    }

    #[test]
    fn providers_come_from_the_mirror_alone() {
        let text = mirrored("https://mirror.example.com/providers/");
        let body = Body::from_str(&text).unwrap();
        let places: Vec<_> = body.get_blocks("provider_installation").flat_map(|block| block.body.blocks()).collect();
        assert_eq!(places.len(), 1);
        assert_eq!(places[0].ident.as_str(), "network_mirror");
    }
}
