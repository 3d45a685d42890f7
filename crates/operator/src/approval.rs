//! The controller of Approvals: it publishes the effect of each, or why it has none.

use std::{convert::Infallible, sync::Arc};

use jiff::Timestamp;
use knoll_api::{Approval, ApprovalStatus, Run};
use knoll_core::{
    approval,
    events::{self, Event},
    identity::Subject,
    machine::{Decision, Settled},
    policy::Reviewers,
};

use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
    index::Target,
    policy,
};

pub struct Approvals;

/// The facts of one decision.
pub struct SeenApproval {
    approval: Subject<Approval>,
    run: Option<Arc<Run>>,
    /// The Approvals that name the same Run, this one among them.
    others: Vec<Arc<Approval>>,
    reviewers: Reviewers,
}

impl Reconciler for Approvals {
    type Object = Approval;
    type Seen = SeenApproval;
    type Action = Infallible;
    type Outcome = Infallible;

    fn written(context: &Context) -> &Written<Approval> {
        &context.approvals
    }

    async fn observe(context: &Arc<Context>, approval: &Subject<Approval>) -> Result<Observation<SeenApproval>, Error> {
        let (caches, namespace) = (&context.caches, approval.namespace());
        let run = caches.runs.named(namespace, &approval.spec.run);
        let others = caches.approvals.referring_to(Target::Run, namespace, &approval.spec.run);
        let workspace = run.as_ref().and_then(|run| caches.workspaces.named(namespace, &run.spec.workspace));
        let stack = run.as_ref().and_then(|run| caches.stacks.named(namespace, &run.spec.workspace));
        let policy = policy::demands_on(context, namespace, workspace.as_deref(), stack.as_deref()).await?;
        let reviewers = run.as_ref().map_or_else(|| policy.reviewers(), |run| policy.reviewers_of(run));
        Ok(Observation::Complete(SeenApproval { approval: approval.clone(), run, others, reviewers }))
    }

    fn decide(seen: &SeenApproval, now: Timestamp) -> Decision<ApprovalStatus, Infallible> {
        let others: Vec<&Approval> = seen.others.iter().map(AsRef::as_ref).collect();
        approval::decide(&seen.approval, seen.run.as_deref(), &others, &seen.reviewers, now)
    }

    async fn act(_: &Arc<Context>, _: &SeenApproval, action: Infallible) -> Result<Effect<Infallible>, Error> {
        match action {}
    }

    fn settle(_: &SeenApproval, outcome: Infallible, _: Timestamp) -> Settled<ApprovalStatus> {
        match outcome {}
    }

    fn events(_: &Context, _: &Subject<Approval>, status: &ApprovalStatus) -> Vec<Event> {
        events::of_approval(status).into_iter().collect()
    }
}
