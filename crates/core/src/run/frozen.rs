//! The frozen job of a Run: everything that its pods are made of, as it was before the first of them was made.
//!
//! *Guarantees.* A run that is reviewed, or that plans and applies in two pods, has one frozen job. All of its pods, and
//! all that the hub tells their runners, come from it. The Workspace, ConfigMaps and Secrets as they are later do not
//! count. Content that pods take from Secrets and ConfigMaps by name is copied ([`copies`]), and the pods have the copies.
//! The frozen job has its digest too, and nothing starts once the original differs: whoever revokes a credential stops the
//! runs that wait with it.
//!
//! The installation's own settings (Knoll's image, the hub's address and certificate, the plugin cache) are not frozen:
//! only an administrator changes those, and an old runner could not talk to a new hub.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{EnvVar, Pod, Volume};
use knoll_api::{
    Digest,
    hooks::Hook,
    names,
    pod::{PodSettings, PodSettingsError},
    run::{FrozenJobSummary, Run},
    step::StepName,
    wire::{JobHook, JobRegistry, JobVariable},
    workspace::Tool,
};
use serde::{Deserialize, Serialize};

use super::pod;
use copies::{Copies, CopyOf};

pub mod copies;

/// The settings that a Run's pods are built from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// The image of the tool.
    pub image: String,
    /// Whether the Workspace names that image. If not, it is the installation's, which Policies do not judge.
    #[serde(default)]
    pub image_is_named: bool,
    pub settings: PodSettings,
    /// What the Workspace itself says of them; absent if Policies supply nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<PodSettings>,
    /// Images by container that are used in place of those that were written: the same ones, by digest.
    #[serde(skip)]
    pub pinned: BTreeMap<String, String>,
    /// The copies that are used in place of Secrets and ConfigMaps that the settings and the hooks name.
    #[serde(skip)]
    pub copies: Copies,
}

/// The part of a runner's job that comes from the Workspace, from ConfigMaps and from Secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobInputs {
    pub tool: Tool,
    /// The version of the tool that the Workspace asks for.
    pub version: Option<String>,
    /// Whether the hub keeps the state.
    pub managed_state: bool,
    /// The name of the terraform workspace that a managed state belongs to. A job that was frozen before there was this
    /// field was planned in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terraform_workspace: Option<String>,
    /// The variables with their values.
    pub variables: Vec<JobVariable>,
    /// Variable files by name.
    pub variable_files: BTreeMap<String, String>,
    /// The names of the variable files that came from a Secret.
    pub sensitive_files: Vec<String>,
    /// Further texts that have to stay out of logs and reports.
    pub masked: Vec<String>,
    /// The hooks of all steps, with their scripts.
    pub hooks: Vec<JobHook>,
    /// How long a step may take, in seconds.
    pub timeouts: BTreeMap<StepName, u64>,
    /// How terraform gets providers and modules.
    #[serde(default, skip_serializing_if = "JobRegistry::is_empty")]
    pub registry: JobRegistry,
}

/// A Secret or a ConfigMap that pods refer to by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    pub kind: ReferenceKind,
    pub name: String,
    /// The one key that is used; all of them when absent.
    pub key: Option<String>,
    /// Whether a pod starts without it.
    #[serde(default)]
    pub optional: bool,
    #[serde(default)]
    pub usage: Usage,
}

/// The use that pods make of an object, which decides about the keys that they see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Usage {
    /// Environment variables: those keys of a ConfigMap that have text.
    Values,
    /// Files, and every use of a Secret: all keys.
    #[default]
    Files,
}

impl Usage {
    fn of(self, kind: ReferenceKind) -> Self {
        match kind {
            ReferenceKind::ConfigMap => self,
            ReferenceKind::Secret => Self::Files,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReferenceKind {
    ConfigMap,
    Secret,
}

impl Reference {
    fn new(kind: ReferenceKind, name: &str, optional: Option<bool>, usage: Usage) -> Option<Self> {
        let (optional, usage) = (optional.unwrap_or_default(), usage.of(kind));
        // The API refuses a pod with an empty name.
        (!name.is_empty()).then(|| Self { kind, name: name.to_owned(), key: None, optional, usage })
    }

    fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }
}

/// `KIND/NAME`, or `KIND/NAME/KEY`.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, key, optional: _, usage: _ } = self;
        match key {
            Some(key) => write!(f, "{kind:?}/{name}/{key}"),
            None => write!(f, "{kind:?}/{name}"),
        }
    }
}

