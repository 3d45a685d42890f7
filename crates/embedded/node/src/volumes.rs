//! A pod's volumes, as folders of the host.
//!
//! Every folder is the owner's only, and so is every file in it: of the mode that a pod asks for, the owner's bits count.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, Pod, Volume, VolumeProjection,
};

use super::downward;
use super::objects::{Kind, Missing, Needs, Objects};
use super::paths::Mounts;
use super::shim::files;

/// The mode of a file for which the pod asks for none.
const MODE: u32 = 0o600;

/// Why a volume cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Something it is made of is not there (yet).
    #[error("{0}")]
    Missing(Missing),
    /// The pod asks for what the node does not have, or contradicts itself.
    #[error("volume \"{volume}\": {why}")]
    Invalid {
        volume: String,
        /// What is wrong, and what to do.
        why: String,
    },
    #[error("volume \"{volume}\": {source}")]
    Io { volume: String, source: io::Error },
}

impl From<Missing> for VolumeError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

/// What a volume is made of.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// A folder that the containers fill.
    Empty,
    /// A path of the host.
    Host(PathBuf),
    /// Files that the node writes, and tokens that it gets for the pod.
    Files(Vec<File>, Vec<Token>),
}

/// A file of a volume.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Where in the volume.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// A token of the pod's service account, in a file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Where in the volume.
    pub path: PathBuf,
    /// Whom it is for; nobody in particular is the API server.
    pub audience: Option<String>,
    /// How long it is good for.
    pub seconds: i64,
    pub mode: u32,
}

/// The ConfigMaps and Secrets that a pod's volumes are made of.
pub fn needs(pod: &Pod) -> Needs {
    let mut needs = Needs::default();
    for volume in volumes(pod) {
        if let Some(source) = &volume.config_map {
            needs.add(Kind::ConfigMap, &source.name);
        }
        if let Some(name) = volume.secret.as_ref().and_then(|source| source.secret_name.as_ref()) {
            needs.add(Kind::Secret, name);
        }
        for projection in volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten() {
            if let Some(source) = &projection.config_map {
                needs.add(Kind::ConfigMap, &source.name);
            }
            if let Some(source) = &projection.secret {
                needs.add(Kind::Secret, &source.name);
            }
        }
    }
    needs
}

