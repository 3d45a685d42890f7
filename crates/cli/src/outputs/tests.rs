//! Compared with the real terraform, byte for byte.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

use knoll_api::workspace::Tool;

use super::*;

const MODULE: &str = r#"
output "a_string" { value = "plain" }
output "lines" { value = "a\nb\n" }
output "large" { value = 123456789012345678901234567890 }
output "fraction" { value = 1.5 }
output "small" { value = 0.000000000000000000001 }
output "negative" { value = -3 }
output "yes" { value = true }
output "nothing" { value = null }
output "empty" { value = "" }
output "list" { value = tolist(["a", "b"]) }
output "set" { value = toset(["b", "a"]) }
output "tuple" { value = ["a", 1, true, null, [], {}] }
output "map" { value = tomap({ a = "x", "b c" = "y" }) }
output "nested" {
  value = {
    a = 1
    b = {
      c  = ["x", "l1\nl2\n EOT "]
      d  = {}
      e  = tolist([])
      n  = tolist(null)
      m  = tomap(null)
      s  = toset([{ x = 1 }, { x = 2 }])
      sn = tostring(null)
      nn = tonumber(null)
      bn = tobool(null)
      dy = null
    }
  }
}
output "typed_nulls" {
  value = [for x in [true, false] : x ? { a = [1], b = tomap({ k = tolist(["v"]) }) } : null]
}
output "objects" { value = tolist([{ a = 1 }, { a = 2 }]) }
output "unicode" { value = "ü <&> \u2028 é \u00a0 😀 \" \\ \t \u0008 \u000c \u0001 \u007f \ufeff $${x} %%{y} ' a\u0301 \u200b" }
output "secret" {
  value     = { password = "hunter2" }
  sensitive = true
}
output "secret_text" {
  value     = "hunter2"
  sensitive = true
}
"#;

fn terraform(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("terraform");
    command.args(words).current_dir(folder).env_remove("TF_CLI_CONFIG_FILE").env("CHECKPOINT_DISABLE", "1");
    command.output().unwrap()
}

/// The tool that the tests have under the name `terraform`.
fn tool() -> Tool {
    let version = terraform(Path::new("/"), &["version"]).stdout;
    if version.starts_with(b"OpenTofu") { Tool::Tofu } else { Tool::Terraform }
}

/// What `knoll output` prints on a stream that is no terminal: standard output, standard error, and whether it fails.
fn ours(outputs: &Outputs, words: &[&str]) -> (String, String, bool) {
    let args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let tool = tool();
    let answer = match Flags::parse(&args, tool) {
        Ok(flags) => answer(outputs, &flags, tool.program()),
        Err(faults) => Answer::misuse(faults, tool.program()),
    };
    let style = Style { colour: !is_plain(&args), columns: 78 };
    let told = |errors: bool| {
        let told = answer.diagnostics.iter().filter(|diagnostic| diagnostic.is_error == errors);
        told.map(|diagnostic| diagnostic.format(style)).collect::<String>()
    };
    let failed = answer.diagnostics.iter().any(|diagnostic| diagnostic.is_error);
    let usage = answer.usage.clone().unwrap_or_default();
    (format!("{}{}", answer.text, told(false)), told(true) + &usage, failed)
}

#[track_caller]
fn check(folder: &Path, outputs: &Outputs, words: &[&str]) {
    let theirs = terraform(folder, &[&["output"], words].concat());
    let (out, err, failed) = ours(outputs, words);
    assert_eq!(out, String::from_utf8(theirs.stdout).unwrap(), "{words:?}");
    assert_eq!(err, String::from_utf8(theirs.stderr).unwrap(), "{words:?}");
    assert_eq!(i32::from(failed), theirs.status.code().unwrap(), "{words:?}");
}

#[test]
fn outputs_are_printed_as_terraform_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("main.tf"), MODULE).unwrap();
    assert!(terraform(folder.path(), &["init"]).status.success());
    let applied = terraform(folder.path(), &["apply", "-auto-approve"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let state = std::fs::read(folder.path().join("terraform.tfstate")).unwrap();
    let outputs = parse(&state).unwrap();
    let check = |words: &[&str]| check(folder.path(), &outputs, words);
    check(&["-no-color"]);
    check(&["-json"]);
    for name in outputs.keys().map(String::as_str).chain(["nothing", "unknown", "un\"known"]) {
        check(&["-no-color", name]);
        check(&["-no-color", "-json", name]);
        check(&["-no-color", "-raw", name]);
    }
    for words in [
        &["unknown"][..],
        &["-raw", "list"],
        &["-no-color", "-raw"],
        &["-raw", "-json", "-no-color", "a_string"],
        &["-json", "-raw", "a_string"],
        &["-no-color", "a_string", "list"],
        &["-no-color", "a_string", "-json"],
        &["-no-color", "-bogus"],
        &["-no-color", "-raw=x", "a_string"],
        &["-json=false", "-raw=true", "a_string"],
        &["--json", "--", "a_string"],
    ] {
        check(words);
    }
}

#[test]
fn no_outputs_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&[][..], &["-no-color"], &["-json"], &["-raw", "x"], &["-json", "x"], &["x"]] {
        check(folder.path(), &Outputs::new(), words);
    }
}

#[test]
fn a_state_that_is_too_deep_is_refused() {
    let value = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let state = format!(r#"{{"outputs": {{"a": {{"value": {value}, "type": "dynamic"}}}}}}"#);
    assert!(parse(state.as_bytes()).is_err());
}
