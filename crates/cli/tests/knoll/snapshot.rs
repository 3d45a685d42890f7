//! Compares the output of commands with the files in `tests/snapshots`.
//!
//! `KNOLL_UPDATE_SNAPSHOTS=1 cargo test -p knoll` updates the files.

use std::path::PathBuf;

use regex::Regex;

use super::Home;

/// Compares `text` with the snapshot of that name.
#[track_caller]
pub fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("KNOLL_UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    if known != text {
        let diff = similar::TextDiff::from_lines(&known, text);
        panic!("`{name}` has changed:\n{}", diff.unified_diff().header("written down", "now"));
    }
}

/// Collapses the padding of table columns, which depends on values that vary.
pub fn narrow(text: &str) -> String {
    let text = Regex::new(" {3,}").unwrap().replace_all(text, "   ");
    Regex::new("(?m) +$").unwrap().replace_all(&text, "").into_owned()
}

/// Replaces the parts of `text` that vary between runs.
pub fn settled(home: &Home, text: &str) -> String {
    let folder = home.folder.path().canonicalize().unwrap().display().to_string();
    let rules = [
        (regex::escape(&folder), "/HOME"),
        (r"127\.0\.0\.1:\d+".into(), "127.0.0.1:PORT"),
        (r"\bnet-(plan|apply|destroy|output|sh)-[a-z0-9]{5}-[a-z0-9]{5}\b".into(), "net-$1-xxxxx-xxxxx"),
        (r"\bnet-(plan|apply|destroy|output|sh)-[a-z0-9]{5}\b".into(), "net-$1-xxxxx"),
        (r"sha256:[0-9a-f]+".into(), "sha256:..."),
        (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b".into(), "UUID"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\dZ]*".into(), "TIME"),
        (r"\b\d+(\.\d)?s\b".into(), "0s"),
        (r"\bcli-tmp\w+".into(), "NAMESPACE"),
        (r"process \d+".into(), "process N"),
        (r"port \d{5}\b".into(), "port N"),
        // On a machine without terraform, `cargo xtask test` uses OpenTofu under that name.
        (r"OpenTofu( v[\d.]+| used| will| has| planned| could| can| Core| version [\d.]+)".into(), "Terraform${1}"),
        (r"built in to OpenTofu".into(), "built in to Terraform"),
        (r"Terraform v[\d.]+".into(), "Terraform VERSION"),
        (r"Terraform version \d+\.\d+\.\d+".into(), "Terraform version VERSION"),
        (r"has [\d.]+; set `spec.version` to [\d.]+".into(), "has VERSION; set `spec.version` to VERSION"),
        // They also have other empty lines.
        (r"(knoll: step init\n)\n+".into(), "${1}"),
        (r"(Initializing the backend\.\.\.\n)\n+".into(), "${1}\n"),
        (r"\n+(\nknoll: error: the Workspace requires)".into(), "${1}"),
        // Terraform and OpenTofu write a state a different number of times, and count the writes.
        (r"\bserial(:?) [1-9]\b".into(), "serial${1} N"),
        (r"\bit has [1-9]\b".into(), "it has N"),
        (r"(?m)^[1-9]( +current )".into(), "N${1}"),
        (r"( Idle +0 +)[1-9]( +\d+ )".into(), "${1}N${2}"),
        (r"(?m)^(knoll state (?:diff|rollback) )[1-9]$".into(), "${1}N"),
        (r"(?m)^( *Image: +)\S.*$".into(), "${1}IMAGE"),
        (r"(resourceVersion: )\S+".into(), "${1}N"),
        (r"(uid: )\S+".into(), "${1}UID"),
        (r"/tmp/net-\w{6}\.yaml".into(), "/tmp/net-xxxxxx.yaml"),
    ];
    rules
        .iter()
        .fold(text.to_owned(), |text, (pattern, by)| Regex::new(pattern).unwrap().replace_all(&text, *by).into_owned())
}