pub fn volumes(pod: &Pod) -> &[Volume] {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

/// What a volume is made of, from the objects that were read for it.
pub fn content(pod: &Pod, volume: &Volume, objects: &Objects) -> Result<Content, VolumeError> {
    let invalid = |why: String| VolumeError::Invalid { volume: volume.name.clone(), why };
    if volume.empty_dir.is_some() {
        return Ok(Content::Empty);
    }
    if let Some(source) = &volume.host_path {
        return Ok(Content::Host(host_path(source).map_err(invalid)?));
    }
    let mut files = Vec::new();
    let mut tokens = Vec::new();
    if let Some(source) = &volume.config_map {
        let content = objects.all(Kind::ConfigMap, &source.name, source.optional.unwrap_or(false))?;
        let pick =
            Pick { kind: Kind::ConfigMap, name: &source.name, optional: source.optional, mode: source.default_mode };
        files = pick.files(content, source.items.as_deref())?;
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let content = objects.all(Kind::Secret, name, source.optional.unwrap_or(false))?;
        let pick = Pick { kind: Kind::Secret, name, optional: source.optional, mode: source.default_mode };
        files = pick.files(content, source.items.as_deref())?;
    } else if let Some(source) = &volume.downward_api {
        files = downward(pod, source.items.as_deref(), source.default_mode).map_err(invalid)?;
    } else if let Some(source) = &volume.projected {
        for projection in source.sources.iter().flatten() {
            project(pod, projection, source.default_mode, objects, &mut files, &mut tokens).map_err(
                |error| match error {
                    Projection::Missing(missing) => VolumeError::Missing(missing),
                    Projection::Invalid(why) => invalid(why),
                },
            )?;
        }
    } else {
        return Err(invalid(
            "the embedded node has emptyDir, hostPath, configMap, secret, projected and downwardAPI volumes only: use one of these, or run on a cluster that has this kind".to_owned(),
        ));
    }
    let paths = files.iter().map(|file| &file.path).chain(tokens.iter().map(|token| &token.path));
    if let Some(path) = paths.into_iter().find(|path| !inside(path)) {
        return Err(invalid(format!("the path `{}` must be relative and must not contain `..`", path.display())));
    }
    Ok(Content::Files(files, tokens))
}

enum Projection {
    Missing(Missing),
    Invalid(String),
}

impl From<Missing> for Projection {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

fn project(
    pod: &Pod,
    projection: &VolumeProjection,
    mode: Option<i32>,
    objects: &Objects,
    files: &mut Vec<File>,
    tokens: &mut Vec<Token>,
) -> Result<(), Projection> {
    if let Some(source) = &projection.config_map {
        let content = objects.all(Kind::ConfigMap, &source.name, source.optional.unwrap_or(false))?;
        let pick = Pick { kind: Kind::ConfigMap, name: &source.name, optional: source.optional, mode };
        files.extend(pick.files(content, source.items.as_deref())?);
    }
    if let Some(source) = &projection.secret {
        let content = objects.all(Kind::Secret, &source.name, source.optional.unwrap_or(false))?;
        let pick = Pick { kind: Kind::Secret, name: &source.name, optional: source.optional, mode };
        files.extend(pick.files(content, source.items.as_deref())?);
    }
    if let Some(source) = &projection.downward_api {
        files.extend(downward(pod, source.items.as_deref(), mode).map_err(Projection::Invalid)?);
    }
    if let Some(source) = &projection.service_account_token {
        tokens.push(Token {
            path: source.path.clone().into(),
            audience: source.audience.clone().filter(|audience| !audience.is_empty()),
            seconds: source.expiration_seconds.unwrap_or(3600),
            mode: owners(mode),
        });
    }
    if projection.cluster_trust_bundle.is_some() {
        return Err(Projection::Invalid("the embedded node has no cluster trust bundles".to_owned()));
    }
    Ok(())
}

/// Picks the files of a ConfigMap or a Secret.
struct Pick<'a> {
    kind: Kind,
    name: &'a str,
    optional: Option<bool>,
    mode: Option<i32>,
}

impl Pick<'_> {
    fn files(&self, mut content: BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> Result<Vec<File>, Missing> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return Ok(content
                .into_iter()
                .map(|(key, bytes)| File { path: key.into(), bytes, mode: owners(self.mode) })
                .collect());
        };
        let mut files = Vec::new();
        for item in items {
            match content.remove(&item.key) {
                Some(bytes) => {
                    files.push(File { path: item.path.clone().into(), bytes, mode: owners(item.mode.or(self.mode)) })
                }
                None if self.optional == Some(true) => {}
                None => {
                    return Err(Missing { kind: self.kind, name: self.name.to_owned(), key: Some(item.key.clone()) });
                }
            }
        }
        Ok(files)
    }
}

fn downward(pod: &Pod, items: Option<&[DownwardAPIVolumeFile]>, mode: Option<i32>) -> Result<Vec<File>, String> {
    let containers =
        || pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    items
        .unwrap_or_default()
        .iter()
        .map(|item| {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => downward::field(pod, &field.field_path)?,
                (None, Some(selector)) => {
                    let name = selector.container_name.as_deref().unwrap_or_default();
                    let container = containers().find(|container| container.name == name);
                    downward::resource(container.ok_or_else(|| format!("there is no container `{name}`"))?, selector)?
                }
                (None, None) => return Err(format!("`{}` has no source", item.path)),
            };
            Ok(File { path: item.path.clone().into(), bytes: text.into_bytes(), mode: owners(item.mode.or(mode)) })
        })
        .collect()
}

/// The owner's part of a mode.
fn owners(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).map_or(MODE, |mode| mode & 0o700)
}

