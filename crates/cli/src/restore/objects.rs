//! Restores the objects that belong to states. One that is in the cluster stays as it is.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::{Digest, Policy, Stack, Workspace};
use knoll_backup::{ArchiveError, ObjectAddress, StoredObject, kinds};
use knoll_core::stack::References;
use knoll_storage::Bundle;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Restore;
use crate::connect::Explain;
use crate::style;

impl Restore {
    pub(super) async fn policies(&mut self) -> Result<()> {
        for address in self.archive.objects(kinds::POLICY, None).await? {
            let what = format!("policy `{}`", address.name);
            let api: Api<Policy> = Api::all(self.session.cluster.client.clone());
            let restored = match self.typed::<Policy>(&address).await {
                Ok((policy, _)) => self.create(&api, &policy, &address.name, &what).await.map(drop),
                Err(error) => Err(error),
            };
            self.count(restored, &what);
        }
        Ok(())
    }

    /// Whether the backups have anything of a namespace but its labels.
    pub(super) async fn has_content(&self, namespace: &str) -> Result<bool> {
        if !self.archive.workspaces(namespace).await?.is_empty() {
            return Ok(true);
        }
        for kind in [kinds::WORKSPACE, kinds::STACK] {
            if !self.archive.objects(kind, Some(namespace)).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Creates a namespace with the labels that it had. A user who may not look at namespaces goes on without.
    pub(super) async fn create_namespace(&mut self, namespace: &str) {
        let api: Api<Namespace> = Api::all(self.session.cluster.client.clone());
        if !matches!(api.get_opt(namespace).await, Ok(None)) {
            return;
        }
        let what = format!("namespace `{namespace}`");
        let address = ObjectAddress { kind: kinds::NAMESPACE.to_owned(), namespace: None, name: namespace.to_owned() };
        let labels = match self.archive.object(&address).await {
            Ok(object) => serde_json::from_value(object.manifest["metadata"]["labels"].clone()).unwrap_or_default(),
            Err(_) => None,
        };
        let metadata = ObjectMeta { name: Some(namespace.to_owned()), labels, ..ObjectMeta::default() };
        let object = Namespace { metadata, ..Namespace::default() };
        let created = self.create(&api, &object, namespace, &what).await;
        self.count(created.map(drop), &what);
    }

    pub(super) async fn workspace_object(&mut self, namespace: &str, name: &str) -> Result<()> {
        let address = address(kinds::WORKSPACE, namespace, name);
        let (workspace, status) = match self.typed::<Workspace>(&address).await {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let api: Api<Workspace> = self.api(namespace);
        let what = format!("workspace `{name}` in namespace `{namespace}`");
        if self.create(&api, &workspace, name, &what).await?.is_none() || self.dry_run {
            return Ok(());
        }
        let Some(digest) = status["bundle"].as_str().and_then(|text| text.parse::<Digest>().ok()) else {
            return Ok(());
        };
        self.bundle(namespace, &digest).await?;
        let patch = json!({"status": {"bundle": digest}});
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).explain(&self.session.cluster, "cannot restore which files were applied last")
    }

    pub(super) async fn stacks(&mut self, namespace: &str) -> Result<()> {
        for address in self.archive.objects(kinds::STACK, Some(namespace)).await? {
            let what = format!("stack `{}` in namespace `{namespace}`", address.name);
            let restored = self.stack(namespace, &address, &what).await;
            self.count(restored, &what);
        }
        Ok(())
    }

    async fn stack(&mut self, namespace: &str, address: &ObjectAddress, what: &str) -> Result<()> {
        let (mut stack, _) = self.typed::<Stack>(address).await?;
        if self.runs_already(namespace, &address.name).await? {
            self.kept.push(what.to_owned());
            return Ok(());
        }
        let is_suspended = !self.resume || stack.spec.suspend;
        let what = match self.resume || stack.spec.suspend {
            true => what.to_owned(),
            false => format!("{what}, suspended: `knoll stack resume {} -n {namespace}`", address.name),
        };
        stack.spec.suspend |= !self.resume;
        if let Some(bundle) = &stack.spec.source.bundle
            && !self.dry_run
        {
            self.bundle(namespace, &bundle.digest.parse()?).await?;
        }
        if self.create(&self.api(namespace), &stack, &address.name, &what).await?.is_some() {
            self.missing_inputs(namespace, &stack).await;
            if is_suspended {
                self.suspended.push(format!("{} -n {namespace}", address.name));
            }
        }
        Ok(())
    }

    /// Whether the cluster has a Stack of this name that is not suspended: a GitOps tool was there before the restore.
    async fn runs_already(&self, namespace: &str, name: &str) -> Result<bool> {
        let known: Option<Stack> = self
            .api::<Stack>(namespace)
            .get_opt(name)
            .await
            .explain(&self.session.cluster, &format!("cannot read stack `{name}`"))?;
        let is_active = known.is_some_and(|known| !known.spec.suspend);
        if is_active {
            style::note(&format!(
                "stack `{name}` in namespace `{namespace}` is in the cluster and not suspended; check that it has not created its resources again: `knoll stack show {name} -n {namespace}`"
            ));
        }
        Ok(is_active)
    }

    /// Names the Secrets and ConfigMaps that a Stack refers to and that are not in the cluster. Backups have none.
    async fn missing_inputs(&self, namespace: &str, stack: &Stack) {
        let References { secrets, config_maps, stacks: _ } = References::of(stack);
        let (of_secrets, of_maps) = (self.api::<Secret>(namespace), self.api::<ConfigMap>(namespace));
        let mut missing = Vec::new();
        for name in secrets {
            if matches!(of_secrets.get_metadata_opt(&name).await, Ok(None)) {
                missing.push(format!("secret `{name}`"));
            }
        }
        for name in config_maps {
            if matches!(of_maps.get_metadata_opt(&name).await, Ok(None)) {
                missing.push(format!("configmap `{name}`"));
            }
        }
        if !missing.is_empty() {
            let name = stack.name_any();
            style::note(&format!(
                "stack `{name}` in namespace `{namespace}` refers to {}, which the cluster does not have and backups do not contain; create what is missing before you resume the stack",
                missing.join(", ")
            ));
        }
    }

    /// Stores the files of a module, if the backups have them.
    async fn bundle(&self, namespace: &str, digest: &Digest) -> Result<()> {
        let bytes = match self.archive.bundle(digest).await {
            Ok(bytes) => bytes.to_vec(),
            Err(ArchiveError::Missing(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let found = knoll_bundle::digest_of(&bytes).with_context(|| format!("the bundle `{digest}` is damaged"))?;
        if found != *digest {
            bail!("the bundle `{digest}` is damaged: its files are `{found}`");
        }
        let bundle = Bundle { digest: digest.clone(), bytes };
        Ok(self.session.storage().bundles().store(namespace, &bundle).await?)
    }

    /// An object of the backups as its kind, with the name and the namespace that it has there.
    async fn typed<K>(&self, address: &ObjectAddress) -> Result<(K, Value)>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let StoredObject { manifest, status } = self.archive.object(address).await?;
        let mut object: K = serde_json::from_value(manifest)
            .with_context(|| format!("the backup of {} `{}` is damaged", address.kind, address.name))?;
        let ObjectMeta { labels, annotations, .. } = object.meta().clone();
        let (name, namespace) = (Some(address.name.clone()), address.namespace.clone());
        *object.meta_mut() = ObjectMeta { name, namespace, labels, annotations, ..ObjectMeta::default() };
        Ok((object, status))
    }

    /// Creates an object; nothing when there is one of its name.
    async fn create<K>(&mut self, api: &Api<K>, object: &K, name: &str, what: &str) -> Result<Option<K>>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let known = api.get_metadata_opt(name).await.explain(&self.session.cluster, &format!("cannot read {what}"))?;
        if known.is_some() {
            self.kept.push(what.to_owned());
            return Ok(None);
        }
        let params = PostParams { dry_run: self.dry_run, ..PostParams::default() };
        let created = match api.create(&params, object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(None),
            // A namespace that would be created first is not there in a dry run.
            Err(kube::Error::Api(status)) if status.is_not_found() && self.dry_run => object.clone(),
            created => created.explain(&self.session.cluster, &format!("cannot create {what}"))?,
        };
        self.objects += 1;
        self.say(what);
        Ok(Some(created))
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.session.cluster.client.clone(), namespace)
    }
}

fn address(kind: &str, namespace: &str, name: &str) -> ObjectAddress {
    ObjectAddress { kind: kind.to_owned(), namespace: Some(namespace.to_owned()), name: name.to_owned() }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ArchiveError::Missing(_)))
}
