//! The pod of a Run: the same on every cluster.
//!
//! Its name follows from the run's, so a run never has two pods of one stage.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, EmptyDirVolumeSource, EnvVar, ImageVolumeSource, Pod, PodSpec, ProjectedVolumeSource,
        ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use knoll_api::{
    hooks::Hook,
    names::{self, annotation, label},
    pod::{PodSettings, PodSettingsError},
    run::Run,
    wire,
    workspace::{Tool, WorkspaceSpec},
};
use kube::{Resource, ResourceExt};

use super::{frozen::PodTemplate, stop_times::POD_GRACE};
use crate::{
    policy::Effective,
    steps::{self, Stage},
};

/// How long a token for the hub is valid; the kubelet renews it well before.
const TOKEN_SECONDS: i64 = 3600;

/// The longest value of a label, and so the longest name of a run that a pod can carry.
const LABEL_MAX: usize = 63;

/// What the cluster gives to every pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Platform {
    /// The image that has Knoll in it.
    pub knoll_image: String,
    /// How pods take their runner from it.
    pub runner: Runner,
    /// The images of terraform.
    pub terraform: ToolImage,
    /// The images of OpenTofu.
    pub tofu: ToolImage,
    /// Where runners reach the hub: `https://...`.
    pub hub_url: String,
    /// The certificate authority of the hub, as PEM text.
    pub hub_ca: String,
    /// Where providers are kept between runs.
    pub plugin_cache: Option<PluginCache>,
    /// Whether nodes pull images. Those of the embedded cluster run the programs of their PATH.
    pub pulls_images: bool,
}

/// How the runner comes from Knoll's image into a pod that has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A container of Knoll's image calls this program, `knoll` or what is nothing but the runner, to copy itself.
    Container(&'static str),
    /// Knoll's image is a volume of the pod, where the runner has this path: a container less in every pod.
    Volume(&'static str),
}

/// The images of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolImage {
    /// The image without its tag.
    pub repository: String,
    /// The version of a Workspace that names none.
    pub version: String,
}

/// Waits for the program, and becomes it. A shell that is the first process of a container ends only on signals that it
/// asked for, and not every `sleep` knows fractions. Where there is much to do, it looks less often.
const ONCE_INSTALLED: &str = r#"trap 'exit 143' INT TERM
pause=0.02
until [ -x "$0" ]; do sleep $pause 2>/dev/null || sleep 1; pause=0.1; done
exec "$0" "$@""#;

/// Becomes the program of the volume of its image. A runtime may mount such volumes so that nothing can be executed there;
/// then the program is copied first. Only the shell's own words are used before that: each program costs a pod time.
const FROM_VOLUME: &str = r#"from=$1 volume=$2; shift 2
if [ ! -e "$from" ]; then
  echo "knoll: error: this node did not mount Knoll's image, so its container runtime has no image volumes: install Knoll without --image-volumes, or update the runtime (containerd 2.1, CRI-O 1.33)" >&2
  exit 127
fi
copy=
while read -r _ at _ options _; do
  case "$at,,$options," in "$volume",*,noexec,*) copy=yes ;; esac
done </proc/mounts
[ "$copy" ] || exec "$from" "$@"
mkdir -p "${0%/*}" && cp "$from" "$0.part" && mv "$0.part" "$0" && exec "$0" "$@"
echo "knoll: error: the runner cannot be put into the pod's volume" >&2
exit 126"#;

/// A folder of providers that runs share.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginCache {
    /// Where the runner finds it.
    pub path: String,
    /// The volume that is mounted there; without one the path is there already.
    pub volume: Option<Volume>,
}

/// A pod that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Pods carry the run's name in a label.
    #[error("the name of a Run has at most {LABEL_MAX} characters, and `{0}` has more; create it under a shorter name")]
    NameTooLong(String),
    /// The Workspace's settings cannot be read.
    #[error("{0}; correct it in the Workspace and start the run again")]
    Settings(#[from] PodSettingsError),
}

