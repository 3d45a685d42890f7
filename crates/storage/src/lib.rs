//! Everything that Knoll keeps in Kubernetes, in one layout.
//!
//! | content | lies in | belongs to |
//! |---|---|---|
//! | [`States`] | Secrets: a head with the current version and the history | the Workspace |
//! | [`Plans`], [`Descriptions`], [`FrozenJobs`], [`Uploads`], [`Inputs`], [`Answers`] | Secrets | the Run |
//! | [`Journals`] | Secrets | the Atom |
//! | [`StoredVariables`] | a Secret a revision | the Stack |
//! | [`Logs`], [`PlanTexts`] | ConfigMaps, so that reading them needs no right to read Secrets | the Run |
//! | [`Bundles`] | ConfigMaps | nobody: objects refer to them by their digest |
//!
//! Content of any size is a blob (`blob`): compressed, sealed, cut into parts, checked against its digest when it is read.
//! [`Storage`] has the seam: a [`Seal`] for all bytes and a [`Sink`] for new states.
//!
//! Nothing in this crate listens: the hub, the operator and the user's commands use it, each with its own client and so
//! with its own rights. [`Sources`] resolves what a Run or a Stack names as its files to a bundle.

mod blob;
mod bundles;
mod error;
mod frozen_jobs;
pub mod inputs;
mod journals;
mod logs;
mod messages;
mod owned;
mod packs;
mod plan_texts;
mod plans;
mod random;
mod seal;
mod sources;
pub mod states;
mod sweep;
mod variables;

use std::sync::Arc;

pub use blob::BlobError;
pub use bundles::{BundleError, Bundles};
pub use error::Error;
pub use frozen_jobs::{FreezeError, FrozenJobs};
pub use inputs::{Input, Inputs, PackedInput};
pub use journals::Journals;
pub use knoll_bundle::Bundle;
pub use knoll_fetch::{Addresses, IpNet, Settings as FetchSettings, parse_range};
pub use logs::{LogError, LogRange, LogWriter, Logs};
pub use messages::{is_invalid, is_namespace_terminating, message_of};
pub use packs::{PackUnavailable, Packs};
pub use plan_texts::{PlanTextError, PlanTexts};
pub use plans::{Answers, Descriptions, Plans, Uploads};
pub use seal::{Committed, ContentKind, NoSink, Plain, Seal, SealError, Sink, Subject};
pub use sources::{Earlier, Origin, SourceError, Sources};
pub use states::{Claim, Output, Owner, StateFile, States};
pub use sweep::{BadHead, Swept, UNUSED_FOR, sweep, sweep_state_parts};
pub use variables::{Given, Lookup, Resolved, StoredVariables, VariablesError};

use kube::Client;
use seal::Sealer;

/// The way to what is kept, with the rights of one client.
#[derive(Clone)]
pub struct Storage {
    client: Client,
    seal: Arc<dyn Seal>,
    sink: Arc<dyn Sink>,
}

impl Storage {
    /// Everything is stored as it is, and nobody is told of it.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Storage { client, seal: Arc::new(Plain), sink: Arc::new(NoSink) }
    }

    /// Encodes all content with `seal`.
    #[must_use]
    pub fn with_seal(self, seal: Arc<dyn Seal>) -> Self {
        Storage { seal, ..self }
    }

    /// Tells `sink` of each new version of a state.
    #[must_use]
    pub fn with_sink(self, sink: Arc<dyn Sink>) -> Self {
        Storage { sink, ..self }
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The states of all Workspaces. Each call gives one that remembers nothing of earlier reads and claims.
    #[must_use]
    pub fn states(&self) -> States {
        States::new(self.clone())
    }

    #[must_use]
    pub fn plans(&self) -> Plans {
        Plans::new(self.clone())
    }

    #[must_use]
    pub fn descriptions(&self) -> Descriptions {
        Descriptions::new(self.clone())
    }

    #[must_use]
    pub fn plan_texts(&self) -> PlanTexts {
        PlanTexts::new(self.clone())
    }

    #[must_use]
    pub fn frozen_jobs(&self) -> FrozenJobs {
        FrozenJobs::new(self.clone())
    }

    #[must_use]
    pub fn uploads(&self) -> Uploads {
        Uploads::new(self.clone())
    }

    #[must_use]
    pub fn answers(&self) -> Answers {
        Answers::new(self.clone())
    }

    #[must_use]
    pub fn inputs(&self) -> Inputs {
        Inputs::new(self.clone())
    }

    #[must_use]
    pub fn logs(&self) -> Logs {
        Logs::new(self.clone())
    }

    #[must_use]
    pub fn bundles(&self) -> Bundles {
        Bundles::new(self.clone())
    }

    #[must_use]
    pub fn journals(&self) -> Journals {
        Journals::new(self.clone())
    }

    #[must_use]
    pub fn variables(&self) -> StoredVariables {
        StoredVariables::new(self.clone())
    }

    /// Resolves sources; `settings` says what may be fetched from outside of the cluster.
    #[must_use]
    pub fn sources(&self, settings: FetchSettings) -> Sources {
        Sources::new(self.clone(), settings)
    }

    /// The packs of Policies from outside of the cluster; the namespace `home` has their credentials.
    #[must_use]
    pub fn packs(&self, settings: FetchSettings, home: &str) -> Packs {
        Packs::new(self.clone(), settings, home.to_owned())
    }

    fn sealer(&self, kind: ContentKind, namespace: &str, owner: &str) -> Sealer {
        let subject = Subject { kind, namespace: namespace.to_owned(), owner: owner.to_owned() };
        Sealer::new(self.seal.clone(), subject)
    }
}
