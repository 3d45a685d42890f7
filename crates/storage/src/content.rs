//! Content that belongs to an object, in Secrets that go with it: the plan of a Run, a state to push, the journal of an
//! Atom.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knoll_api::names::{annotation, label};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::chunks::{self, PART, Packed};
use crate::error::Error;
use crate::states::{CONTENT, Store, create_once};

/// The key of the names of further parts in a head.
const PARTS: &str = "parts";

/// What a content is, and to whom it belongs.
pub struct Label {
    /// The name of its head.
    pub name: String,
    /// One of [`knoll_api::names::secret_type`].
    pub type_: &'static str,
    /// How its Secrets are found.
    pub labels: BTreeMap<String, String>,
    /// Whom they go with.
    pub owner: OwnerReference,
}

/// Stores `content`, in place of what was stored under its name, and returns its digest. Its head is written last.
///
/// # Errors
/// When the API does not take it.
pub async fn put(client: &Client, namespace: &str, label: &Label, content: &[u8]) -> Result<String, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let Packed { digest, parts } = chunks::pack(content, PART).map_err(|error| Error::Internal(error.to_string()))?;
    let mut names = Vec::new();
    let mut inline = None;
    if let [only] = &parts[..] {
        inline = Some(only.clone());
    } else {
        for (number, part) in parts.into_iter().enumerate() {
            let name = format!("{}-{}-{number}", label.name, chunks::short(&digest));
            let data = BTreeMap::from([(CONTENT.to_owned(), ByteString(part))]);
            let part = Secret { immutable: Some(true), ..secret(label, &name, &digest, data) };
            create_once(&api, &part).await?;
            names.push(name);
        }
    }
    let mut data = BTreeMap::from([(PARTS.to_owned(), ByteString(names.join("\n").into_bytes()))]);
    data.extend(inline.map(|inline| (CONTENT.to_owned(), ByteString(inline))));
    let mut head = secret(label, &label.name, &digest, data);
    match api.create(&PostParams::default(), &head).await {
        Ok(_) => Ok(digest),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            // A runner that got no answer makes the same write again.
            let known = api.get(&label.name).await?;
            head.metadata.resource_version = known.metadata.resource_version;
            api.replace(&label.name, &PostParams::default(), &head).await?;
            Ok(digest)
        }
        Err(error) => Err(error.into()),
    }
}

/// The content that was stored under `name`.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub async fn get(client: &Client, namespace: &str, name: &str) -> Result<Option<Bytes>, Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let Some(head) = api.get_opt(name).await? else {
        return Ok(None);
    };
    let digest = head.metadata.annotations.unwrap_or_default().remove(annotation::DIGEST).unwrap_or_default();
    let mut data = head.data.unwrap_or_default();
    let parts = match data.remove(CONTENT) {
        Some(inline) => vec![inline.0],
        None => {
            let names = data.remove(PARTS).map(|names| names.0).unwrap_or_default();
            let names: Vec<String> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
            Store::new(client.clone()).parts(namespace, &names).await?
        }
    };
    Ok(Some(chunks::unpack(parts.iter().map(Vec::as_slice), &digest)?.into()))
}

fn secret(label: &Label, name: &str, digest: &str, data: BTreeMap<String, ByteString>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(label.labels.clone()),
            annotations: Some(BTreeMap::from([(annotation::DIGEST.to_owned(), digest.to_owned())])),
            owner_references: Some(vec![label.owner.clone()]),
            ..ObjectMeta::default()
        },
        type_: Some(label.type_.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// The labels of what belongs to a Run.
#[must_use]
pub fn labels(kind: &str, run: &str, workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::RUN.to_owned(), run.to_owned()),
        (label::WORKSPACE.to_owned(), workspace.to_owned()),
        (label::CONTENT.to_owned(), kind.to_owned()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ])
}
