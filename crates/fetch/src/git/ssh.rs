//! Git over ssh, with the private key and the known host keys of a Secret.

use std::{
    io::{self, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Buf, Bytes};
use russh::{
    ChannelMsg, ChannelWriteHalf,
    client::{self, Handle as Session, Msg},
    keys::{PrivateKeyWithHashAlg, PublicKey, decode_secret_key, known_hosts::known_host_keys_path},
};
use tokio::{runtime::Handle, sync::mpsc};

use super::remote::{Remote, bare};
use crate::{Error, limits::Limits};

/// How many bytes of the server's standard error are kept for a message.
const STDERR_BYTES: usize = 2048;

/// Starts `git-upload-pack` on the server, and returns its output and its input.
pub(super) fn open(remote: &Remote) -> Result<(Reader, Writer), Error> {
    let handle = Handle::current();
    let limits = remote.limits.clone();
    let opened = handle.block_on(async { tokio::time::timeout(limits.time(), start(remote)).await });
    let (session, mut answers, requests) = opened.map_err(|_| Error::TooSlow(remote.shown.clone()))??;
    let (sender, chunks) = mpsc::channel(16);
    let last_words = Arc::new(Mutex::new(Vec::new()));
    let said = last_words.clone();
    handle.spawn(async move {
        // The session ends when this task does, so the task holds it.
        let _session = session;
        while let Some(message) = answers.wait().await {
            match message {
                ChannelMsg::Data { data } => match sender.send(data).await {
                    Ok(()) => {}
                    Err(_) => return,
                },
                ChannelMsg::ExtendedData { data, .. } => {
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = STDERR_BYTES.saturating_sub(said.len());
                    said.extend_from_slice(&data[..data.len().min(room)]);
                }
                _ => {}
            }
        }
    });
    let reader = Reader {
        chunks,
        chunk: Bytes::new(),
        handle: handle.clone(),
        limits: limits.clone(),
        url: remote.shown.clone(),
        anything: false,
        last_words,
    };
    Ok((reader, Writer { requests, handle, limits, url: remote.shown.clone() }))
}

type Opened = (Session<Server>, russh::ChannelReadHalf, ChannelWriteHalf<Msg>);

async fn start(remote: &Remote) -> Result<Opened, Error> {
    let url = remote.shown.clone();
    let reach = |error: russh::Error| Error::Reach { url: url.clone(), why: error.to_string() };
    let missing = |why: String| Error::Credentials { url: url.clone(), why };
    let address = |why: &str| Error::Address { url: url.clone(), why: why.to_owned() };
    let host = remote.url.host().ok_or_else(|| address("it has no host"))?.to_owned();
    let port = remote.url.port.unwrap_or(22);
    let path = remote.url.path.to_string();
    let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
    if path.starts_with('-') || path.contains(['\'', '\n', '\0']) {
        return Err(address("a path must not begin with `-`, and not contain quotes or line breaks"));
    }
    // The connection is made to these addresses; the name is not resolved again.
    let found = tokio::net::lookup_host((bare(&host), port)).await.map_err(|error| reach(error.into()))?;
    let open = remote.open(found)?;
    let credentials = &remote.credentials;
    let name = remote.url.user().or(credentials.username.as_deref()).unwrap_or("git").to_owned();
    let identity = credentials.identity.as_deref().ok_or_else(|| {
        missing(
            "no private key given; store it under `identity` in a Secret, and set `secretRef` to that Secret"
                .to_owned(),
        )
    })?;
    let key = decode_secret_key(identity, credentials.password.as_deref()).map_err(|error| {
        missing(format!("`identity` in the Secret is not a valid private key: {error}; if it is encrypted, store its passphrase under `password`"))
    })?;
    let known = known(&host, port, credentials.known_hosts.as_deref().unwrap_or_default())?;
    if known.is_empty() {
        let scan = if port == 22 { host.clone() } else { format!("-p {port} {host}") };
        return Err(missing(format!(
            "`known_hosts` in the Secret has no key of this server; add the output of `ssh-keyscan {scan}` after you have verified it"
        )));
    }
    let mut config = client::Config { nodelay: true, ..client::Config::default() };
    // A server with several host keys presents one of the requested types.
    let usual = config.preferred.key.to_vec();
    let is_known = |algorithm: &russh::keys::Algorithm| {
        known
            .iter()
            .any(|key| key.algorithm() == *algorithm || (key.algorithm().is_rsa() && algorithm.clone().is_rsa()))
    };
    let asked: Vec<_> = usual.into_iter().filter(is_known).collect();
    if !asked.is_empty() {
        config.preferred.key = asked.into();
    }
    let denied = Arc::new(Mutex::new(false));
    let server = Server { known, denied: denied.clone() };
    let session = client::connect(Arc::new(config), &open[..], server).await;
    let mut session = session.map_err(|error| {
        if *denied.lock().unwrap_or_else(PoisonError::into_inner) {
            return missing(format!("the server's host key does not match `known_hosts` in the Secret for `{host}`; find out why before you change it ({error})"));
        }
        reach(error)
    })?;
    let hash = session.best_supported_rsa_hash().await.map_err(reach)?.flatten();
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
    if !session.authenticate_publickey(&name, key).await.map_err(reach)?.success() {
        return Err(missing(format!(
            "the server rejected the key `identity` of the Secret for user `{name}`; is its public key registered there?"
        )));
    }
    let channel = session.channel_open_session().await.map_err(reach)?;
    // A server that ignores the variable speaks the older protocol version.
    channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(reach)?;
    channel.exec(true, format!("git-upload-pack '{path}'")).await.map_err(reach)?;
    let (answers, requests) = channel.split();
    Ok((session, answers, requests))
}

/// The keys of a host in a text in `known_hosts` format.
fn known(host: &str, port: u16, text: &str) -> Result<Vec<PublicKey>, Error> {
    // The library only reads files. It checks them line by line, as ssh does.
    let mut file = tempfile::NamedTempFile::new()?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '@']));
    for line in lines {
        writeln!(file, "{line}")?;
    }
    file.flush()?;
    let found = known_host_keys_path(host, port, file.path());
    Ok(found.unwrap_or_default().into_iter().map(|(_, key)| key).collect())
}

