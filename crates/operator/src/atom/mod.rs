//! The controller of Atoms: it resolves the desired revision, carries out the actions of the machine in `knoll-core`, and
//! publishes the status that follows.

mod apply;
mod desired;
mod evaluations;
mod history;
mod journal_store;
mod objects;
mod prepare;
mod readiness;
mod restore;
mod triggers;
mod versions;
mod watches;

use std::sync::Arc;

use jiff::Timestamp;
use knoll_api::{Atom, AtomStatus, names::finalizer};
use knoll_core::{
    atom::{self, AtomAction, AtomFacts, AtomOutcome, Desired},
    events::{self, Event},
    identity::Subject,
    machine::{Decision, Settled},
};

pub use desired::RevisionCache;
pub use evaluations::Evaluations;
pub use objects::Kinds;
pub use triggers::{on_atom, on_input, on_stack, on_version};
pub use versions::AtomVersions;
pub use watches::Watches;

use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
    policy,
};

pub struct Atoms;

/// The facts of one decision.
pub struct SeenAtom {
    /// The Atom, with the service account that it acts as.
    atom: Subject<Atom>,
    desired: Desired,
}

impl Reconciler for Atoms {
    type Object = Atom;
    type Seen = SeenAtom;
    type Action = AtomAction;
    type Outcome = AtomOutcome;

    fn written(context: &Context) -> &Written<Atom> {
        &context.atoms
    }

    async fn observe(context: &Arc<Context>, atom: &Subject<Atom>) -> Result<Observation<SeenAtom>, Error> {
        let atom = with_account(context, atom).await?;
        let desired = desired::find(context, &atom).await?;
        Ok(Observation::Complete(SeenAtom { atom, desired }))
    }

    fn decide(seen: &SeenAtom, now: Timestamp) -> Decision<AtomStatus, AtomAction> {
        atom::decide(&AtomFacts { atom: &seen.atom, desired: &seen.desired }, now)
    }

    async fn act(context: &Arc<Context>, seen: &SeenAtom, action: AtomAction) -> Result<Effect<AtomOutcome>, Error> {
        let atom = &seen.atom;
        let outcome = match action {
            AtomAction::AddFinalizer | AtomAction::RemoveFinalizer => {
                if action == AtomAction::RemoveFinalizer {
                    history::delete_all(context, atom).await?;
                }
                let held = action == AtomAction::AddFinalizer;
                context.atoms.hold(&context.api(atom.namespace()), atom, finalizer::ATOM, held).await?;
                return Ok(Effect::ObjectChanged);
            }
            AtomAction::CleanUp => {
                history::prune(context, atom).await?;
                journal_store::delete_all(context, atom).await?;
                context.watches.end(atom);
                Ok(AtomOutcome::CleanedUp)
            }
            AtomAction::Prepare => prepare::run(context, atom).await,
            AtomAction::Apply => apply::run(context, atom).await,
            AtomAction::CheckReadiness => readiness::run(context, atom).await,
            AtomAction::Prune => apply::prune(context, atom).await,
            AtomAction::Restore => restore::run(context, atom).await,
            AtomAction::DeleteObjects => restore::delete(context, atom).await,
        };
        Ok(Effect::Outcome(outcome.unwrap_or_else(AtomOutcome::Failed)))
    }

    fn settle(seen: &SeenAtom, outcome: AtomOutcome, now: Timestamp) -> Settled<AtomStatus> {
        atom::settle(&seen.atom, outcome, now)
    }

    fn events(_: &Context, atom: &Subject<Atom>, status: &AtomStatus) -> Vec<Event> {
        events::of_atom(&atom.status.clone().unwrap_or_default(), status).into_iter().collect()
    }

    async fn at_rest(context: &Arc<Context>, seen: &SeenAtom) -> Result<(), Error> {
        context.watches.end(&seen.atom);
        history::mark_reverted(context, &seen.atom).await
    }
}

/// The Atom with the account that a Policy supplies, if it names none itself.
async fn with_account(context: &Context, atom: &Subject<Atom>) -> Result<Subject<Atom>, Error> {
    if atom.spec.service_account_name.is_some() {
        return Ok(atom.clone());
    }
    let Some(account) = policy::atom_account(context, atom.namespace()).await? else { return Ok(atom.clone()) };
    Ok(atom.map(|mut atom| {
        atom.spec.service_account_name = Some(account);
        atom
    }))
}
