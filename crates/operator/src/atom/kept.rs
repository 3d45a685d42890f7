//! The journal, in Secrets that go with the Atom.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use knoll_api::{
    Atom,
    names::{self, content, label, secret_type},
};
use knoll_core::atom::journal::Journal;
use knoll_storage::content::{Label, get, put};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::objects::Halt;
use crate::{
    context::Context,
    controller::{Error, code},
};

/// Keeps a journal, and returns the name of its Secret. Nothing of the update is written before.
pub(super) async fn write(context: &Context, atom: &Atom, journal: &Journal) -> Result<String, Halt> {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    let attempt = atom.status.as_ref().map(|status| status.attempts).unwrap_or_default();
    let owner = atom.owner_ref(&()).ok_or_else(|| Halt::Later("The Atom has no UID.".to_owned()))?;
    let labels = BTreeMap::from([
        (label::ATOM.to_owned(), name.clone()),
        (label::CONTENT.to_owned(), content::JOURNAL.to_owned()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ]);
    let label = Label { name: names::journal_secret(&name, attempt), type_: secret_type::JOURNAL, labels, owner };
    let bytes = serde_json::to_vec(journal).map_err(Error::from)?;
    put(&context.client, &namespace, &label, &bytes)
        .await
        .map_err(|error| Halt::Later(format!("The journal cannot be kept: {error}.")))?;
    Ok(label.name)
}

/// Reads a journal.
pub(super) async fn read(context: &Context, atom: &Atom, secret: &str) -> Result<Journal, Halt> {
    let namespace = atom.namespace().unwrap_or_default();
    let failed = |why: String| {
        Halt::Later(format!(
            "The journal in the Secret `{secret}` cannot be read: {why}. Without it nothing can be undone."
        ))
    };
    let bytes = get(&context.client, &namespace, secret).await.map_err(|error| failed(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| failed("it is not there".to_owned()))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
}

/// Deletes all journals of an Atom.
pub(super) async fn forget(context: &Context, atom: &Atom) -> Result<(), Error> {
    let api = context.api::<Secret>(&atom.namespace().unwrap_or_default());
    let ours = format!("{}={},{}={}", label::ATOM, atom.name_any(), label::CONTENT, content::JOURNAL);
    let failed = Error::api("cannot list the journals of an Atom");
    let all = api.list_metadata(&ListParams::default().labels(&ours)).await.map_err(failed)?;
    for secret in all {
        let owned = secret.owner_references().iter().any(|owner| Some(&owner.uid) == atom.metadata.uid.as_ref());
        if !owned {
            continue;
        }
        match api.delete(&secret.name_any(), &DeleteParams::background()).await {
            Ok(_) => {}
            Err(error) if code(&error) == Some(404) => {}
            Err(error) => return Err(Error::api("cannot delete the journal of an Atom")(error)),
        }
    }
    Ok(())
}
