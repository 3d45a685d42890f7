//! The texts of plans, as terraform renders them for people, in ConfigMaps: reading them needs no right to read Secrets.
//!
//! *Guarantee.* [`PlanTexts::get`] returns the text whose digest is in the Run's status, which no user can write, or an
//! error. The ConfigMaps themselves may be anybody's.

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::run::Run;
use knoll_api::wire::LARGEST_PLAN_TEXT;
use knoll_core::identity::{ObjectId, Unidentified};

use crate::error::Error;
use crate::owned::{self, Owned};
use crate::{ContentKind, Storage};

/// Why the text of a plan cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum PlanTextError {
    /// The status of the Run names no text.
    #[error("the status of the run names no text of the plan")]
    NotNamed,
    #[error("the ConfigMap `{0}`, which has the text, is missing")]
    Missing(String),
    #[error("the ConfigMap `{0}` does not have the text that terraform printed: somebody changed it")]
    Changed(String),
    #[error("cannot read the text: {}", crate::message_of(.0))]
    Api(kube::Error),
    #[error("cannot read the text of a plan: {0}")]
    Unidentified(#[from] Unidentified),
}

/// The texts of plans.
pub struct PlanTexts {
    storage: Storage,
}

impl PlanTexts {
    pub(crate) fn new(storage: Storage) -> Self {
        PlanTexts { storage }
    }

    /// Stores the text of a Run's plan.
    ///
    /// # Errors
    /// When the API does not take it.
    pub async fn put(&self, run: &Run, text: &[u8]) -> Result<(), Error> {
        let id = ObjectId::of(run)?;
        let name = names::plan_text_config_map(&id.name, Digest::of(text).as_str());
        let owned = Owned { immutable: true, ..Owned::of_run(run, &id, content::PLAN_TEXT, name) };
        let sealer = self.storage.sealer(ContentKind::PlanText, &id.namespace, &id.name);
        owned.put::<ConfigMap>(&self.storage, &id.namespace, &sealer, text).await.map(drop)
    }

    /// The text that the status of a Run names.
    ///
    /// # Errors
    /// When it cannot be read, or is another.
    pub async fn get(&self, run: &Run) -> Result<String, PlanTextError> {
        let plan = run.status.as_ref().and_then(|status| status.plan.as_ref());
        let digest = plan.and_then(|plan| plan.text_digest.as_deref()).ok_or(PlanTextError::NotNamed)?;
        let ObjectId { namespace, name, .. } = ObjectId::of(run)?;
        let head = names::plan_text_config_map(&name, digest);
        let sealer = self.storage.sealer(ContentKind::PlanText, &namespace, &name);
        let found = owned::get_within::<ConfigMap>(&self.storage, &namespace, &sealer, &head, LARGEST_PLAN_TEXT).await;
        let text = match found {
            Ok(Some(text)) => text,
            Ok(None) => return Err(PlanTextError::Missing(head)),
            Err(Error::Api(error)) => return Err(PlanTextError::Api(error)),
            Err(_) => return Err(PlanTextError::Changed(head)),
        };
        // The ConfigMap has a digest of its own; the one that counts is in the status, where no user can write.
        match String::from_utf8(text.into()) {
            Ok(text) if Digest::of(&text) == *digest => Ok(text),
            _ => Err(PlanTextError::Changed(head)),
        }
    }
}
