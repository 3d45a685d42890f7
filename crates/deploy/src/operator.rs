//! The operator's Namespace, ServiceAccount, Services and Deployment.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{
            Affinity, Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvFromSource, EnvVar,
            EnvVarSource, HTTPGetAction, Namespace, ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity,
            PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecretEnvSource,
            SecurityContext, Service, ServiceAccount, ServicePort, ServiceSpec, Volume, VolumeMount,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use knoll_api::names::label;

use crate::{Manifest, Settings, roles};

pub const DEPLOYMENT: &str = "knoll-operator";
/// The Service by which runners reach the hub.
pub const SERVICE: &str = "knoll-hub";
/// The Secret with variables for backups: the address of the target, and the credentials of a cloud.
const BACKUP_SECRET: &str = "knoll-backup";
/// The volume for temporary files.
const TEMPORARY: &str = "tmp";
pub const HUB_PORT: u16 = 8443;
/// The port of health checks and metrics.
pub const METRICS_PORT: u16 = 8080;
/// The Service of the web page.
pub const PAGE_SERVICE: &str = "knoll-page";
/// The port of the web page.
pub const PAGE_PORT: u16 = 8081;

/// A user id that owns no file on a node.
const NOBODY: i64 = 65532;

/// Name, namespace and the common labels of Knoll's objects.
pub fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    let labels = [(label::MANAGED_BY, label::MANAGED_BY_KNOLL), ("app.kubernetes.io/part-of", "knoll")];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(strings(labels)),
        ..ObjectMeta::default()
    }
}

/// The namespace, with the restricted pod security standard.
pub fn namespace(settings: &Settings) -> Manifest {
    let mut metadata = metadata(&settings.namespace, None);
    let restricted = [("pod-security.kubernetes.io/enforce", "restricted")];
    metadata.labels.get_or_insert_default().extend(strings(restricted));
    Manifest::of(&Namespace { metadata, ..Namespace::default() })
}

pub fn account(settings: &Settings) -> Manifest {
    let metadata = metadata(roles::OPERATOR, Some(&settings.namespace));
    Manifest::of(&ServiceAccount { metadata, ..ServiceAccount::default() })
}

/// The Service of the hub. Its cluster IP is stable for the lifetime of the installation.
pub fn service(settings: &Settings) -> Manifest {
    let port = ServicePort {
        name: Some("https".to_owned()),
        port: 443,
        target_port: Some(IntOrString::String("hub".to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    let spec = ServiceSpec { selector: Some(selector()), ports: Some(vec![port]), ..ServiceSpec::default() };
    let metadata = metadata(SERVICE, Some(&settings.namespace));
    Manifest::of(&Service { metadata, spec: Some(spec), status: None })
}

/// The Service of the web page, for a port-forward or an Ingress.
pub fn page_service(settings: &Settings) -> Manifest {
    let port = ServicePort {
        name: Some("http".to_owned()),
        port: 80,
        target_port: Some(IntOrString::String("page".to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    let spec = ServiceSpec { selector: Some(selector()), ports: Some(vec![port]), ..ServiceSpec::default() };
    let metadata = metadata(PAGE_SERVICE, Some(&settings.namespace));
    Manifest::of(&Service { metadata, spec: Some(spec), status: None })
}

/// The Deployment. A new pod is ready before an old one is deleted, so that runners always find a hub.
pub fn deployment(settings: &Settings) -> Manifest {
    let rolling =
        RollingUpdateDeployment { max_unavailable: Some(IntOrString::Int(0)), max_surge: Some(IntOrString::Int(1)) };
    let mut template = metadata("", None);
    template.name = None;
    template.labels.get_or_insert_default().extend(selector());
    template.annotations = Some(strings([("kubectl.kubernetes.io/default-container", "operator")]));
    let spec = DeploymentSpec {
        replicas: Some(settings.replicas),
        selector: LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() },
        strategy: Some(DeploymentStrategy { type_: Some("RollingUpdate".to_owned()), rolling_update: Some(rolling) }),
        template: PodTemplateSpec { metadata: Some(template), spec: Some(pod(settings)) },
        ..DeploymentSpec::default()
    };
    let metadata = metadata(DEPLOYMENT, Some(&settings.namespace));
    Manifest::of(&Deployment { metadata, spec: Some(spec), status: None })
}

fn pod(settings: &Settings) -> PodSpec {
    let apart = WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: PodAffinityTerm {
            label_selector: Some(LabelSelector { match_labels: Some(selector()), ..LabelSelector::default() }),
            topology_key: "kubernetes.io/hostname".to_owned(),
            ..PodAffinityTerm::default()
        },
    };
    let anti = PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![apart]),
        ..PodAntiAffinity::default()
    };
    PodSpec {
        service_account_name: Some(roles::OPERATOR.to_owned()),
        enable_service_links: Some(false),
        // Time to finish requests of runners.
        termination_grace_period_seconds: Some(30),
        affinity: Some(Affinity { pod_anti_affinity: Some(anti), ..Affinity::default() }),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            run_as_group: Some(NOBODY),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container(settings)],
        // Git repositories and archives are unpacked here.
        volumes: Some(vec![Volume {
            name: TEMPORARY.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

fn container(settings: &Settings) -> Container {
    let field = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
    };
    // Runs use the operator's own image, so that runner and hub have the same version.
    let value =
        |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None };
    let ranges = settings.allow_source_cidrs.join(",");
    let chosen = [
        settings.image_volumes.then(|| value("KNOLL_IMAGE_VOLUMES", "true")),
        (!ranges.is_empty()).then(|| value("KNOLL_ALLOW_SOURCE_CIDR", &ranges)),
        settings.plain_http_credentials.then(|| value("KNOLL_PLAIN_HTTP_CREDENTIALS", "true")),
    ];
    let env = [
        field("KNOLL_IDENTITY", "metadata.name"),
        field("KNOLL_LEASE_NAMESPACE", "metadata.namespace"),
        value("KNOLL_IMAGE", &settings.image),
    ];
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let probe = |path: &str, period| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("metrics".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        ..Probe::default()
    };
    Container {
        name: "operator".to_owned(),
        image: Some(settings.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["knoll".to_owned(), "operator".to_owned()]),
        env: Some(env.into_iter().chain(chosen.into_iter().flatten()).collect()),
        env_from: Some(vec![EnvFromSource {
            secret_ref: Some(SecretEnvSource { name: BACKUP_SECRET.to_owned(), optional: Some(true) }),
            ..EnvFromSource::default()
        }]),
        ports: Some(vec![port("hub", HUB_PORT), port("metrics", METRICS_PORT), port("page", PAGE_PORT)]),
        liveness_probe: Some(probe("/healthz", 10)),
        readiness_probe: Some(probe("/readyz", 2)),
        // The startup probe is frequent, because `knoll install` waits for it.
        startup_probe: Some(Probe { failure_threshold: Some(60), ..probe("/healthz", 1) }),
        resources: Some(ResourceRequirements {
            requests: Some(quantities([("cpu", "50m"), ("memory", "64Mi")])),
            // States and plans pass through memory, and may be large; so do the processes that evaluate rules.
            limits: Some(quantities([("memory", "2Gi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: TEMPORARY.to_owned(),
            mount_path: "/tmp".to_owned(),
            ..VolumeMount::default()
        }]),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn selector() -> BTreeMap<String, String> {
    strings([("app.kubernetes.io/name", "knoll"), ("app.kubernetes.io/component", "operator")])
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn quantities<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, Quantity> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), Quantity(value.to_owned()))).collect()
}
