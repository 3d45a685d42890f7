//! The generic driver of all kinds: it runs `observe -> decide -> act -> settle -> publish` for one object.
//!
//! *Guarantees.* No decision is taken on an object older than this process's last write to it. A status is written only
//! over the object that it was decided on, and only if it differs. Every reconcile has a span with kind, namespace and
//! name, and is measured by kind and outcome.

use std::{fmt::Debug, sync::Arc, time::Duration};

use jiff::Timestamp;
use knoll_core::{
    events::Event,
    identity::Subject,
    machine::{Decision, Next, Settled},
};
use kube::{Resource, core::object::HasStatus, runtime::controller::Action};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    context::Context,
    controller::{Error, Published, Written, requeue_at},
    metrics::ReconcileOutcome,
    watch::Reach,
};

/// The wait before the next attempt when another writer was faster. The watch usually brings the change earlier.
const BEHIND: Duration = Duration::from_secs(1);

/// A kind that has a controller of its own.
///
/// `observe` and `act` are the only steps that use the client.
pub trait Reconciler: Sized + Send + 'static {
    type Object: Object;
    /// The facts of one decision, the object among them.
    type Seen: Send + Sync;
    type Action: Send;
    type Outcome: Send;

    /// What this process wrote to objects of the kind.
    fn written(context: &Context) -> &Written<Self::Object>;

    /// Gathers the facts of a decision, each once.
    fn observe(
        context: &Arc<Context>,
        subject: &Subject<Self::Object>,
    ) -> impl Future<Output = Result<Observation<Self::Seen>, Error>> + Send;

    /// Asks `knoll-core` what follows from the facts.
    fn decide(seen: &Self::Seen, now: Timestamp) -> Decision<StatusOf<Self>, Self::Action>;

    /// Carries out one action. It must be safe to repeat.
    fn act(
        context: &Arc<Context>,
        seen: &Self::Seen,
        action: Self::Action,
    ) -> impl Future<Output = Result<Effect<Self::Outcome>, Error>> + Send;

    /// Asks `knoll-core` for the status after an action.
    fn settle(seen: &Self::Seen, outcome: Self::Outcome, now: Timestamp) -> Settled<StatusOf<Self>>;

    /// The events to record after `status` was published over the object's own.
    fn events(context: &Context, subject: &Subject<Self::Object>, status: &StatusOf<Self>) -> Vec<Event> {
        let _ = (context, subject, status);
        Vec::new()
    }

    /// Housekeeping for an object whose published status is already the decided one.
    fn at_rest(context: &Arc<Context>, seen: &Self::Seen) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = (context, seen);
        std::future::ready(Ok(()))
    }
}

/// The status of a reconciler's kind.
pub type StatusOf<R> = <<R as Reconciler>::Object as HasStatus>::Status;

/// The bounds of a kind that the driver can reconcile.
pub trait Object:
    Resource<DynamicType = (), Scope: Reach>
    + HasStatus<Status: Serialize + Default + PartialEq + Send + Sync>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: Reach>
        + HasStatus<Status: Serialize + Default + PartialEq + Send + Sync>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// The facts of a decision, if they are complete.
#[derive(Debug)]
pub enum Observation<S> {
    Complete(S),
    /// A cache is older than another fact. The reconcile is repeated soon.
    Behind,
}

/// What an action changed.
#[derive(Debug)]
pub enum Effect<O> {
    /// Something other than the object. `settle` makes the next status of it.
    Outcome(O),
    /// The object itself, such as its finalizers. Its watch asks for the next reconcile.
    ObjectChanged,
}

/// Puts a finalizer on exactly the object that was read, or takes it off.
///
/// # Errors
/// When the API does not take it for another reason than that the object has moved on.
pub async fn set_finalizer<R: Reconciler>(
    context: &Context,
    subject: &Subject<R::Object>,
    finalizer: &str,
    held: bool,
) -> Result<Effect<R::Outcome>, Error> {
    R::written(context).hold(&context.api(subject.namespace()), subject, finalizer, held).await?;
    Ok(Effect::ObjectChanged)
}

/// Brings one object a step further, in a span and measured.
///
/// # Errors
/// When the API refuses a request or cannot be reached.
pub async fn reconcile<R: Reconciler>(object: Arc<R::Object>, context: Arc<Context>) -> Result<Action, Error> {
    let kind = R::Object::kind(&());
    let subject = match <R::Object as Resource>::Scope::identify(object.as_ref()) {
        Ok(id) => Subject::identified(id, object),
        Err(error) => {
            tracing::error!(%kind, %error, "an object is skipped");
            context.metrics.skipped(&kind, "unidentified");
            return Ok(Action::await_change());
        }
    };
    let span = tracing::info_span!("reconcile", %kind, namespace = subject.namespace(), name = subject.name());
    let started = Instant::now();
    let result = step::<R>(&context, &subject).instrument(span).await;
    let outcome = result.as_ref().map_or(ReconcileOutcome::Failed, |(outcome, _)| *outcome);
    context.metrics.reconcile_took(&kind, outcome, started.elapsed());
    result.map(|(_, action)| action)
}

async fn step<R: Reconciler>(
    context: &Arc<Context>,
    subject: &Subject<R::Object>,
) -> Result<(ReconcileOutcome, Action), Error> {
    if R::written(context).is_stale(subject) {
        return Ok((ReconcileOutcome::Stale, Action::await_change()));
    }
    let Observation::Complete(seen) = R::observe(context, subject).await? else {
        return Ok((ReconcileOutcome::Behind, Action::requeue(BEHIND)));
    };
    let Decision { next, requeue_at: decided_at } = R::decide(&seen, context.now());
    let (status, acted, again_at) = match next {
        Next::Status(status) => (status, false, decided_at),
        Next::Act(action) => {
            let Effect::Outcome(outcome) = R::act(context, &seen, action).await? else {
                return Ok((ReconcileOutcome::Acted, Action::await_change()));
            };
            let Settled { status, requeue_at } = R::settle(&seen, outcome, context.now());
            (status, true, [decided_at, requeue_at].into_iter().flatten().min())
        }
    };
    let api = context.api::<R::Object>(subject.namespace());
    let outcome = match R::written(context).publish(&api, subject, subject.status(), &status).await? {
        // The decision is void. The watch brings the newer object; the requeue only makes sure.
        Published::Overtaken => return Ok((ReconcileOutcome::Overtaken, Action::requeue(BEHIND))),
        Published::Written => {
            for event in R::events(context, subject, &status) {
                context.events.record(event, subject.object_ref(&()));
            }
            ReconcileOutcome::Published
        }
        Published::Unchanged if acted => ReconcileOutcome::Acted,
        Published::Unchanged => {
            R::at_rest(context, &seen).await?;
            ReconcileOutcome::Unchanged
        }
    };
    Ok((outcome, requeue_at(again_at, context.now())))
}
