//! A process's streams on a WebSocket, in the protocols of `kubectl` and the Kubernetes clients.
//!
//! Every binary message starts with the number of its channel. `v5.channel.k8s.io` adds a message that closes a channel,
//! which is how a client says that its standard input has ended.

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::SplitStream;
use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::runtime::{RuntimeError, Streams};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// How many messages may wait for the client, or for the process, before the other side has to.
const BACKLOG: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `v4.channel.k8s.io`
    V4,
    /// `v5.channel.k8s.io`: with a message that closes a channel.
    V5,
}

impl Protocol {
    /// The subprotocols' names, the preferred one first: what a WebSocket upgrade is offered.
    pub const NAMES: [&'static str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

    /// The protocol of a name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "v5.channel.k8s.io" => Some(Self::V5),
            "v4.channel.k8s.io" => Some(Self::V4),
            _ => None,
        }
    }
}

/// Answers an upgrade with the best protocol that the client offers, and serves the streams on it.
pub fn upgrade(upgrade: WebSocketUpgrade, streams: Streams) -> Response {
    let upgrade = upgrade.protocols(Protocol::NAMES);
    let chosen = upgrade.selected_protocol().and_then(|name| name.to_str().ok()).and_then(Protocol::parse);
    // A client that names no protocol speaks the older one.
    upgrade.on_upgrade(move |socket| serve(socket, chosen.unwrap_or(Protocol::V4), streams))
}

/// Serves the streams until the process has ended or the client has left. The client learns the exit code.
pub async fn serve(socket: WebSocket, protocol: Protocol, streams: Streams) {
    let Streams { stdin, stdout, stderr, resize, exit } = streams;
    let (mut sink, incoming) = socket.split();
    let (outgoing, mut messages) = mpsc::channel(BACKLOG);

    // An empty message tells the client that it is connected before the process has said anything.
    let first = if stdout.is_some() {
        STDOUT
    } else if stderr.is_some() {
        STDERR
    } else {
        ERROR
    };
    let sending = async {
        sink.send(message(first, &[])).await?;
        while let Some(message) = messages.recv().await {
            sink.send(message).await?;
        }
        sink.close().await
    };
    let process = async {
        let (_, _, exit) = tokio::join!(pump(stdout, STDOUT, &outgoing), pump(stderr, STDERR, &outgoing), exit);
        let _ = outgoing.send(message(ERROR, status(&exit).to_string().as_bytes())).await;
        let frame = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _ = outgoing.send(Message::Close(Some(frame))).await;
        drop(outgoing);
    };
    let (input, inputs) = mpsc::channel(BACKLOG);
    tokio::select! {
        // The last message is out, or the client cannot be reached.
        _ = async { tokio::join!(process, sending).1 } => {}
        () = receive(incoming, protocol, input, resize) => {}
        () = async { feed(stdin, inputs).await; std::future::pending().await } => {}
    }
}

/// Carries one of the process's outputs to its end.
async fn pump(stream: Option<Box<dyn AsyncRead + Send + Unpin>>, channel: u8, outgoing: &mpsc::Sender<Message>) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; 32 << 10];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 || outgoing.send(message(channel, &buffer[..length])).await.is_err() {
            return;
        }
    }
}

/// Takes what the client sends, until it leaves.
async fn receive(
    mut incoming: SplitStream<WebSocket>,
    protocol: Protocol,
    input: mpsc::Sender<Bytes>,
    resize: Option<mpsc::Sender<(u16, u16)>>,
) {
    let mut input = Some(input);
    while let Some(Ok(message)) = incoming.next().await {
        let mut bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return,
        };
        if bytes.is_empty() {
            continue;
        }
        let payload = bytes.split_off(1);
        match bytes[0] {
            STDIN => {
                if let Some(input) = &input {
                    let _ = input.send(payload).await;
                }
            }
            RESIZE => {
                if let (Some(resize), Ok(size)) = (&resize, serde_json::from_slice::<Size>(&payload)) {
                    let _ = resize.send((size.width, size.height)).await;
                }
            }
            CLOSE if protocol == Protocol::V5 && payload.first() == Some(&STDIN) => input = None,
            _ => {}
        }
    }
}

/// Feeds the process, and closes its input when the client has.
async fn feed(mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>, mut inputs: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = inputs.recv().await {
        if let Some(stream) = &mut stdin
            && stream.write_all(&bytes).await.is_err()
        {
            // The process has closed its input, which is no reason to end its output.
            stdin = None;
        }
    }
    if let Some(stream) = &mut stdin {
        let _ = stream.shutdown().await;
    }
}

/// A terminal's size as clients send it.
#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

fn message(channel: u8, payload: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(1 + payload.len());
    bytes.put_u8(channel);
    bytes.put_slice(payload);
    Message::Binary(bytes.freeze())
}

/// The end, as the error channel tells it.
fn status(exit: &Result<i32, RuntimeError>) -> Value {
    match exit {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => json!({
            "metadata": {},
            "status": "Failure",
            "message": error.to_string(),
            "reason": "InternalError",
            "code": 500,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_channel_says_what_clients_look_for() {
        assert_eq!(status(&Ok(0))["status"], "Success");
        let failed = status(&Ok(3));
        assert_eq!((&failed["status"], &failed["reason"]), (&json!("Failure"), &json!("NonZeroExitCode")));
        assert_eq!(failed["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
        let lost = status(&Err(RuntimeError::Failed("the shim is gone".into())));
        assert_eq!((&lost["reason"], &lost["message"]), (&json!("InternalError"), &json!("the shim is gone")));
    }

    #[test]
    fn protocols_have_names() {
        assert_eq!(Protocol::NAMES.map(Protocol::parse), [Some(Protocol::V5), Some(Protocol::V4)]);
        assert_eq!(Protocol::parse("channel.k8s.io"), None);
    }
}
