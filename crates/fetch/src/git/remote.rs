//! A remote repository: its transport and its refs.

use std::{
    io::{self, Read},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    path::PathBuf,
    sync::Arc,
};

use gix::{
    Url,
    protocol::{
        Handshake,
        handshake::Ref,
        transport::{Protocol, Service, client::blocking_io::Transport},
    },
    url::Scheme,
};
use gix_transport::client::{
    blocking_io::http,
    git::{ConnectMode, blocking_io::Connection},
};

use super::{http::Http, ssh};
use knoll_api::source::shown_address;

use crate::{Credentials, Error, Settings, limits::Limits};

/// The port of the git protocol.
const DAEMON: u16 = 9418;

/// The longest message of the git library in a condition: enough for its first sentence.
const LONGEST_REASON: usize = 300;

/// A remote repository, and the credentials for it.
#[derive(Clone)]
pub(crate) struct Remote {
    pub url: Url,
    /// The URL without a password, for messages.
    pub shown: String,
    pub credentials: Credentials,
    pub settings: Settings,
    pub limits: Arc<Limits>,
    /// The nesting depth of this submodule.
    pub depth: usize,
}

impl Remote {
    pub fn new(url: &str, credentials: &Credentials, settings: &Settings, limits: Arc<Limits>) -> Result<Self, Error> {
        let address = |why: String| Error::Address { url: shown_address(url), why };
        let parsed = gix::url::parse(url).map_err(|error| address(error.to_string()))?;
        if parsed.password().is_some() {
            return Err(address("it contains a password, which everybody who can read the source can see; store it in a Secret, and set `secretRef` to that Secret".to_owned()));
        }
        if parsed.scheme == Scheme::File && !settings.local {
            return Err(Error::Local(shown_address(url)));
        }
        let (credentials, settings) = (credentials.clone(), settings.clone());
        Ok(Self { url: parsed, shown: shown_address(url), credentials, settings, limits, depth: 0 })
    }

    /// The path of a `file://` repository.
    pub fn folder(&self) -> Option<PathBuf> {
        (self.url.scheme == Scheme::File).then(|| PathBuf::from(self.url.path.to_string()))
    }

    /// Lists the refs that begin with `name`.
    pub fn refs(&self, name: &str) -> Result<Vec<Ref>, Error> {
        if let Some(folder) = self.folder() {
            return self.local_refs(&folder, name);
        }
        let mut transport = self.connect()?;
        let mut progress = gix::progress::Discard;
        let handshake =
            gix::protocol::handshake(&mut transport, Service::UploadPack, |_| Ok(None), Vec::new(), &mut progress)
                .map_err(|error| self.failed(&error))?;
        let Handshake { server_protocol_version, refs, capabilities, .. } = &handshake;
        if *server_protocol_version != Protocol::V2 {
            return Ok(refs.clone().unwrap_or_default());
        }
        let mut prefixes = gix::protocol::ls_refs::RefPrefixes::new();
        prefixes.extend([name.into()]);
        let agent = ("agent", Some(gix::protocol::agent("knoll")));
        let command = gix::protocol::LsRefsCommand::new(Some(prefixes), capabilities, agent);
        command.invoke_blocking(&mut transport, &mut progress, false).map_err(|error| self.failed(&error))
    }

    fn local_refs(&self, folder: &std::path::Path, name: &str) -> Result<Vec<Ref>, Error> {
        let repository = gix::open_opts(folder, gix::open::Options::isolated()).map_err(|error| self.failed(&error))?;
        let Ok(mut found) = repository.find_reference(name) else { return Ok(Vec::new()) };
        let direct = found.target().try_id().map(ToOwned::to_owned);
        let object = found.peel_to_id().map_err(|error| self.failed(&error))?.detach();
        let full_ref_name = name.into();
        Ok(vec![match direct.filter(|direct| *direct != object) {
            Some(tag) => Ref::Peeled { full_ref_name, tag, object },
            None => Ref::Direct { full_ref_name, object },
        }])
    }

    /// Connects to the repository.
    pub fn connect(&self) -> Result<Box<dyn Transport + Send>, Error> {
        let unusable = |why: &str| Error::Address { url: self.shown.clone(), why: why.to_owned() };
        match &self.url.scheme {
            Scheme::Http | Scheme::Https => {
                let http = Http::new(self)?;
                Ok(Box::new(http::Transport::new_http(http, self.url.clone(), Protocol::V2, false)))
            }
            Scheme::Ssh => {
                let (read, write) = ssh::open(self)?;
                let path = self.url.path.clone();
                let host: Option<(String, Option<u16>)> = None;
                Ok(Box::new(Connection::new(read, write, Protocol::V2, path, host, ConnectMode::Process, false)))
            }
            Scheme::Git => {
                let host = self.url.host().ok_or_else(|| unusable("it has no host"))?.to_owned();
                let stream = self.dial(&host, self.url.port.unwrap_or(DAEMON))?;
                let write = stream.try_clone()?;
                let read = Counted { inner: stream, url: self.shown.clone(), limits: self.limits.clone() };
                let at = Some((host, self.url.port));
                let path = self.url.path.clone();
                Ok(Box::new(Connection::new(read, write, Protocol::V2, path, at, ConnectMode::Daemon, false)))
            }
            _ => Err(unusable("use https://, ssh://, git:// or user@host:path")),
        }
    }

    fn dial(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let reach = |error: io::Error| Error::Reach { url: self.shown.clone(), why: error.to_string() };
        let mut last = io::Error::other("the host has no address");
        for address in self.open((bare(host), port).to_socket_addrs().map_err(reach)?)? {
            match TcpStream::connect_timeout(&address, self.limits.time()) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(self.limits.time()))?;
                    stream.set_write_timeout(Some(self.limits.time()))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(reach(last))
    }

    /// The addresses of a DNS answer that may be connected to.
    pub fn open(&self, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Error> {
        let forbidden = |refusal| Error::Forbidden { url: self.shown.clone(), refusal };
        self.settings.addresses.open_among(found).map_err(forbidden)
    }

    /// Converts an error of the library to the underlying error, if there is one.
    pub fn failed(&self, error: &impl std::fmt::Display) -> Error {
        let url = self.shown.clone();
        if self.limits.time().is_zero() {
            return Error::TooSlow(url);
        }
        // The library's message may quote the server.
        let why = || error.to_string().chars().take(LONGEST_REASON).collect();
        self.limits.trouble(|| Error::Refused { url, why: why() })
    }
}

/// A host without the brackets of an IPv6 address.
pub(super) fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Counts the bytes that are read towards the limit.
struct Counted<R> {
    inner: R,
    url: String,
    limits: Arc<Limits>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.limits.take(&self.url, count)?;
        Ok(count)
    }
}
