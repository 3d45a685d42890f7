//! Takes connections from a listener.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::{Connection, Connections};

/// How long a server pauses when the system refuses a connection, as it does without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves each connection that there is room for, until `stop`; one too many is closed at once. Returns those that are
/// still being served then. `server` is a name for the log.
pub async fn accept<S>(
    server: &'static str,
    listener: TcpListener,
    connections: Connections,
    stop: CancellationToken,
    serve: impl Fn(TcpStream, Connection) -> S,
) -> TaskTracker
where
    S: Future<Output = ()> + Send + 'static,
{
    let open = TaskTracker::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    tracing::warn!(%error, server, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let Some(place) = connections.admit(peer, Instant::now()) else { continue };
        let serving = serve(stream, place.0.clone());
        open.spawn(async move {
            tokio::select! {
                () = serving => {}
                () = place.0.closed() => tracing::debug!(server, %peer, "a connection was closed for another one"),
            }
        });
    }
    open.close();
    open
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Bounds;

    #[tokio::test]
    async fn a_connection_that_has_to_go_is_closed_and_its_place_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bounds = Bounds { all: 1, address: 1, client: 1, group: 1, spared: Duration::ZERO };
        let stop = CancellationToken::new();
        let echo = async |mut stream: TcpStream| {
            let mut one = [0];
            while stream.read_exact(&mut one).await.is_ok() && stream.write_all(&one).await.is_ok() {}
        };
        let serve = move |stream, _| Box::pin(echo(stream));
        let serving = tokio::spawn(accept("test", listener, Connections::new(bounds), stop.clone(), serve));
        let mut before = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"x").await.unwrap();
            let mut one = [0];
            stream.read_exact(&mut one).await.unwrap();
            before.push(stream);
        }
        let last = before.pop().unwrap();
        for mut stream in before {
            assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)), "it was closed for the next one");
        }
        stop.cancel();
        drop(last);
        serving.await.unwrap().wait().await;
    }
}
