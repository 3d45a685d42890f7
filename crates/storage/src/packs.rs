//! Packs of rules from outside of the cluster, fetched once and kept in memory.
//!
//! *Guarantees.* A pack is kept by what it names: a commit and a path, or a digest, so it never changes. A pack that cannot
//! be had is an error each time, and its server is not asked again at once. What is kept is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::names::label;
use knoll_api::policy::RulePack;
use knoll_fetch::{Credentials, Settings, Texts};
use kube::{Api, ResourceExt};

use crate::{Storage, message_of};

/// The most packs that are kept. Each has at most 1 MiB.
const KEPT: usize = 32;
/// How long a pack that could not be had is not asked for again: a run that judges many plans asks a server once.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a pack has no text. The message is for people who may read Policies.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PackUnavailable(String);

/// The packs of Policies. Clones share what is kept.
#[derive(Clone)]
pub struct Packs {
    storage: Storage,
    settings: Settings,
    /// The namespace of the operator, which has the credentials.
    home: String,
    kept: Arc<Mutex<HashMap<String, Arc<Slot>>>>,
}

/// What is known of one pack. A pack that many ask for is fetched once.
type Slot = tokio::sync::Mutex<Known>;

#[derive(Default)]
struct Known {
    texts: Option<Arc<Texts>>,
    failed: Option<(Instant, PackUnavailable)>,
}

impl Packs {
    /// `home` is the namespace whose Secrets have the credentials.
    #[must_use]
    pub fn new(storage: Storage, settings: Settings, home: String) -> Self {
        Self { storage, settings, home, kept: Arc::default() }
    }

    /// The files of a pack in a git repository or a registry; `None` for a pack of the cluster.
    ///
    /// # Errors
    /// When it cannot be fetched, or is not what the Policy names.
    pub async fn texts(&self, pack: &RulePack) -> Result<Option<Arc<Texts>>, PackUnavailable> {
        let Some(key) = key(pack) else { return Ok(None) };
        let (packs, pack, slot) = (self.clone(), pack.clone(), self.slot(key));
        // A fetch goes on when nobody waits for it any more: whoever asks next has its result.
        let known = tokio::spawn(async move { packs.known(&slot, &pack).await }).await;
        let broken = |_| Err(PackUnavailable("its fetch broke off; run it again".to_owned()));
        known.unwrap_or_else(broken).map(Some)
    }

    /// What the ConfigMap of a pack has at its key; `None` without one, and for a pack that is elsewhere.
    ///
    /// # Errors
    /// When the API cannot be asked.
    pub async fn config_map(&self, pack: &RulePack) -> Result<Option<String>, kube::Error> {
        let Some(at) = &pack.config_map else { return Ok(None) };
        let api = Api::<ConfigMap>::namespaced(self.storage.client().clone(), &at.namespace);
        Ok(api.get_opt(&at.name).await?.and_then(|found| found.data?.remove(&at.key)))
    }

    async fn known(&self, slot: &Slot, pack: &RulePack) -> Result<Arc<Texts>, PackUnavailable> {
        let mut known = slot.lock().await;
        if let Some(texts) = &known.texts {
            return Ok(Arc::clone(texts));
        }
        if let Some((_, why)) = known.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
            return Err(why.clone());
        }
        let fetched = self.fetch(pack).await.map(Arc::new);
        *known = match &fetched {
            Ok(texts) => Known { texts: Some(Arc::clone(texts)), failed: None },
            Err(why) => Known { texts: None, failed: Some((Instant::now(), why.clone())) },
        };
        fetched
    }

    fn slot(&self, key: String) -> Arc<Slot> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT && !kept.contains_key(&key) {
            // Whoever waits for a slot holds it, too. All others can be fetched again.
            kept.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(kept.entry(key).or_default())
    }

    async fn fetch(&self, pack: &RulePack) -> Result<Texts, PackUnavailable> {
        let secret = pack.git.as_ref().and_then(|git| git.secret_ref.as_ref());
        let secret = secret.or_else(|| pack.oci.as_ref()?.secret_ref.as_ref());
        let credentials = match secret {
            Some(secret) => self.credentials(&secret.name).await?,
            None => Credentials::default(),
        };
        let fetched = match (&pack.git, &pack.oci) {
            (Some(git), _) => knoll_fetch::git_pack(git, &credentials, &self.settings).await,
            (None, Some(oci)) => knoll_fetch::oci_pack(oci, &credentials, &self.settings).await,
            (None, None) => return Err(PackUnavailable("it names neither `git` nor `oci`".to_owned())),
        };
        let field = if pack.git.is_some() { "git" } else { "oci" };
        fetched.map_err(|error| PackUnavailable(format!("`{field}`: {error}")))
    }

    /// The credentials in a Secret that is marked for it. Whoever writes Policies chooses the server that they are sent to,
    /// and need not have a right to read the Secrets of the operator.
    async fn credentials(&self, name: &str) -> Result<Credentials, PackUnavailable> {
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &self.home);
        let is_marked = |secret: &Secret| secret.labels().get(label::CREDENTIALS).is_some_and(|value| value == "true");
        match api.get_opt(name).await.map(|secret| secret.filter(is_marked)) {
            Ok(Some(secret)) => Ok(Credentials::read(&secret.data.unwrap_or_default())),
            // Which of the two it is would tell the names of other Secrets.
            Ok(None) => Err(PackUnavailable(format!(
                "`secretRef`: the operator's namespace `{}` has no Secret `{name}` with the label `{}: \"true\"`; create it or set its label there, or correct `secretRef`",
                self.home,
                label::CREDENTIALS
            ))),
            Err(error) => {
                Err(PackUnavailable(format!("`secretRef`: the Secret `{name}` cannot be read: {}", message_of(&error))))
            }
        }
    }
}

/// What a pack outside of the cluster is known by.
fn key(pack: &RulePack) -> Option<String> {
    let secret =
        |secret: &Option<knoll_api::source::LocalRef>| secret.as_ref().map_or("", |secret| &secret.name).to_owned();
    let parts = match (&pack.git, &pack.oci) {
        (Some(git), _) => {
            let path = git.path.clone().unwrap_or_default();
            vec!["git".to_owned(), git.url.clone(), git.commit.clone(), path, secret(&git.secret_ref)]
        }
        (None, Some(oci)) => {
            vec!["oci".to_owned(), oci.repository.clone(), oci.digest.clone(), secret(&oci.secret_ref)]
        }
        (None, None) => return None,
    };
    serde_json::to_string(&parts).ok()
}
