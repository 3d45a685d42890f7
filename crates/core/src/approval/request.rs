//! The Approval with which a user decides on a Run: the same from the command line and from the page.
//!
//! *Guarantee.* An Approval is made only for the digest that its author was shown. It names that author, and is deleted
//! with the Run that it is about.

use k8s_openapi::{api::authentication::v1::UserInfo, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use knoll_api::{
    approval::{Approval, ApprovalSpec, Decision},
    run::{ReviewDecision, Run, RunPhase},
};
use kube::{Resource, ResourceExt};

/// The number of groups in an Approval, and their length: the limits of its schema.
const MAX_GROUPS: usize = 256;
const MAX_GROUP: usize = 253;

/// Why nothing can be decided on a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWaiting {
    #[error("run `{run}` already has a decision: {:?} by {}", decision.decision, decision.by)]
    Decided { run: String, decision: ReviewDecision },
    #[error("run `{run}` has finished ({}); there is nothing to decide", phase.as_str())]
    Finished { run: String, phase: RunPhase },
    /// It may wait for a decision later.
    #[error("run `{run}` is not waiting for approval ({})", phase.as_str())]
    NotYet { run: String, phase: RunPhase },
}

/// A user who decides, as the API server knows them. It refuses an Approval in another name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decider {
    pub name: String,
    /// As many groups as an Approval takes.
    pub groups: Vec<String>,
}

impl Decider {
    /// The user of a SelfSubjectReview; `None` if it has no name.
    #[must_use]
    pub fn of(user: UserInfo) -> Option<Self> {
        let name = user.username.filter(|name| !name.is_empty())?;
        let mut groups = user.groups.unwrap_or_default();
        groups.retain(|group| (1..=MAX_GROUP).contains(&group.chars().count()));
        groups.truncate(MAX_GROUPS);
        Some(Self { name, groups })
    }
}

/// The digest that the run waits for a decision on.
///
/// # Errors
/// If it does not wait for one.
pub fn waiting_digest(run: &Run) -> Result<String, NotWaiting> {
    let (run, status) = (run.name_any(), run.status.clone().unwrap_or_default());
    match (status.phase, status.review_digest, status.decision) {
        (RunPhase::Review, Some(digest), _) => Ok(digest),
        (_, _, Some(decision)) => Err(NotWaiting::Decided { run, decision }),
        (phase, ..) if phase.is_finished() => Err(NotWaiting::Finished { run, phase }),
        (phase, ..) => Err(NotWaiting::NotYet { run, phase }),
    }
}

/// The Approval of a user on the digest that they were shown.
#[must_use]
pub fn request(run: &Run, digest: String, decision: Decision, by: Decider, comment: Option<String>) -> Approval {
    let name = run.name_any();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{name}-")),
        owner_references: Some(run.owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    };
    let spec = ApprovalSpec { run: name, digest, decision, by: by.name, groups: by.groups, policy: None, comment };
    Approval { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use knoll_api::run::{RunSpec, RunStatus};

    use super::*;

    #[test]
    fn only_a_run_in_review_is_decided_on() {
        let run = |status: RunStatus| Run { status: Some(status), ..Run::new("r", RunSpec::default()) };
        let review_digest = Some("sha256:d".to_owned());
        let waiting = run(RunStatus { phase: RunPhase::Review, review_digest, ..RunStatus::default() });
        assert_eq!(waiting_digest(&waiting).unwrap(), "sha256:d");
        let rows = [
            (RunPhase::Running, "run `r` is not waiting for approval (Running)"),
            (RunPhase::Failed, "run `r` has finished (Failed); there is nothing to decide"),
        ];
        for (phase, expect) in rows {
            let other = run(RunStatus { phase, ..RunStatus::default() });
            assert_eq!(waiting_digest(&other).unwrap_err().to_string(), expect);
        }
    }

    #[test]
    fn an_approval_takes_so_many_groups_and_a_name() {
        let groups = ["", "a", &"b".repeat(254)].map(str::to_owned).to_vec();
        let user = UserInfo { username: Some("ann".into()), groups: Some(groups), ..UserInfo::default() };
        assert_eq!(Decider::of(user).unwrap(), Decider { name: "ann".into(), groups: vec!["a".into()] });
        assert_eq!(Decider::of(UserInfo::default()), None);
    }
}
