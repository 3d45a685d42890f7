//! The controller of AtomVersions: it publishes whether the template can be read.

use std::{convert::Infallible, sync::Arc};

use jiff::Timestamp;
use knoll_api::{AtomVersion, AtomVersionStatus};
use knoll_core::{
    atom::version::{self, AtomVersionFacts},
    identity::Subject,
    machine::{Decision, Settled},
    status::Cause,
};
use knoll_storage::Lookup;

use super::desired::template_text;
use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
};

pub struct AtomVersions;

/// The facts of one decision.
pub struct SeenAtomVersion {
    version: Subject<AtomVersion>,
    /// The text of the template, or why it cannot be read.
    template: Result<String, Cause>,
}

impl Reconciler for AtomVersions {
    type Object = AtomVersion;
    type Seen = SeenAtomVersion;
    type Action = Infallible;
    type Outcome = Infallible;

    fn written(context: &Context) -> &Written<AtomVersion> {
        &context.atom_versions
    }

    async fn observe(
        context: &Arc<Context>,
        version: &Subject<AtomVersion>,
    ) -> Result<Observation<SeenAtomVersion>, Error> {
        let mut lookup = Lookup::new(&context.storage, version.namespace());
        let template = template_text(&mut lookup, version).await?;
        Ok(Observation::Complete(SeenAtomVersion { version: version.clone(), template }))
    }

    fn decide(seen: &SeenAtomVersion, now: Timestamp) -> Decision<AtomVersionStatus, Infallible> {
        let template = seen.template.as_ref().map(String::as_str);
        version::decide(&AtomVersionFacts { version: &seen.version, template }, now)
    }

    async fn act(_: &Arc<Context>, _: &SeenAtomVersion, action: Infallible) -> Result<Effect<Infallible>, Error> {
        match action {}
    }

    fn settle(_: &SeenAtomVersion, outcome: Infallible, _: Timestamp) -> Settled<AtomVersionStatus> {
        match outcome {}
    }
}
