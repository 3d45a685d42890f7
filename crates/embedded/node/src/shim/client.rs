//! Those who are connected to a shim: the node that watches, followers of the log, attached clients.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc, watch};

use super::files::{Exit, Started};
use super::output::Output;
use super::process::Terminal;
use super::wire::{Attach, Frame};

/// How many pieces of output may wait for a client before the process has to.
const BACKLOG: usize = 64;

/// What a connection can reach.
#[derive(Clone)]
pub struct Shared {
    pub started: Started,
    pub output: Arc<Mutex<Output>>,
    pub input: mpsc::Sender<Input>,
    pub terminal: Option<Terminal>,
    pub signals: mpsc::UnboundedSender<i32>,
    /// Its end, after its output.
    pub end: watch::Receiver<Option<Exit>>,
    /// Its input ends with the first client that had it.
    pub stdin_once: bool,
}

/// Something for the process's input.
pub enum Input {
    Data(Bytes),
    Close,
}

/// Feeds the process's input; what nobody reads is dropped.
pub async fn feed(mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>, mut input: mpsc::Receiver<Input>) {
    while let Some(item) = input.recv().await {
        match (item, &mut stdin) {
            (Input::Close, _) => stdin = None,
            (Input::Data(bytes), Some(writer)) => {
                if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                    stdin = None;
                }
            }
            (Input::Data(_), None) => {}
        }
    }
}

/// Serves one connection until either side has had enough.
pub async fn serve(stream: UnixStream, shared: Shared) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    match Frame::read(&mut from).await? {
        Some(Frame::Watch) => {
            Frame::Started(shared.started.clone()).write(&mut to).await?;
            watching(from, to, shared).await
        }
        Some(Frame::Follow) => follow(from, to, shared).await,
        Some(Frame::Attach(wants)) => attached(from, to, wants, shared).await,
        _ => Ok(()),
    }
}

/// A node: it hears of the end, and sends signals.
pub async fn watching(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Shared) -> io::Result<()> {
    let Shared { signals, mut end, .. } = shared;
    let reading = async {
        while let Some(frame) = Frame::read(&mut from).await? {
            if let Frame::Signal(number) = frame {
                let _ = signals.send(number);
            }
        }
        Ok(())
    };
    tokio::select! {
        result = reading => result,
        exit = ended(&mut end) => Frame::Exited(exit?).write(&mut to).await,
    }
}

/// A reader of the log file: woken when there is more, and disconnected when there will be no more.
async fn follow(mut from: impl AsyncRead + Unpin, mut to: OwnedWriteHalf, shared: Shared) -> io::Result<()> {
    let mut grown = shared.output.lock().await.grown();
    let mut end = shared.end;
    let writing = async {
        // The follower may have reached the file's end before it was known here.
        Frame::Grown.write(&mut to).await?;
        while grown.changed().await.is_ok() {
            Frame::Grown.write(&mut to).await?;
        }
        Ok(())
    };
    tokio::select! {
        result = writing => result,
        result = Frame::read(&mut from) => result.map(drop),
        result = ended(&mut end) => result.map(drop),
    }
}

/// A client of the streams.
pub async fn attached(
    mut from: impl AsyncRead + Unpin,
    mut to: OwnedWriteHalf,
    wants: Attach,
    shared: Shared,
) -> io::Result<()> {
    let Shared { output, input, terminal, mut end, stdin_once, started, signals } = shared;
    let (frames, mut outgoing) = mpsc::channel(BACKLOG);
    output.lock().await.attach(wants, frames);
    let reading = async {
        while let Some(frame) = Frame::read(&mut from).await? {
            match frame {
                Frame::Stdin(bytes) if wants.stdin => {
                    let _ = input.send(Input::Data(bytes)).await;
                }
                Frame::StdinClosed if wants.stdin && stdin_once => {
                    let _ = input.send(Input::Close).await;
                }
                Frame::Resize(size) => {
                    if let Some(terminal) = &terminal {
                        terminal.resize(size);
                    }
                }
                Frame::Signal(number) => {
                    let _ = signals.send(number);
                }
                _ => {}
            }
        }
        io::Result::Ok(())
    };
    let writing = async {
        // From here on nothing is missed; the client may rely on that.
        Frame::Started(started).write(&mut to).await?;
        while let Some(frame) = outgoing.recv().await {
            frame.write(&mut to).await?;
        }
        Frame::Exited(ended(&mut end).await?).write(&mut to).await
    };
    let result = tokio::select! {
        result = reading => result,
        result = writing => result,
    };
    if wants.stdin && stdin_once {
        let _ = input.send(Input::Close).await;
    }
    result
}

async fn ended(end: &mut watch::Receiver<Option<Exit>>) -> io::Result<Exit> {
    let exit = end.wait_for(Option::is_some).await.map_err(io::Error::other)?;
    exit.clone().ok_or_else(|| io::Error::other("no exit"))
}
