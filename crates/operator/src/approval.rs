//! The controller of Approvals: it publishes the effect of each, or why it has none.

use std::{convert::Infallible, sync::Arc};

use jiff::Timestamp;
use knoll_api::{Approval, ApprovalStatus, Run};
use knoll_core::{
    approval,
    events::{self, Event},
    identity::Subject,
    machine::{Decision, Settled},
};
use kube::runtime::reflector::ObjectRef;

use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
};

pub struct Approvals;

/// The facts of one decision.
pub struct SeenApproval {
    approval: Subject<Approval>,
    run: Option<Arc<Run>>,
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
        let run = context.caches.runs.get(&ObjectRef::new(&approval.spec.run).within(approval.namespace()));
        Ok(Observation::Complete(SeenApproval { approval: approval.clone(), run }))
    }

    fn decide(seen: &SeenApproval, now: Timestamp) -> Decision<ApprovalStatus, Infallible> {
        approval::decide(&seen.approval, seen.run.as_deref(), now)
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
