//! The texts of plans, as terraform renders them for people, in ConfigMaps: reading them needs no right to read Secrets.
//!
//! *Guarantee.* [`PlanTexts::get`] returns the text whose digest is in the Run's status, which no user can write, or an
//! error. The ConfigMaps themselves may be anybody's.

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::run::Run;
use knoll_api::step::StepName;
use knoll_api::wire::LARGEST_PLAN_TEXT;
use knoll_core::identity::{ObjectId, Unidentified};

use crate::error::Error;
use crate::owned::{self, Owned};
use crate::{ContentKind, LogRange, Storage};

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

    /// Deletes a text of a Run's plan that another one has replaced.
    ///
    /// # Errors
    /// When the API does not delete it.
    pub async fn delete(&self, run: &Run, digest: &Digest) -> Result<(), Error> {
        let id = ObjectId::of(run)?;
        let name = names::plan_text_config_map(&id.name, digest.as_str());
        Owned::of_run(run, &id, content::PLAN_TEXT, name).delete::<ConfigMap>(&self.storage, &id.namespace).await
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

    /// The text of a run's plan without the legend of its symbols; none for a run without a plan, or with one that changes
    /// nothing. A plan that nobody reviews has no text of its own: it is taken from the log.
    ///
    /// # Errors
    /// If the run is reviewed, and its text is missing or is not the one that the decision covers.
    pub async fn of(&self, run: &Run) -> Result<Option<String>, PlanTextError> {
        let status = run.status.as_ref();
        let Some(plan) = status.and_then(|status| status.plan.as_ref()).filter(|plan| plan.changes) else {
            return Ok(None);
        };
        let is_reviewed = status.is_some_and(|status| status.review_digest.is_some() || status.decision.is_some());
        let text = if is_reviewed || plan.text_digest.is_some() {
            self.get(run).await?
        } else {
            match printed(&self.storage, run).await {
                Some(text) => text,
                None => return Ok(None),
            }
        };
        Ok(Some(without_preamble(&text).to_owned()).filter(|text| !text.is_empty()))
    }
}

/// The plan in the output of a plan step that nobody reviews, without refresh messages before it and the notice of the
/// saved plan after it. None when it is not stored or may not be read.
async fn printed(storage: &Storage, run: &Run) -> Option<String> {
    let range = LogRange::of_step(run, StepName::Plan)?;
    let log = storage.logs().read(run, range).await.ok()?;
    let text = plain(&String::from_utf8_lossy(&log));
    let begin = PREAMBLES.iter().find_map(|words| text.find(words)).unwrap_or_default();
    let end = text[begin..].find("\u{2500}\u{2500}\u{2500}").map_or(text.len(), |at| begin + at);
    Some(text[begin..end].to_owned())
}

/// The words with which terraform and tofu begin the legend of a plan.
const PREAMBLES: [&str; 2] = ["Terraform used the selected", "OpenTofu used the selected"];

/// A plan without the legend of its symbols. The legend is terraform's own, so it is left out only at the very beginning,
/// where nothing of the module can precede it.
fn without_preamble(text: &str) -> &str {
    let text = text.trim_matches('\n').trim_end();
    if !PREAMBLES.iter().any(|words| text.starts_with(words)) {
        return text;
    }
    let rest = text.split_once(" will perform the following actions:\n").map_or(text, |(_, rest)| rest);
    rest.trim_start_matches('\n')
}

/// Removes terminal escape sequences.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // An escape sequence ends with its first letter.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else if c != '\r' {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_legend_at_the_beginning_is_left_out() {
        let legend = "\nTerraform used the selected providers to generate the following execution\nplan.\n  + create\n\n\
                      Terraform will perform the following actions:\n";
        let plan = "  # a.b will be created\n\nPlan: 1 to add.";
        assert_eq!(without_preamble(&format!("{legend}\n{plan}\n")), plan);
        // A module's own words do not hide what precedes them.
        let forged = format!("  # a.a will be destroyed\n{legend}\n{plan}");
        assert_eq!(without_preamble(&forged), forged.trim_matches('\n'));
        assert_eq!(without_preamble("No changes.\n"), "No changes.");
    }

    #[test]
    fn escape_sequences_are_no_part_of_a_text() {
        assert_eq!(plain("\u{1b}[1mbold\u{1b}[0m"), "bold");
    }
}
