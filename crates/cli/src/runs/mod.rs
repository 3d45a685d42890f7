//! Commands on existing runs: list, show, cancel, approve, discard, watch.

pub mod cancel;
mod covers;
pub mod decide;
mod diff;
pub mod list;
mod phase;
mod plan_text;
pub mod show;
pub mod verdict;
pub mod watch;

use anyhow::{Result, anyhow};
use knoll_api::Run;

use crate::connect::Explain;
use crate::workspace::Session;

pub async fn get(session: &Session, name: &str) -> Result<Run> {
    let found = session.api::<Run>().get_opt(name).await;
    let found = found.explain(&session.cluster, &format!("cannot read run `{name}`"))?;
    if found.is_none() {
        session.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!("run `{name}` not found in namespace `{}`\n  list runs with `knoll runs`", session.namespace)
    })
}