/// The trusted keys of the server.
struct Server {
    known: Vec<PublicKey>,
    denied: Arc<Mutex<bool>>,
}

impl client::Handler for Server {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &russh::keys::PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let is_known = match shown {
            russh::keys::PublicKeyOrCertificate::PublicKey { key, .. } => {
                self.known.iter().any(|known| known.key_data() == key.key_data())
            }
            russh::keys::PublicKeyOrCertificate::Certificate(_) => false,
        };
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = !is_known;
        Ok(is_known)
    }
}

/// The output of the server's git.
pub(super) struct Reader {
    chunks: mpsc::Receiver<Bytes>,
    chunk: Bytes,
    handle: Handle,
    limits: Arc<Limits>,
    url: String,
    anything: bool,
    last_words: Arc<Mutex<Vec<u8>>>,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            let next =
                self.handle.block_on(async { tokio::time::timeout(self.limits.time(), self.chunks.recv()).await });
            let next = next.map_err(|_| self.limits.fail(Error::TooSlow(self.url.clone())))?;
            match next {
                Some(chunk) => self.chunk = chunk,
                None if self.anything => return Ok(0),
                None => {
                    let said = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
                    let why = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
                    let why = if why.is_empty() { "the connection was closed".to_owned() } else { why };
                    return Err(self.limits.fail(Error::Refused { url: self.url.clone(), why }));
                }
            }
            self.anything = true;
            self.limits.take(&self.url, self.chunk.len())?;
        }
        let count = self.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.chunk[..count]);
        self.chunk.advance(count);
        Ok(count)
    }
}

/// The input of the server's git.
pub(super) struct Writer {
    requests: ChannelWriteHalf<Msg>,
    handle: Handle,
    limits: Arc<Limits>,
    url: String,
}

impl Write for Writer {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let sent = self.requests.data_bytes(Bytes::copy_from_slice(buffer));
        let sent = self.handle.block_on(async { tokio::time::timeout(self.limits.time(), sent).await });
        match sent {
            Ok(Ok(())) => Ok(buffer.len()),
            Ok(Err(error)) => Err(self.limits.fail(Error::Reach { url: self.url.clone(), why: error.to_string() })),
            Err(_) => Err(self.limits.fail(Error::TooSlow(self.url.clone()))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