/// The name of a run's pod.
#[must_use]
pub fn name(run: &str, stage: Stage) -> String {
    match stage {
        Stage::Whole | Stage::Plan => run.to_owned(),
        Stage::Judge => format!("{run}-judge"),
        Stage::Apply => format!("{run}-apply"),
    }
}

/// The name of the container that a hook with an image of its own runs in.
#[must_use]
pub fn hook_container(hook: &Hook) -> Option<String> {
    hook.image.as_ref().map(|_| format!("hook-{}", hook.name))
}

/// Whether the pod was made for exactly this run, and not for an earlier one of its name.
#[must_use]
pub fn is_of(pod: &Pod, run: &Run) -> bool {
    run.uid().is_some_and(|uid| pod.owner_references().iter().any(|owner| owner.uid == uid))
}

/// Makes the pod of a run.
///
/// # Errors
/// When what the user asked for cannot be written as a pod.
pub fn build(run: &Run, template: &PodTemplate, stage: Stage, platform: &Platform) -> Result<Pod, Error> {
    let run_name = run.name_any();
    if run_name.len() > LABEL_MAX {
        return Err(Error::NameTooLong(run_name));
    }
    let settings = template.settings.clone();
    let service_account_name = steps::account(&settings, &run.spec, stage).map(str::to_owned);
    // The shared folder of providers is written by the pods of users.
    let own = Platform { plugin_cache: None, ..platform.clone() };
    let platform = if stage == Stage::Judge { &own } else { platform };
    let volumes = volumes(template, platform)?;
    let affinity = settings.affinity()?;
    let security_context = settings.security_context()?;
    let containers = containers(run, template, stage, platform)?;
    let metadata = metadata(run, stage, &settings);
    let PodSettings {
        node_selector,
        tolerations,
        image_pull_secrets,
        priority_class_name,
        // Written into the account, the containers, the volumes or the metadata.
        service_account_name: _,
        plan: _,
        apply: _,
        resources: _,
        affinity: _,
        env: _,
        env_from: _,
        volumes: _,
        volume_mounts: _,
        security_context: _,
        container_security_context: _,
        labels: _,
        annotations: _,
    } = settings;

    let spec = PodSpec {
        restart_policy: Some("Never".to_owned()),
        // A service account that the user asked for comes with its token; terraform's providers may need it.
        automount_service_account_token: Some(service_account_name.is_some()),
        service_account_name: Some(service_account_name.unwrap_or_else(|| "default".to_owned())),
        enable_service_links: Some(false),
        termination_grace_period_seconds: i64::try_from(POD_GRACE.as_secs()).ok(),
        containers,
        volumes: Some(volumes),
        node_selector: some(node_selector),
        tolerations: (!tolerations.is_empty()).then_some(tolerations),
        image_pull_secrets: (!image_pull_secrets.is_empty()).then_some(image_pull_secrets),
        priority_class_name,
        affinity,
        security_context,
        ..PodSpec::default()
    };
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

fn metadata(run: &Run, stage: Stage, settings: &PodSettings) -> ObjectMeta {
    let mut labels = settings.labels.clone();
    labels.insert(label::RUN.to_owned(), run.name_any());
    labels.insert(label::WORKSPACE.to_owned(), run.spec.workspace.clone());
    labels.insert(label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned());
    let owner = run.controller_owner_ref(&()).map(|owner| OwnerReference {
        // The run may go before its pod has ended; the pod must not hold it back.
        block_owner_deletion: Some(false),
        ..owner
    });
    let mut annotations = settings.annotations.clone();
    annotations.entry(annotation::DEFAULT_CONTAINER.to_owned()).or_insert_with(|| names::pod::CONTAINER.to_owned());
    ObjectMeta {
        name: Some(name(&run.name_any(), stage)),
        namespace: run.namespace(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn volumes(template: &PodTemplate, platform: &Platform) -> Result<Vec<Volume>, PodSettingsError> {
    let token = ServiceAccountTokenProjection {
        audience: Some(wire::HUB_AUDIENCE.to_owned()),
        expiration_seconds: Some(TOKEN_SECONDS),
        path: "token".to_owned(),
    };
    let token = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    let own = [
        Volume {
            name: names::pod::VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        },
        Volume {
            name: names::pod::TOKEN_VOLUME.to_owned(),
            projected: Some(ProjectedVolumeSource { sources: Some(vec![token]), ..ProjectedVolumeSource::default() }),
            ..Volume::default()
        },
    ];
    let image = matches!(platform.runner, Runner::Volume(_)).then(|| Volume {
        name: names::pod::IMAGE_VOLUME.to_owned(),
        image: Some(ImageVolumeSource { reference: Some(platform.knoll_image.clone()), pull_policy: None }),
        ..Volume::default()
    });
    let cache = platform.plugin_cache.as_ref().and_then(|cache| cache.volume.clone());
    let users = template.settings.volumes()?.into_iter().map(|volume| template.copies.in_volume(volume));
    Ok(own.into_iter().chain(image).chain(cache).chain(users).collect())
}

/// The container that puts `knoll` where every other container of the pod waits for it, if it takes one.
fn install(settings: &PodSettings, platform: &Platform) -> Result<Option<Container>, PodSettingsError> {
    let Runner::Container(program) = platform.runner else { return Ok(None) };
    Ok(Some(Container {
        name: names::pod::INSTALL_CONTAINER.to_owned(),
        image: Some(platform.knoll_image.clone()),
        command: Some(words([program, "runner", "install", names::pod::BIN_PATH])),
        volume_mounts: Some(vec![mount(names::pod::VOLUME, names::pod::VOLUME_PATH)]),
        security_context: settings.container_security_context()?,
        ..Container::default()
    }))
}

/// What brings the runner, the runner, and one container for each hook that has an image of its own.
fn containers(
    run: &Run,
    template: &PodTemplate,
    stage: Stage,
    platform: &Platform,
) -> Result<Vec<Container>, PodSettingsError> {
    let PodTemplate { image, image_is_named: _, settings, own: _, pinned, copies } = template;
    let image_of = |container: &str, written: &str| pinned.get(container).map_or(written, String::as_str).to_owned();
    let mut mounts = vec![
        mount(names::pod::VOLUME, names::pod::VOLUME_PATH),
        VolumeMount { read_only: Some(true), ..mount(names::pod::TOKEN_VOLUME, names::pod::TOKEN_PATH) },
    ];
    if let Some(PluginCache { path, volume: Some(volume) }) = &platform.plugin_cache {
        mounts.push(mount(&volume.name, path));
    }
    if let Runner::Volume(_) = platform.runner {
        let volume = mount(names::pod::IMAGE_VOLUME, names::pod::IMAGE_PATH);
        mounts.push(VolumeMount { read_only: Some(true), ..volume });
    }
    mounts.extend(settings.volume_mounts.iter().cloned());
    // Ours come last: of two variables with one name, the last one counts.
    let from_copies = |env: &[EnvVar]| env.iter().map(|variable| copies.in_env(variable.clone())).collect::<Vec<_>>();
    let env: Vec<EnvVar> = from_copies(&settings.env).into_iter().chain(environment(template, platform)).collect();
    let env_from = (!settings.env_from.is_empty())
        .then(|| settings.env_from.iter().map(|from| copies.in_env_from(from.clone())).collect::<Vec<_>>());
    let security_context = settings.container_security_context()?;

    let is_judge = stage == Stage::Judge;
    let attach = run.spec.attach && !is_judge;
    let runner = Container {
        name: names::pod::CONTAINER.to_owned(),
        image: Some(image_of(names::pod::CONTAINER, image)),
        command: Some(command(platform.runner, names::pod::CONTAINER, &["runner"])),
        env: Some(env.clone()),
        env_from: env_from.clone(),
        volume_mounts: Some(mounts.clone()),
        resources: settings.resources.clone(),
        security_context: security_context.clone(),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        stdin: attach.then_some(true),
        tty: attach.then_some(true),
        ..Container::default()
    };
    let hooks = run.spec.hooks.iter().filter(|_| !is_judge).filter_map(|hook| {
        let name = hook_container(hook)?;
        Some(Container {
            command: Some(command(platform.runner, &name, &["runner", "hook", &hook.name])),
            image: hook.image.as_deref().map(|image| image_of(&name, image)),
            name,
            env: Some(env.iter().cloned().chain(from_copies(&hook.env)).collect()),
            env_from: env_from.clone(),
            volume_mounts: Some(mounts.clone()),
            security_context: security_context.clone(),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            ..Container::default()
        })
    });
    Ok(install(settings, platform)?.into_iter().chain([runner]).chain(hooks).collect())
}

/// The command of a container of this name that becomes the runner, called with these words.
///
/// An init container would do without the wait, and cost a second: a kubelet that has seen one end looks again after a
/// second before it starts the next.
fn command(runner: Runner, container: &str, args: &[&str]) -> Vec<String> {
    let (bin, volume) = (names::pod::BIN_PATH, names::pod::IMAGE_PATH);
    let shell = ["/bin/sh", "-c"].map(str::to_owned);
    let script = match runner {
        Runner::Container(_) => vec![ONCE_INSTALLED.to_owned(), format!("{bin}/knoll")],
        // Each container that has to copy it has a copy of its own, and waits for nobody.
        Runner::Volume(program) => {
            let copy = format!("{bin}/{container}");
            vec![FROM_VOLUME.to_owned(), copy, format!("{volume}{program}"), volume.to_owned()]
        }
    };
    shell.into_iter().chain(script).chain(words(args.iter().copied())).collect()
}

/// What the pods of a Workspace's runs are built from, as the Workspace and the Policies are now.
#[must_use]
pub fn template(workspace: &WorkspaceSpec, policy: &Effective, platform: &Platform) -> PodTemplate {
    let own = workspace.pod.clone().unwrap_or_default();
    let (settings, own) = if policy.supplies() { (policy.pod(&own), Some(own)) } else { (own, None) };
    let image_is_named = workspace.image.is_some();
    PodTemplate { image: image(workspace, platform), image_is_named, settings, own, ..PodTemplate::default() }
}

/// The image of the runner's container: what the Workspace names, or the tool's own in its version.
#[must_use]
pub fn image(workspace: &WorkspaceSpec, platform: &Platform) -> String {
    if let Some(image) = &workspace.image {
        return image.clone();
    }
    let ToolImage { repository, version } = match workspace.tool {
        Tool::Terraform => &platform.terraform,
        Tool::Tofu => &platform.tofu,
    };
    format!("{repository}:{}", workspace.version.as_ref().unwrap_or(version))
}

/// What the runner has to know before it can ask the hub for the rest.
fn environment(template: &PodTemplate, platform: &Platform) -> impl Iterator<Item = EnvVar> {
    let named = if template.image_is_named { template.image.clone() } else { String::new() };
    let unused_image = (!platform.pulls_images).then_some((wire::env::UNUSED_IMAGE, named));
    let cache = platform.plugin_cache.as_ref().map(|cache| (wire::env::PLUGIN_CACHE, cache.path.clone()));
    [
        (wire::env::HUB_URL, platform.hub_url.clone()),
        (wire::env::HUB_CA, platform.hub_ca.clone()),
        (wire::env::TOKEN_FILE, format!("{}/token", names::pod::TOKEN_PATH)),
        (wire::env::WORK_DIR, names::pod::WORK_PATH.to_owned()),
    ]
    .into_iter()
    .chain(cache)
    .chain(unused_image)
    .map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value), value_from: None })
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

fn some(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests;
