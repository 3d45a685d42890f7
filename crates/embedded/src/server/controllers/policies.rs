//! Admission policies are compiled anew whenever one of them or of their bindings changes.

use crate::server::Server;
use crate::server::admission::FOLDER;
use crate::server::status::{ApiError, Result};

/// Follows the policies and their bindings.
pub async fn run(server: Server) -> Result<()> {
    let mut watch = server.store.watch(FOLDER, server.store.revision()).map_err(ApiError::internal)?;
    loop {
        server.policies.load(&server);
        watch.next().await.map_err(ApiError::internal)?;
    }
}
