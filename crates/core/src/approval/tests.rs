#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knoll_api::{approval::ApprovalSpec, run::RunStatus};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn approval(name: &str, run: &str, digest: &str, decision: Decision, created: i64) -> Approval {
    let spec = ApprovalSpec { run: run.into(), digest: digest.into(), decision, by: "alice".into(), comment: None };
    let mut approval = Approval::new(name, spec);
    approval.metadata.creation_timestamp = Some(Time(at(created)));
    approval
}

fn run(phase: RunPhase, digest: Option<&str>) -> Run {
    let mut run = Run::new("r", RunSpec::default());
    run.metadata.creation_timestamp = Some(Time(at(10)));
    run.status = Some(RunStatus { phase, review_digest: digest.map(str::to_owned), ..RunStatus::default() });
    run
}

#[track_caller]
fn check(approvals: &[Approval], expect: Option<(&str, Decision)>) {
    let got = match judge(&run(RunPhase::Review, Some("d")), "d", approvals) {
        Verdict::Decided(decision) => Some((decision.approval, decision.decision)),
        Verdict::Open { .. } => None,
    };
    assert_eq!(got, expect.map(|(name, decision)| (name.to_owned(), decision)));
}

#[test]
fn only_the_first_decision_on_the_exact_digest_counts() {
    use Decision::{Approve, Discard};
    check(&[], None);
    check(&[approval("a", "r", "d", Approve, 20)], Some(("a", Approve)));
    check(&[approval("a", "other", "d", Approve, 20)], None);
    check(&[approval("a", "r", "e", Approve, 20)], None);
    check(&[approval("a", "r", "", Approve, 20)], None);
    check(&[approval("b", "r", "d", Approve, 30), approval("a", "r", "d", Discard, 20)], Some(("a", Discard)));
    check(&[approval("b", "r", "d", Discard, 20), approval("a", "r", "d", Approve, 20)], Some(("a", Approve)));
    // It was meant for an earlier run of the same name.
    check(&[approval("a", "r", "d", Approve, 9)], None);
}

#[track_caller]
fn check_effect(run: Option<Run>, digest: &str, expect: Option<(ApprovalPhase, &str)>) {
    let approval = approval("a", "r", digest, Decision::Approve, 20);
    let status = effect(&approval, run.as_ref(), at(30));
    let got = status.as_ref().map(|status| (status.phase, status.conditions[0].reason.as_str()));
    assert_eq!(got, expect);
}

#[test]
fn an_approval_is_told_what_it_did() {
    let decided = |name: &str| {
        let mut run = run(RunPhase::Running, None);
        let decision = ReviewDecision { approval: name.into(), decision: Decision::Approve, by: "alice".into() };
        run.status.as_mut().unwrap().decision = Some(decision);
        Some(run)
    };
    check_effect(decided("a"), "d", Some((ApprovalPhase::Effective, reason::EFFECTIVE)));
    check_effect(decided("b"), "d", Some((ApprovalPhase::NoEffect, reason::NOT_WAITING)));
    check_effect(None, "d", Some((ApprovalPhase::NoEffect, reason::NOT_WAITING)));
    check_effect(Some(run(RunPhase::Failed, None)), "d", Some((ApprovalPhase::NoEffect, reason::NOT_WAITING)));
    check_effect(Some(run(RunPhase::Review, Some("e"))), "d", Some((ApprovalPhase::NoEffect, reason::DIGEST_MISMATCH)));
    // It may still come to it.
    check_effect(Some(run(RunPhase::Review, Some("d"))), "d", None);
    check_effect(Some(run(RunPhase::Running, None)), "d", None);
}

#[test]
fn commands_are_privileged_by_their_first_words() {
    let workspace =
        WorkspaceSpec { privileged_commands: vec!["state rm".into(), "sh".into()], ..WorkspaceSpec::default() };
    let rows = [
        ("state rm", &["a.b"][..], true),
        ("state", &["rm", "a.b"], true),
        ("state", &["list"], false),
        ("sh", &[], true),
        ("show", &[], false),
    ];
    for (command, args, expect) in rows {
        let args = args.iter().map(ToString::to_string).collect();
        let spec = RunSpec { operation: Operation::Command, command: Some(command.into()), args, ..RunSpec::default() };
        assert_eq!(is_privileged(&spec, &workspace), expect, "{command}");
    }
}

#[test]
fn two_commands_have_two_digests() {
    let digest = |args: &[&str], bundle| {
        let args = args.iter().map(ToString::to_string).collect();
        command_digest(&RunSpec { command: Some("sh".into()), args, ..RunSpec::default() }, bundle)
    };
    let all = [digest(&["a", "b"], None), digest(&["ab"], None), digest(&["a"], Some("b")), digest(&["a b"], None)];
    for (index, one) in all.iter().enumerate() {
        assert!(one.starts_with("sha256:") && one.len() == 71);
        assert!(all[index + 1..].iter().all(|other| other != one));
    }
}
