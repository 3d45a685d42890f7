//! What all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::server::Hosts;
use crate::session::Sessions;
use crate::sign_in::SignInCodes;

/// Live streams at the same time. Each holds a connection and two watches of the API server.
const STREAMS: usize = 256;

/// The state of the server.
pub struct App {
    pub clients: Clients,
    pub sessions: Sessions,
    pub codes: SignInCodes,
    pub hosts: Hosts,
    pub streams: Arc<Semaphore>,
    pub stop: CancellationToken,
}

impl App {
    pub fn new(clients: Clients, sessions: Sessions, hosts: Hosts, stop: CancellationToken) -> Self {
        let streams = Arc::new(Semaphore::new(STREAMS));
        Self { clients, sessions, codes: SignInCodes::default(), hosts, streams, stop }
    }
}
