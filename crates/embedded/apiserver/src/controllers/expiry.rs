//! Events are kept for an hour, as on any cluster.

use std::time::Duration;

use jiff::Timestamp;

use crate::status::{ApiError, Result};
use crate::{Server, object};
use knoll_kube_store::{List, Write};

const PREFIX: &str = "core/events/";
const KEEP: Duration = Duration::from_secs(3600);
const EVERY: Duration = Duration::from_secs(60);

/// Deletes what is too old, once a minute.
pub async fn run(server: Server) -> Result<()> {
    loop {
        let list = List { prefix: PREFIX, ..List::default() };
        let page = server.store.list(list).map_err(ApiError::internal)?;
        let oldest = server.now().checked_sub(KEEP).unwrap_or(Timestamp::UNIX_EPOCH);
        for entry in page.entries {
            let made = object::light(&entry.value).ok().and_then(|l| l.metadata.creation_timestamp);
            if made.and_then(|t| t.parse::<Timestamp>().ok()).is_some_and(|t| t < oldest) {
                let delete = Write::Delete { key: entry.key, expect: entry.revision, value: None };
                // A conflict means that the event happened again: it stays.
                let _ = server.store.write(delete).await;
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