/// The digest of the content of a [`Reference`]; none when the object or the key is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceDigest {
    pub reference: Reference,
    pub digest: Option<Digest>,
}

/// Everything that the pods of a Run are made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrozenJob {
    /// Random text. It makes the digest of the job, which everybody may read, tell nothing about secret values.
    pub salt: String,
    pub pods: PodTemplate,
    pub inputs: JobInputs,
    pub references: Vec<ReferenceDigest>,
    /// Whether the content of the references was copied. A job that was frozen before there were copies has none.
    #[serde(default)]
    pub copied: bool,
}

impl FrozenJob {
    /// What the pods of this Run are built from, where the job has this digest.
    #[must_use]
    pub fn template(&self, run: &str, digest: &str) -> PodTemplate {
        PodTemplate { copies: self.copies(run, digest), ..self.pods.clone() }
    }

    /// The copies of what the job refers to.
    #[must_use]
    pub fn copies(&self, run: &str, digest: &str) -> Copies {
        let objects = self.copied.then(|| self.objects().into_keys()).into_iter().flatten();
        Copies::of(run, digest, objects)
    }

    /// The objects that the job refers to, with the keys that it uses of them; all when absent.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<CopyOf, Option<BTreeSet<String>>> {
        copies::copied(self.references.iter().map(|known| &known.reference))
    }

    /// The part that everybody may see.
    #[must_use]
    pub fn summary(&self, digest: &Digest) -> FrozenJobSummary {
        FrozenJobSummary {
            digest: digest.to_string(),
            image: self.pods.image.clone(),
            image_digests: BTreeMap::new(),
            plan_service_account: self.pods.settings.plan_account().map(str::to_owned),
            apply_service_account: self.pods.settings.apply_account().map(str::to_owned),
            hooks: self.inputs.hooks.iter().map(|hook| format!("{}/{}", hook.step, hook.name)).collect(),
            // The same one may be used in several ways.
            references: self
                .references
                .iter()
                .map(|known| known.reference.to_string())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            copies: Vec::new(),
        }
    }

    /// The first reference whose content is not `now` as it was when the job was frozen.
    #[must_use]
    pub fn changed(&self, now: &[ReferenceDigest]) -> Option<&Reference> {
        self.references.iter().find(|known| !now.contains(known)).map(|known| &known.reference)
    }
}

/// The sentence for a Run whose pods would be made of other content than was planned with.
#[must_use]
pub fn changed_since_planned(what: &str) -> String {
    format!("{what} changed since it was planned: plan again.")
}

/// The frozen job of a Run, for a message that says it is lost or changed.
#[must_use]
pub fn job_of(run: &str, summary: &FrozenJobSummary) -> String {
    format!("The frozen job in the Secret `{}`", names::job_secret(run, &summary.digest))
}

/// The Secrets and ConfigMaps that the pods of these settings and hooks refer to by name.
///
/// # Errors
/// When the volumes cannot be read.
pub fn references(settings: &PodSettings, hooks: &[Hook]) -> Result<BTreeSet<Reference>, PodSettingsError> {
    use ReferenceKind::{ConfigMap, Secret};
    let env = settings.env.iter().chain(hooks.iter().flat_map(|hook| &hook.env)).flat_map(of_env);
    let env_from = settings.env_from.iter().flat_map(|from| {
        let secret = from.secret_ref.as_ref();
        let secret = secret.and_then(|it| Reference::new(Secret, &it.name, it.optional, Usage::Values));
        let map = from.config_map_ref.as_ref();
        let map = map.and_then(|it| Reference::new(ConfigMap, &it.name, it.optional, Usage::Values));
        secret.into_iter().chain(map)
    });
    let volumes = settings.volumes()?;
    Ok(env.chain(env_from).chain(volumes.iter().flat_map(of_volume)).collect())
}

