#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knoll_api::{
    approval::ApprovalSpec,
    run::{Operation, PlanSummary},
};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn approval(name: &str, run: &str, digest: &str, decision: Decision, created: i64) -> Approval {
    let spec = ApprovalSpec {
        run: run.into(),
        digest: digest.into(),
        decision,
        by: "alice".into(),
        ..ApprovalSpec::default()
    };
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
    let got = match judge(&run(RunPhase::Review, Some("d")), "d", approvals, &Reviewers::default()) {
        Verdict::Decided(decision) => Some((decision.approvals.join(","), decision.decision)),
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
    let status = effect(&approval, run.as_ref(), &[&approval], &Reviewers::default(), at(30));
    let got = status.as_ref().map(|status| (status.phase, status.conditions[0].reason.as_str()));
    assert_eq!(got, expect);
}

#[test]
fn an_approval_is_told_what_it_did() {
    let decided = |name: &str| {
        let mut run = run(RunPhase::Running, None);
        let decision = ReviewDecision { approvals: vec![name.into()], decision: Decision::Approve, by: "alice".into() };
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
fn an_approval_that_took_effect_stays_effective_when_its_run_is_gone() {
    let mut approval = approval("a", "r", "d", Decision::Approve, 20);
    approval.status = Some(ApprovalStatus { phase: ApprovalPhase::Effective, ..ApprovalStatus::default() });
    for run in [None, Some(run(RunPhase::Review, Some("e"))), Some(run(RunPhase::Failed, None))] {
        assert_eq!(effect(&approval, run.as_ref(), &[&approval], &Reviewers::default(), at(30)), None, "{run:?}");
    }
}

/// An Approval by this user, who names these groups.
fn by(name: &str, user: &str, groups: &[&str], created: i64) -> Approval {
    let mut approval = approval(name, "r", "d", Decision::Approve, created);
    approval.spec.by = user.into();
    approval.spec.groups = groups.iter().map(ToString::to_string).collect();
    approval
}

#[track_caller]
fn check_reviewers(reviewers: &Reviewers, approvals: &[Approval], expect: &str) {
    let run = run(RunPhase::Review, Some("d"));
    let got = match judge(&run, "d", approvals, reviewers) {
        Verdict::Decided(decision) => format!("{:?} by {}", decision.decision, decision.by),
        Verdict::Open { counted, needed, .. } => format!("{} of {needed}", counted.len()),
    };
    assert_eq!(got, expect);
}

#[test]
fn a_run_needs_as_many_different_users_as_the_policies_demand() {
    let two = Reviewers { approvers: 2, ..Reviewers::default() };
    check_reviewers(&two, &[], "0 of 2");
    check_reviewers(&two, &[by("a", "ann", &[], 20)], "1 of 2");
    check_reviewers(&two, &[by("a", "ann", &[], 20), by("b", "ann", &[], 21)], "1 of 2");
    check_reviewers(&two, &[by("a", "ann", &[], 20), by("b", "bob", &[], 21)], "Approve by ann, bob");
    let mut discards = by("c", "cid", &[], 22);
    discards.spec.decision = Decision::Discard;
    check_reviewers(&two, &[by("a", "ann", &[], 20), discards], "Discard by cid");

    let groups = Reviewers {
        approvers: 1,
        groups: vec![("p".into(), vec!["release".into(), "ops".into()]), ("q".into(), vec!["eu".into()])],
        ..Reviewers::default()
    };
    check_reviewers(&groups, &[by("a", "ann", &[], 20)], "0 of 1");
    check_reviewers(&groups, &[by("a", "ann", &["ops"], 20)], "0 of 1");
    check_reviewers(&groups, &[by("a", "ann", &["opsx", "eu"], 20)], "0 of 1");
    check_reviewers(&groups, &[by("a", "ann", &["eu", "ops"], 20)], "Approve by ann");

    // The requester is not known, so there has to be one more.
    let four_eyes = Reviewers { approvers: 1, four_eyes: vec!["p".into()], ..Reviewers::default() };
    check_reviewers(&four_eyes, &[by("a", "ann", &[], 20)], "1 of 2");
    check_reviewers(&four_eyes, &[by("a", "ann", &[], 20), by("b", "bob", &[], 21)], "Approve by ann, bob");
}

#[test]
fn who_asked_for_a_run_does_not_approve_it() {
    let four_eyes = Reviewers { approvers: 1, four_eyes: vec!["p".into()], ..Reviewers::default() };
    let mut run = run(RunPhase::Review, Some("d"));
    run.spec.requested_by = Some("ann".into());
    let own = by("a", "ann", &[], 20);
    assert!(matches!(judge(&run, "d", [&own], &four_eyes), Verdict::Open { needed: 1, .. }));
    let status = effect(&own, Some(&run), &[&own], &four_eyes, at(30)).unwrap();
    assert_eq!((status.phase, status.conditions[0].reason.as_str()), (ApprovalPhase::NoEffect, reason::REQUESTER));
    assert!(matches!(judge(&run, "d", [&own, &by("b", "bob", &[], 21)], &four_eyes), Verdict::Decided(_)));
}

#[test]
fn an_approval_that_does_not_count_says_why() {
    let reviewers =
        Reviewers { approvers: 2, groups: vec![("p".into(), vec!["release".into()])], ..Reviewers::default() };
    let all = [by("a", "ann", &["release"], 20), by("b", "bob", &[], 21), by("c", "ann", &["release"], 22)];
    let others: Vec<&Approval> = all.iter().collect();
    let waits = run(RunPhase::Review, Some("d"));
    let told = |approval: &Approval| {
        let status = effect(approval, Some(&waits), &others, &reviewers, at(30)).unwrap();
        (status.phase, status.conditions[0].reason.clone())
    };
    assert_eq!(told(&all[0]), (ApprovalPhase::Counted, reason::COUNTED.to_owned()));
    assert_eq!(told(&all[1]), (ApprovalPhase::NoEffect, reason::NOT_IN_GROUP.to_owned()));
    assert_eq!(told(&all[2]), (ApprovalPhase::NoEffect, reason::DUPLICATE.to_owned()));
}

#[test]
fn two_commands_have_two_digests() {
    let digest = |args: &[&str], bundle: Option<&str>| {
        let args = args.iter().map(ToString::to_string).collect();
        let status = RunStatus { bundle: bundle.map(str::to_owned), ..RunStatus::default() };
        let operation = Operation::Command;
        command_digest(&RunSpec { operation, command: Some("sh".into()), args, ..RunSpec::default() }, &status)
    };
    let all = [digest(&["a", "b"], None), digest(&["ab"], None), digest(&["a"], Some("b")), digest(&["a b"], None)];
    for (index, one) in all.iter().enumerate() {
        assert!(one.starts_with("sha256:") && one.len() == 71);
        assert!(all[index + 1..].iter().all(|other| other != one));
    }
}

/// An Approval is one of the plan, of the text that was read, of the files it was made from, and of everything that its
/// pods are made of.
#[test]
fn the_digest_of_a_review_covers_plan_text_files_job_and_images() {
    let status = |[plan, text, bundle, job, image]: [&str; 5]| {
        let image_digests = [("runner".to_owned(), image.to_owned())].into();
        let (digest, text_digest) = (Some(plan.to_owned()), Some(text.to_owned()));
        RunStatus {
            plan: Some(PlanSummary { digest, text_digest, ..PlanSummary::default() }),
            bundle: Some(bundle.to_owned()),
            job: Some(FrozenJobSummary { digest: job.to_owned(), image_digests, ..FrozenJobSummary::default() }),
            ..RunStatus::default()
        }
    };
    let known = status(["p", "t", "b", "j", "i"]);
    let all = [
        known.clone(),
        status(["p2", "t", "b", "j", "i"]),
        status(["p", "t2", "b", "j", "i"]),
        status(["p", "t", "b2", "j", "i"]),
        status(["p", "t", "b", "j2", "i"]),
        status(["p", "t", "b", "j", "i2"]),
    ];
    let digests: std::collections::BTreeSet<_> = all.iter().map(|status| plan_digest(status).unwrap()).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(plan_digest(&RunStatus { job: None, ..known.clone() }), None);
    assert_eq!(plan_digest(&RunStatus { bundle: None, ..known.clone() }), None);
    assert_eq!(plan_digest(&RunStatus { plan: None, ..known.clone() }), None);
    let unread = known.plan.clone().map(|plan| PlanSummary { text_digest: None, ..plan });
    assert_eq!(plan_digest(&RunStatus { plan: unread, ..known.clone() }), None);
    let command = RunSpec { command: Some("sh".into()), ..RunSpec::default() };
    assert_ne!(command_digest(&command, &known), command_digest(&command, &status(["p", "t", "b", "j2", "i"])));
}