/// A path that stays in its folder.
fn inside(path: &Path) -> bool {
    path.components().next().is_some()
        && path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let fits = match kind {
        "" => true,
        "DirectoryOrCreate" => files::create_folder(&path).is_ok(),
        "FileOrCreate" => std::fs::OpenOptions::new().create(true).append(true).open(&path).is_ok(),
        "Directory" => path.is_dir(),
        "File" => path.is_file(),
        _ => path.exists(),
    };
    if fits {
        Ok(path)
    } else {
        Err(format!("hostPath type check failed: `{}` is not of the type {kind}", source.path))
    }
}

/// Puts a volume's folder and files in place. Files that are there already are replaced whole.
pub fn write(root: &Path, volume: &str, content: &Content) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Io { volume: volume.to_owned(), source };
    match content {
        Content::Host(_) => Ok(()),
        Content::Empty => files::create_folder(root).map_err(failed),
        Content::Files(list, _) => {
            files::create_folder(root).map_err(failed)?;
            for file in list {
                write_file(root, &file.path, &file.bytes, file.mode).map_err(failed)?;
            }
            Ok(())
        }
    }
}

/// Puts one file of a volume in place.
pub fn write_file(root: &Path, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let path = root.join(path);
    if let Some(parent) = path.parent() {
        files::create_folder(parent)?;
    }
    files::write_bytes(&path, bytes, MODE)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
}

