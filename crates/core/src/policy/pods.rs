//! What the settings of a Workspace's pods take from their node.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SecurityContext, WindowsSecurityContextOptions};
use knoll_api::pod::PodSettings;

/// The prefix of the annotations by which older clusters choose an AppArmor profile.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The settings that loosen the isolation of a pod, as paths below `spec.pod`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostAccess {
    pub host_path: Vec<String>,
    pub privileged: Vec<String>,
    /// Volumes that hold a token of the pod's service account.
    pub tokens: Vec<String>,
    /// Images that are mounted as volumes.
    pub images: Vec<String>,
    /// A field that cannot be read, so nobody knows what it takes.
    pub unreadable: Vec<String>,
}

impl HostAccess {
    pub(super) fn of(settings: &PodSettings) -> Self {
        let mut found = Self::default();
        match settings.volumes() {
            Ok(volumes) => {
                for volume in volumes {
                    if volume.host_path.is_some() {
                        found.host_path.push(format!("pod.volumes[{}].hostPath", volume.name));
                    }
                    let projected = volume.projected.and_then(|projected| projected.sources).unwrap_or_default();
                    if projected.iter().any(|source| source.service_account_token.is_some()) {
                        found.tokens.push(format!("pod.volumes[{}].projected", volume.name));
                    }
                    found.images.extend(volume.image.and_then(|image| image.reference));
                }
            }
            Err(error) => found.unreadable.push(error.to_string()),
        }
        match settings.security_context() {
            Ok(context) => found.of_pod(context.unwrap_or_default()),
            Err(error) => found.unreadable.push(error.to_string()),
        }
        match settings.container_security_context() {
            Ok(context) => found.of_container(context.unwrap_or_default()),
            Err(error) => found.unreadable.push(error.to_string()),
        }
        for (key, value) in &settings.annotations {
            if key.starts_with(APP_ARMOR) && value == "unconfined" {
                found.privileged.push(format!("pod.annotations[{key}]"));
            }
        }
        found
    }

    fn of_pod(&mut self, context: PodSecurityContext) {
        let mut note = |loose: bool, field: &str| {
            if loose {
                self.privileged.push(format!("pod.securityContext.{field}"));
            }
        };
        note(is_host_process(context.windows_options.as_ref()), "windowsOptions.hostProcess");
        note(context.seccomp_profile.is_some_and(|profile| profile.type_ == "Unconfined"), "seccompProfile");
        note(context.app_armor_profile.is_some_and(|profile| profile.type_ == "Unconfined"), "appArmorProfile");
        note(context.se_linux_options.is_some(), "seLinuxOptions");
        note(context.sysctls.is_some_and(|sysctls| !sysctls.is_empty()), "sysctls");
    }

    fn of_container(&mut self, context: SecurityContext) {
        let mut note = |loose: bool, field: &str| {
            if loose {
                self.privileged.push(format!("pod.containerSecurityContext.{field}"));
            }
        };
        let adds = |capabilities: Capabilities| capabilities.add.is_some_and(|added| !added.is_empty());
        note(context.privileged == Some(true), "privileged");
        note(context.capabilities.is_some_and(adds), "capabilities.add");
        note(context.proc_mount.is_some_and(|mount| mount != "Default"), "procMount");
        note(is_host_process(context.windows_options.as_ref()), "windowsOptions.hostProcess");
        note(context.seccomp_profile.is_some_and(|profile| profile.type_ == "Unconfined"), "seccompProfile");
        note(context.app_armor_profile.is_some_and(|profile| profile.type_ == "Unconfined"), "appArmorProfile");
        note(context.se_linux_options.is_some(), "seLinuxOptions");
    }
}

fn is_host_process(options: Option<&WindowsSecurityContextOptions>) -> bool {
    options.is_some_and(|options| options.host_process == Some(true))
}
