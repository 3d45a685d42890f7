//! What all requests share, and what one user may have of it.

use std::sync::Arc;

use knoll_serve::{Budget, Held};
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::error::PageError;
use crate::server::Hosts;
use crate::session::Sessions;
use crate::sign_in::SignInCodes;

/// Live streams and downloads at the same time, and those of one user. Each stream holds a connection and two watches of
/// the API server.
const STREAMS: (u64, u64) = (256, 16);
/// Requests that are carried out at the same time, and those of one user; others wait for their turn. A request holds
/// up to some hundred megabytes: 50 objects of the largest size, a plan's page, a few parts of a log.
const TURNS: (u64, u64) = (6, 2);

/// The state of the server.
pub struct App {
    pub clients: Clients,
    pub sessions: Sessions,
    pub codes: SignInCodes,
    pub hosts: Hosts,
    pub stop: CancellationToken,
    streams: Arc<Budget>,
    turns: Arc<Budget>,
}

impl App {
    pub fn new(clients: Clients, sessions: Sessions, hosts: Hosts, stop: CancellationToken) -> Self {
        let of = |(all, share)| Budget::new(all, share);
        let (streams, turns) = (of(STREAMS), of(TURNS));
        Self { clients, sessions, codes: SignInCodes::default(), hosts, stop, streams, turns }
    }

    /// Waits until a request of this user may be carried out.
    pub async fn turn(&self, user: &str) -> Result<Held, PageError> {
        let busy = "The page is busy with other requests. Load it again in a moment.";
        self.turns.take(user, 1).await.ok_or_else(|| PageError::Busy(busy.to_owned()))
    }

    /// A permit for a stream of this user, or the error that says that there are too many.
    pub fn stream(&self, user: &str) -> Result<Held, PageError> {
        let busy = "Too many windows watch live. The page still shows all of it when it is loaded again.";
        self.streams.try_take(user, 1).ok_or_else(|| PageError::Busy(busy.to_owned()))
    }
}