/// Where a container's mounts are. `roots` are the volumes by name.
pub fn mounts(
    container: &Container,
    roots: &BTreeMap<String, PathBuf>,
    expand: impl Fn(&str) -> String,
) -> Result<Mounts, VolumeError> {
    let mut mounts = Mounts::default();
    for mount in container.volume_mounts.iter().flatten() {
        let invalid = |why: String| VolumeError::Invalid { volume: mount.name.clone(), why };
        let root = roots.get(&mount.name).ok_or_else(|| invalid("the pod has no volume of this name".to_owned()))?;
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            (_, Some(path)) if !path.is_empty() => Some(expand(path)),
            _ => None,
        };
        let host = match sub_path {
            None => root.clone(),
            Some(path) if inside(Path::new(&path)) => {
                let host = root.join(&path);
                if !host.exists() {
                    files::create_folder(&host)
                        .map_err(|source| VolumeError::Io { volume: mount.name.clone(), source })?;
                }
                host
            }
            Some(path) => {
                return Err(invalid(format!("the subPath `{path}` must be relative and must not contain `..`")));
            }
        };
        mounts.add(&mount.mount_path, host);
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, from_value, json};

    fn content_of(volume: Value) -> Result<Content, VolumeError> {
        let mut volume = volume;
        volume["name"] = "v".into();
        let pod: Pod = from_value(json!({
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}], "volumes": [volume]},
        }))
        .unwrap();
        let objects = Objects::default().with(Kind::ConfigMap, "cm", &[("a", "1"), ("b", "2")]).with(
            Kind::Secret,
            "s",
            &[("key", "hush")],
        );
        content(&pod, &volumes(&pod)[0], &objects)
    }

    #[track_caller]
    fn check(volume: Value, expect: &[(&str, &str, u32)]) {
        let Content::Files(files, _) = content_of(volume).unwrap() else { panic!() };
        let rows: Vec<_> = files
            .iter()
            .map(|file| (file.path.to_str().unwrap(), std::str::from_utf8(&file.bytes).unwrap(), file.mode))
            .collect();
        assert_eq!(rows, expect);
    }

    #[test]
    fn volumes_hold_what_the_pod_says() {
        check(json!({"configMap": {"name": "cm"}}), &[("a", "1", 0o600), ("b", "2", 0o600)]);
        check(
            json!({"configMap": {"name": "cm", "defaultMode": 0o555, "items": [{"key": "b", "path": "x/y"}]}}),
            &[("x/y", "2", 0o500)],
        );
        check(
            json!({"secret": {"secretName": "s", "items": [{"key": "key", "path": "k", "mode": 0o444}]}}),
            &[("k", "hush", 0o400)],
        );
        check(json!({"secret": {"secretName": "no", "optional": true}}), &[]);
        check(json!({"configMap": {"name": "cm", "optional": true, "items": [{"key": "no", "path": "x"}]}}), &[]);
        check(
            json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}, {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}]}}),
            &[("labels", "a=\"b\"", 0o600), ("cpu", "2", 0o600)],
        );
        check(
            json!({"projected": {"defaultMode": 0o400, "sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "cm", "items": [{"key": "a", "path": "a"}]}}, {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}),
            &[("key", "hush", 0o400), ("a", "1", 0o400), ("n", "p", 0o400)],
        );
        assert_eq!(content_of(json!({"emptyDir": {}})).unwrap(), Content::Empty);
        assert_eq!(content_of(json!({"hostPath": {"path": "/srv"}})).unwrap(), Content::Host("/srv".into()));
    }

    #[test]
    fn tokens_are_asked_for() {
        let sources = json!([{"serviceAccountToken": {"audience": "knoll-hub", "expirationSeconds": 600, "path": "token"}}, {"serviceAccountToken": {"path": "t2"}}]);
        let Content::Files(files, tokens) = content_of(json!({"projected": {"sources": sources}})).unwrap() else {
            panic!()
        };
        assert!(files.is_empty());
        let hub = Token { path: "token".into(), audience: Some("knoll-hub".into()), seconds: 600, mode: 0o600 };
        assert_eq!(tokens, [hub.clone(), Token { path: "t2".into(), audience: None, seconds: 3600, ..hub }]);
    }

    #[test]
    fn what_cannot_be_made_says_why() {
        for (volume, says) in [
            (json!({"configMap": {"name": "no"}}), "configmap \"no\" not found"),
            (
                json!({"secret": {"secretName": "s", "items": [{"key": "no", "path": "x"}]}}),
                "couldn't find key no in Secret s",
            ),
            (json!({"configMap": {"name": "cm", "items": [{"key": "a", "path": "../x"}]}}), "must not contain `..`"),
            (json!({"nfs": {"server": "s", "path": "/"}}), "volumes only"),
            (json!({"hostPath": {"path": "/no/such", "type": "Directory"}}), "hostPath type check failed"),
        ] {
            let message = content_of(volume).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn files_are_written_for_the_owner_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("v");
        for text in ["old", "new"] {
            let file = File { path: "a/b".into(), bytes: text.into(), mode: 0o400 };
            write(&root, "v", &Content::Files(vec![file], vec![])).unwrap();
            assert_eq!(std::fs::read_to_string(root.join("a/b")).unwrap(), text);
        }
        let mode = |path: &str| std::fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("a"), mode("a/b")), (0o700, 0o700, 0o400));
    }

    #[test]
    fn mounts_know_sub_paths() {
        let folder = tempfile::tempdir().unwrap();
        let roots: BTreeMap<_, _> = [("v".to_owned(), folder.path().to_path_buf())].into();
        let at = |mount: Value| {
            let container: Container = from_value(json!({"name": "c", "volumeMounts": [mount]})).unwrap();
            mounts(&container, &roots, |text| text.replace("$(N)", "n")).map(|mounts| mounts.locate("/m/x"))
        };
        assert_eq!(at(json!({"name": "v", "mountPath": "/m"})).unwrap(), folder.path().join("x"));
        assert_eq!(at(json!({"name": "v", "mountPath": "/m", "subPath": "a/b"})).unwrap(), folder.path().join("a/b/x"));
        assert_eq!(
            at(json!({"name": "v", "mountPath": "/m", "subPathExpr": "$(N)"})).unwrap(),
            folder.path().join("n/x")
        );
        assert!(folder.path().join("a/b").is_dir());
        assert!(at(json!({"name": "v", "mountPath": "/m", "subPath": "../x"})).is_err());
        assert!(at(json!({"name": "w", "mountPath": "/m"})).is_err());
    }
}