fn of_env(variable: &EnvVar) -> impl Iterator<Item = Reference> {
    use ReferenceKind::{ConfigMap, Secret};
    let from = variable.value_from.as_ref();
    let secret = from
        .and_then(|from| from.secret_key_ref.as_ref())
        .and_then(|it| Some(Reference::new(Secret, &it.name, it.optional, Usage::Values)?.with_key(&it.key)));
    let map = from
        .and_then(|from| from.config_map_key_ref.as_ref())
        .and_then(|it| Some(Reference::new(ConfigMap, &it.name, it.optional, Usage::Values)?.with_key(&it.key)));
    secret.into_iter().chain(map)
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    let secret = |name: &str, optional| Reference::new(ReferenceKind::Secret, name, optional, Usage::Files);
    let map = |name: &str, optional| Reference::new(ReferenceKind::ConfigMap, name, optional, Usage::Files);
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = projected.flat_map(|source| {
        let secret = source.secret.as_ref().and_then(|it| secret(&it.name, it.optional));
        secret.into_iter().chain(source.config_map.as_ref().and_then(|it| map(&it.name, it.optional)))
    });
    let secrets = volume.secret.iter().filter_map(|it| secret(it.secret_name.as_deref()?, it.optional));
    let maps = volume.config_map.iter().filter_map(|it| map(&it.name, it.optional));
    secrets.chain(maps).chain(projected).collect()
}

/// The digests of the images that the containers of a pod run in, as far as its node has reported them. Knoll's own
/// container is left out: it belongs to the installation.
#[must_use]
pub fn image_digests(pod: &Pod) -> BTreeMap<String, String> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers
        .filter(|container| container.name != names::pod::INSTALL_CONTAINER)
        .filter_map(|container| Some((container.name.clone(), reported_image(&container.image_id)?.to_owned())))
        .collect()
}

/// Whether the node has said all that it ever says about the images of a pod: each container of the user has an image
/// with a digest, or has started without one.
#[must_use]
pub fn has_reported_images(pod: &Pod) -> bool {
    let digests = image_digests(pod);
    let statuses = || pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let started = |name: &str| statuses().any(|status| status.name == name && status.started == Some(true));
    let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.all(|container| {
        let name = container.name.as_str();
        name == names::pod::INSTALL_CONTAINER || digests.contains_key(name) || started(name)
    })
}

/// `NAME@sha256:HEX` or `sha256:HEX`, without the scheme that some runtimes write before it.
fn reported_image(id: &str) -> Option<&str> {
    let id = id.rsplit_once("://").map_or(id, |(_, id)| id);
    digest_of(id).map(|_| id)
}

/// The digest at the end of an image's name.
fn digest_of(image: &str) -> Option<Digest> {
    image.rsplit_once('@').map_or(image, |(_, digest)| digest).parse().ok()
}

/// The container whose image is not the one that the plan ran in. A container that the node has not yet reported is
/// `Err`.
pub fn other_image(summary: &FrozenJobSummary, pod: &Pod) -> Result<Option<String>, String> {
    let now = image_digests(pod);
    let expected = pod.spec.iter().flat_map(|spec| &spec.containers);
    for container in expected {
        let Some(planned) = summary.image_digests.get(&container.name) else { continue };
        match now.get(&container.name) {
            None => return Err(container.name.clone()),
            Some(image) if digest_of(image) != digest_of(planned) => return Ok(Some(container.name.clone())),
            Some(_) => {}
        }
    }
    Ok(None)
}

/// The images of the pod that applies, by container: those that the plan ran in, by digest. An image that the node knows
/// under another name than the one that was written keeps its name, as another node may not have it under that one; the
/// hub compares its digest before it hands out the job.
#[must_use]
pub fn pinned(run: &Run, summary: &FrozenJobSummary) -> BTreeMap<String, String> {
    let hooks = run.spec.hooks.iter().filter_map(|hook| Some((pod::hook_container(hook)?, hook.image.as_deref()?)));
    let runner = (names::pod::CONTAINER.to_owned(), summary.image.as_str());
    let written = hooks.chain([runner]);
    written
        .filter_map(|(container, image)| {
            let planned = summary.image_digests.get(&container)?;
            let (name, _) = planned.rsplit_once('@')?;
            (repository(name) == repository(image)).then(|| (container, planned.clone()))
        })
        .collect()
}

/// The repository of an image, spelled out as runtimes report it: without tag and digest, with its registry.
fn repository(image: &str) -> String {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let (path, last) = image.rsplit_once('/').map_or(("", image), |(path, last)| (path, last));
    let last = last.split_once(':').map_or(last, |(name, _)| name);
    let name = if path.is_empty() { last.to_owned() } else { format!("{path}/{last}") };
    match name.split_once('/') {
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => name,
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

#[cfg(test)]
mod tests;
