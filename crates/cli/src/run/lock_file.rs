//! `.terraform.lock.hcl` comes back when `init` changed it.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names;

use crate::style;
use crate::workspace::Place;

const FILE: &str = ".terraform.lock.hcl";
/// The key that the hub keeps it under.
const KEY: &str = "lock";

/// Writes the lock file of the Workspace into the folder, when it differs.
pub async fn fetch(place: &Place, workspace: &str) -> Result<()> {
    let secret = match place.api::<Secret>().get_opt(&names::state_secret(workspace)).await {
        Ok(secret) => secret,
        Err(error) => {
            style::note(&format!("`{FILE}` could not be fetched, so it stays as it is: {error}"));
            return Ok(());
        }
    };
    let Some(lock) = secret.and_then(|secret| secret.data?.remove(KEY)) else { return Ok(()) };
    let path = place.folder.join(FILE);
    if std::fs::read(&path).is_ok_and(|known| known == lock.0) {
        return Ok(());
    }
    let new = !path.exists();
    std::fs::write(&path, &lock.0).with_context(|| format!("cannot write `{}`", path.display()))?;
    style::note(&format!("`{FILE}` was {}; keep it in version control", if new { "created" } else { "changed" }));
    Ok(())
}
