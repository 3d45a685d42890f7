//! The journals of Atoms, in Secrets that their Atoms own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use knoll_api::{
    Atom,
    names::{self, content, label, secret_type},
};
use knoll_core::atom::{ActionError, journal::Journal};
use knoll_storage::content::{Label, get, put};
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::{
    context::Context,
    controller::{Error, code},
};

/// Stores a journal, and returns the name of its Secret.
pub(super) async fn write(context: &Context, atom: &Atom, journal: &Journal) -> Result<String, ActionError> {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    let attempt = atom.status.as_ref().map(|status| status.attempts).unwrap_or_default();
    let owner = atom.owner_ref(&()).ok_or_else(|| ActionError::Retry("The Atom has no UID.".to_owned()))?;
    let labels = BTreeMap::from([
        (label::ATOM.to_owned(), name.clone()),
        (label::CONTENT.to_owned(), content::JOURNAL.to_owned()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ]);
    let label = Label { name: names::journal_secret(&name, attempt), type_: secret_type::JOURNAL, labels, owner };
    let bytes = serde_json::to_vec(journal).map_err(Error::from)?;
    put(&context.client, &namespace, &label, &bytes)
        .await
        .map_err(|error| ActionError::Retry(format!("The journal cannot be stored: {error}.")))?;
    Ok(label.name)
}

/// The journal that the status names.
pub(super) async fn current(context: &Context, atom: &Atom) -> Result<Journal, ActionError> {
    let journal = atom.status.as_ref().and_then(|status| status.journal.as_ref());
    let secret = journal.map(|journal| journal.secret_name.as_str()).unwrap_or_default();
    find(context, atom, secret).await?.ok_or_else(|| unreadable(secret, "it does not exist"))
}

/// A journal; none when its Secret does not exist. A journal that cannot be read whole is an error.
pub(super) async fn find(context: &Context, atom: &Atom, secret: &str) -> Result<Option<Journal>, ActionError> {
    let namespace = atom.namespace().unwrap_or_default();
    let bytes = get(&context.client, &namespace, secret).await;
    let Some(bytes) = bytes.map_err(|error| unreadable(secret, &error.to_string()))? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| unreadable(secret, &error.to_string()))
}

fn unreadable(secret: &str, why: &str) -> ActionError {
    ActionError::Retry(format!("The journal in the Secret `{secret}` cannot be read: {why}."))
}

/// Deletes all journals of an Atom.
pub(super) async fn delete_all(context: &Context, atom: &Atom) -> Result<(), Error> {
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
