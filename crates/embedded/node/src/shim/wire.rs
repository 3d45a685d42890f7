//! Frames between the node and a shim: a length, a tag, a payload.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::files::{Exit, Spec, Started};

/// The longest frame; streams are cut into pieces far below it.
const LIMIT: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// To a container's shim: the spec is in its file, start it.
    Start,
    /// To an exec's shim: start this.
    Exec(Box<Spec>),
    /// To a container's shim, first on a connection: tell me when it starts and ends.
    Watch,
    /// To a container's shim, first on a connection: wake me when the log has grown.
    Follow,
    /// To a container's shim, first on a connection: I take part in its streams.
    Attach(Attach),
    /// To the shim: input for the process.
    Stdin(Bytes),
    /// To the shim: no more input.
    StdinClosed,
    /// To the shim: the size of the client's terminal.
    Resize(Size),
    /// To the shim: a signal for the main process; SIGKILL ends every process of the container.
    Signal(i32),
    /// From the shim: it runs.
    Started(Started),
    /// From the shim: output.
    Stdout(Bytes),
    /// From the shim: error output.
    Stderr(Bytes),
    /// From the shim: the log has grown.
    Grown,
    /// From the shim: it ended, and all its output came before.
    Exited(Exit),
}

/// The streams that a client takes part in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub stdin: bool,
    /// It reads the output.
    pub stdout: bool,
    /// It reads the error output.
    pub stderr: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Characters in a row.
    pub columns: u16,
    pub rows: u16,
}

impl Frame {
    fn tag(&self) -> u8 {
        match self {
            Self::Start => 1,
            Self::Exec(_) => 2,
            Self::Watch => 3,
            Self::Follow => 4,
            Self::Attach(_) => 5,
            Self::Stdin(_) => 6,
            Self::StdinClosed => 7,
            Self::Resize(_) => 8,
            Self::Signal(_) => 9,
            Self::Started(_) => 10,
            Self::Stdout(_) => 11,
            Self::Stderr(_) => 12,
            Self::Grown => 13,
            Self::Exited(_) => 14,
        }
    }

    fn payload(&self) -> io::Result<Bytes> {
        Ok(match self {
            Self::Start | Self::Watch | Self::Follow | Self::StdinClosed | Self::Grown => Bytes::new(),
            Self::Stdin(bytes) | Self::Stdout(bytes) | Self::Stderr(bytes) => bytes.clone(),
            Self::Exec(value) => serde_json::to_vec(value)?.into(),
            Self::Attach(value) => serde_json::to_vec(value)?.into(),
            Self::Resize(value) => serde_json::to_vec(value)?.into(),
            Self::Signal(value) => serde_json::to_vec(value)?.into(),
            Self::Started(value) => serde_json::to_vec(value)?.into(),
            Self::Exited(value) => serde_json::to_vec(value)?.into(),
        })
    }

    fn parse(tag: u8, payload: Bytes) -> io::Result<Self> {
        Ok(match tag {
            1 => Self::Start,
            2 => Self::Exec(serde_json::from_slice(&payload)?),
            3 => Self::Watch,
            4 => Self::Follow,
            5 => Self::Attach(serde_json::from_slice(&payload)?),
            6 => Self::Stdin(payload),
            7 => Self::StdinClosed,
            8 => Self::Resize(serde_json::from_slice(&payload)?),
            9 => Self::Signal(serde_json::from_slice(&payload)?),
            10 => Self::Started(serde_json::from_slice(&payload)?),
            11 => Self::Stdout(payload),
            12 => Self::Stderr(payload),
            13 => Self::Grown,
            14 => Self::Exited(serde_json::from_slice(&payload)?),
            other => {
                return Err(io::Error::other(format!("a frame of the unknown kind {other}")));
            }
        })
    }

    /// Writes the frame at once.
    pub async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let payload = self.payload()?;
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let mut bytes = BytesMut::with_capacity(5 + payload.len());
        bytes.put_u32(length);
        bytes.put_u8(self.tag());
        bytes.put(payload);
        to.write_all(&bytes).await
    }

    /// Reads the next frame; `None` when the other side has closed. Not safe to cancel.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let length = match from.read_u32().await {
            Ok(length) => usize::try_from(length).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if length > LIMIT {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let tag = from.read_u8().await?;
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        Self::parse(tag, payload.into()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn every_frame_is_read_as_it_was_written() {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let frames = [
            Frame::Start,
            Frame::Exec(Box::new(Spec { argv: vec!["sh".into()], ..Spec::default() })),
            Frame::Watch,
            Frame::Follow,
            Frame::Attach(Attach { stdin: true, stdout: false, stderr: true }),
            Frame::Stdin(Bytes::from_static(b"in")),
            Frame::StdinClosed,
            Frame::Resize(Size { columns: 80, rows: 24 }),
            Frame::Signal(15),
            Frame::Started(Started { pid: 1, start_time: Some(2), at }),
            Frame::Stdout(Bytes::new()),
            Frame::Stderr(Bytes::from_static(b"\0\xff")),
            Frame::Grown,
            Frame::Exited(Exit::lost(Some(at))),
        ];
        let mut wire = Vec::new();
        for frame in &frames {
            frame.write(&mut wire).await.unwrap();
        }
        let mut from = wire.as_slice();
        for frame in frames {
            assert_eq!(Frame::read(&mut from).await.unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_frame_that_cannot_be_is_refused() {
        let mut unknown: &[u8] = &[0, 0, 0, 0, 99];
        assert!(Frame::read(&mut unknown).await.is_err());
        let mut long: &[u8] = &[255, 0, 0, 0, 6];
        assert!(Frame::read(&mut long).await.is_err());
    }
}
