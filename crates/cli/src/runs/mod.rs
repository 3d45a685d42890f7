//! The commands about runs that are there: list, look, cancel, decide, watch.

pub mod cancel;
pub mod decide;
mod diff;
pub mod list;
mod phase;
mod plan_text;
pub mod show;
pub mod watch;

use anyhow::{Result, anyhow};
use knoll_api::Run;

use crate::connect::Explain;
use crate::workspace::Place;

/// A Run, by its name.
pub async fn get(place: &Place, name: &str) -> Result<Run> {
    let found = place.api::<Run>().get_opt(name).await;
    let found = found.explain(&place.cluster, &format!("cannot read the run `{name}`"))?;
    if found.is_none() {
        place.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!(
            "there is no run `{name}` in namespace `{}`\n  `knoll runs` shows those that are there",
            place.namespace
        )
    })
}
