//! Updates `.terraform.lock.hcl` in the current directory after `init` has changed it.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names;

use crate::style;
use crate::workspace::Session;

const FILE: &str = ".terraform.lock.hcl";
/// The key of the lock file in the hub's Secret.
const KEY: &str = "lock";

/// Writes the lock file of the Workspace to the directory if it differs.
pub async fn fetch(session: &Session, workspace: &str) -> Result<()> {
    let secret = match session.api::<Secret>().get_opt(&names::state_secret(workspace)).await {
        Ok(secret) => secret,
        Err(error) => {
            style::note(&format!("cannot fetch `{FILE}`, so it is unchanged: {error}"));
            return Ok(());
        }
    };
    let Some(lock) = secret.and_then(|secret| secret.data?.remove(KEY)) else { return Ok(()) };
    let path = session.folder.join(FILE);
    if std::fs::read(&path).is_ok_and(|known| known == lock.0) {
        return Ok(());
    }
    let new = !path.exists();
    std::fs::write(&path, &lock.0).with_context(|| format!("cannot write `{}`", path.display()))?;
    style::note(&format!("`{FILE}` was {}; commit it to version control", if new { "created" } else { "changed" }));
    Ok(())
}
