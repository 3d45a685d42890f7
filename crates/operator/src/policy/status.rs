//! The controller of Policies: it publishes the fields of each that cannot be read.

use std::{convert::Infallible, sync::Arc};

use jiff::Timestamp;
use knoll_api::{Policy, policy::PolicyStatus};
use knoll_core::{
    identity::Subject,
    machine::{Decision, Settled},
    policy::status::{self, CheckedRules},
};

use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
};

pub struct Policies;

/// The facts of one decision.
pub struct SeenPolicy {
    policy: Subject<Policy>,
    /// Absent while the rules are being checked.
    rules: Option<Arc<CheckedRules>>,
}

impl Reconciler for Policies {
    type Object = Policy;
    type Seen = SeenPolicy;
    type Action = Infallible;
    type Outcome = Infallible;

    fn written(context: &Context) -> &Written<Policy> {
        &context.policies
    }

    async fn observe(context: &Arc<Context>, policy: &Subject<Policy>) -> Result<Observation<SeenPolicy>, Error> {
        let rules = context.rule_checks.look(context, policy);
        Ok(Observation::Complete(SeenPolicy { policy: policy.clone(), rules }))
    }

    fn decide(seen: &SeenPolicy, now: Timestamp) -> Decision<PolicyStatus, Infallible> {
        status::decide(&seen.policy, seen.rules.as_deref(), now)
    }

    async fn act(_: &Arc<Context>, _: &SeenPolicy, action: Infallible) -> Result<Effect<Infallible>, Error> {
        match action {}
    }

    fn settle(_: &SeenPolicy, outcome: Infallible, _: Timestamp) -> Settled<PolicyStatus> {
        match outcome {}
    }
}
