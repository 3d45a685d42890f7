//! The content of bundles is compared with their digest before it counts.
//!
//! Users create the ConfigMaps of bundles, and the name of a bundle follows from its files. So anybody may have written
//! anything under it. Whoever may delete such an object replaces it; whoever may not stores the bundle as a copy, under a
//! name that nobody knew beforehand, and readers find the copy by its label.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::Digest;
use knoll_api::names::{self, content, label};
use knoll_bundle::digest_of;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMetaExt;
use kube::{Api, ResourceExt};

use super::{BYTES, BundleError, LABEL_DIGITS, PARTS};
use crate::blob::{BlobError, NAME_DIGITS, delete_unchanged, read_parts, used_at};
use crate::error::Error;
use crate::random;
use crate::seal::Sealer;

/// Between the name of a bundle and the random end of the name of a copy.
const COPY: &str = "-copy-";
/// How many ConfigMaps are listed at a time in the search for a copy.
const PAGE: u32 = 64;
/// How many pages are searched. What is no copy is deleted on the way by those who may, so the next search is shorter.
const PAGES: usize = 16;

/// What lies under the name of a bundle.
pub(super) enum Standing {
    Stored,
    Absent,
    /// Content without that digest, or an object that somebody else has made.
    Other(Box<ConfigMap>),
}

/// Marks the bundle of this name as used, so that it is not swept, and compares its content with its digest.
///
/// A user who may create but not change such objects leaves the mark as it is. A sweep keeps the object from the moment in
/// which something refers to it.
pub(super) async fn mark_used(
    api: &Api<ConfigMap>,
    name: &str,
    digest: &Digest,
    sealer: &Sealer,
) -> Result<Standing, BundleError> {
    let head = match api.patch(name, &PatchParams::default(), &Patch::Merge(&used_at(Timestamp::now()))).await {
        Ok(head) => head,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Standing::Absent),
        Err(kube::Error::Api(status)) if status.is_forbidden() => match api.get_opt(name).await? {
            Some(head) => head,
            None => return Ok(Standing::Absent),
        },
        Err(error) => return Err(error.into()),
    };
    match of(api, &head, digest, sealer).await? {
        Ok(_) => Ok(Standing::Stored),
        Err(_) => Ok(Standing::Other(Box::new(head))),
    }
}

/// Deletes what has the name of a bundle and is none, unless it was touched since it was read; false if this client may
/// not do so.
pub(super) async fn delete(api: &Api<ConfigMap>, head: &ConfigMap) -> Result<bool, BundleError> {
    match delete_unchanged(api, &head.metadata.clone().into_response_partial()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A name for a copy of the bundle of this name.
pub(super) fn name_of_copy(name: &str) -> Result<String, Error> {
    Ok(format!("{name}{COPY}{}", random::digest()?.short(NAME_DIGITS)))
}

/// The packed bytes of the bundle under its own name; none if nothing has that name.
pub(super) async fn under_own_name(
    api: &Api<ConfigMap>,
    digest: &Digest,
    sealer: &Sealer,
) -> Result<Option<Vec<u8>>, BundleError> {
    let Some(head) = api.get_opt(&names::bundle_config_map(digest.as_str())).await? else { return Ok(None) };
    let damaged = |fault: Fault| BundleError::Damaged { digest: digest.clone(), why: fault.why };
    of(api, &head, digest, sealer).await?.map(Some).map_err(damaged)
}

/// The packed bytes of a copy of a bundle. What has the name of one and is none is deleted, if this client may do so.
pub(super) async fn of_a_copy(
    api: &Api<ConfigMap>,
    digest: &Digest,
    sealer: &Sealer,
) -> Result<Option<Vec<u8>>, BundleError> {
    let prefix = format!("{}{COPY}", names::bundle_config_map(digest.as_str()));
    // Parts have further words behind the name of their head.
    let is_copy = |name: &str| name.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('-'));
    let selector = format!("{}={},{}={}", label::BUNDLE, digest.short(LABEL_DIGITS), label::CONTENT, content::BUNDLE);
    let mut params = ListParams::default().labels(&selector).limit(PAGE);
    for _ in 0..PAGES {
        let page = api.list_metadata(&params).await?;
        for found in page.items.iter().filter(|found| is_copy(&found.name_any())) {
            let Some(head) = api.get_opt(&found.name_any()).await? else { continue };
            match of(api, &head, digest, sealer).await? {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(fault) if fault.is_of_the_key => {}
                Err(_) => {
                    delete(api, &head).await?;
                }
            }
        }
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params.continue_token = Some(next),
            _ => break,
        }
    }
    Ok(None)
}

/// Why content is not that of a bundle.
struct Fault {
    why: String,
    /// The content cannot be opened. Another key might open it.
    is_of_the_key: bool,
}

/// The packed bytes of the bundle that begins with this head, or why they are not those of the digest.
async fn of(
    api: &Api<ConfigMap>,
    head: &ConfigMap,
    digest: &Digest,
    sealer: &Sealer,
) -> Result<Result<Vec<u8>, Fault>, kube::Error> {
    let other = |why: String| Ok(Err(Fault { why, is_of_the_key: false }));
    let mut data = head.binary_data.clone().unwrap_or_default();
    let mut take = |key: &str| data.remove(key).map(|value| value.0).unwrap_or_default();
    let (first, names) = (take(BYTES), take(PARTS));
    let names: Vec<String> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
    let stored = match read_parts(api, first, &names, BYTES).await {
        Ok(stored) => stored,
        Err(Error::Api(error)) => return Err(error),
        Err(error) => return other(error.to_string()),
    };
    let bytes = match sealer.open(stored) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Err(Fault { why: BlobError::from(error).to_string(), is_of_the_key: true })),
    };
    match digest_of(&bytes) {
        Ok(found) if found == *digest => Ok(Ok(bytes)),
        Ok(found) => other(format!("its content is `{found}`")),
        Err(error) => other(format!("it cannot be unpacked: {error}")),
    }
}
