//! The frozen job of a Run: everything that its pods are made of, as it was before the first of them was made.
//!
//! *Guarantees.* A run that is reviewed, or that plans and applies in two pods, has one frozen job. All of its pods, and
//! all that the hub tells their runners, come from it. The Workspace, ConfigMaps and Secrets as they are later do not
//! count. Content that pods take from Secrets and ConfigMaps by name is not copied: the frozen job has its digest, and
//! nothing starts once it differs.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReferenceKind {
    ConfigMap,
    Secret,
}

impl Reference {
    fn new(kind: ReferenceKind, name: &str, key: Option<&str>) -> Option<Self> {
        // The API refuses a pod with an empty name.
        (!name.is_empty()).then(|| Self { kind, name: name.to_owned(), key: key.map(str::to_owned) })
    }
}

/// `KIND/NAME`, or `KIND/NAME/KEY`.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, key } = self;
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
}

impl FrozenJob {
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
            references: self.references.iter().map(|known| known.reference.to_string()).collect(),
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
        let secret = from.secret_ref.as_ref().and_then(|secret| Reference::new(Secret, &secret.name, None));
        secret
            .into_iter()
            .chain(from.config_map_ref.as_ref().and_then(|map| Reference::new(ConfigMap, &map.name, None)))
    });
    let volumes = settings.volumes()?;
    Ok(env.chain(env_from).chain(volumes.iter().flat_map(of_volume)).collect())
}

fn of_env(variable: &EnvVar) -> impl Iterator<Item = Reference> {
    let from = variable.value_from.as_ref();
    let secret = from.and_then(|from| from.secret_key_ref.as_ref());
    let secret = secret.and_then(|key| Reference::new(ReferenceKind::Secret, &key.name, Some(&key.key)));
    let map = from.and_then(|from| from.config_map_key_ref.as_ref());
    let map = map.and_then(|key| Reference::new(ReferenceKind::ConfigMap, &key.name, Some(&key.key)));
    secret.into_iter().chain(map)
}

fn of_volume(volume: &Volume) -> Vec<Reference> {
    use ReferenceKind::{ConfigMap, Secret};
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let secrets = volume.secret.iter().filter_map(|secret| secret.secret_name.as_deref());
    let secrets = secrets.chain(projected.clone().filter_map(|source| Some(source.secret.as_ref()?.name.as_str())));
    let maps = volume.config_map.iter().map(|map| map.name.as_str());
    let maps = maps.chain(projected.filter_map(|source| Some(source.config_map.as_ref()?.name.as_str())));
    let secrets = secrets.filter_map(|name| Reference::new(Secret, name, None));
    secrets.chain(maps.filter_map(|name| Reference::new(ConfigMap, name, None))).collect()
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
