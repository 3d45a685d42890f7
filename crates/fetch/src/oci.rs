//! Packs of rules in OCI registries, as `conftest push` and `opa build` make them.
//!
//! *Guarantees.* The manifest has the digest that the pack names, and each layer the one that the manifest names. A layer
//! whose type is not known refuses the pack: a part of the rules could be in it.

use std::{io::Read, path::Path};

use knoll_api::{Digest, policy::OciPack};
use knoll_bundle::unpack_tar;
use reqwest::{Method, Response, StatusCode, Url, header};
use serde::Deserialize;

use crate::{
    Credentials, Error, Settings,
    address::literal,
    client::{self, Client},
    limits::{LONGEST, Limits},
    pack::{LARGEST_PACK, Texts, texts},
};

/// The manifests that are understood.
const MANIFESTS: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The largest manifest, and the largest answer with a token.
const LARGEST_MANIFEST: u64 = 1 << 20;
/// The largest layer: more than the rules in it, as tar has blocks and compression may not help.
const LARGEST_LAYER: u64 = 4 * LARGEST_PACK;
/// The most layers. Conftest makes one of each file.
const MOST_LAYERS: usize = 256;
/// The annotation with the path of the file that a layer is.
const TITLE: &str = "org.opencontainers.image.title";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file with rules.
    Rules,
    /// An archive of files.
    Tar,
    Unknown,
}

impl Kind {
    fn of(media_type: &str) -> Self {
        match media_type {
            "application/vnd.cncf.openpolicyagent.policy.layer.v1+rego" => Self::Rules,
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.cncf.openpolicyagent.policy.layer.v1.tar+gzip"
            | "application/vnd.cncf.openpolicyagent.layer.v1.tar+gzip"
            | "application/tar+gzip" => Self::Tar,
            _ => Self::Unknown,
        }
    }
}

/// Fetches the files of a pack in a registry.
///
/// # Errors
/// If the manifest or a layer cannot be fetched, has another digest, or has no rules.
pub async fn oci_pack(pack: &OciPack, credentials: &Credentials, settings: &Settings) -> Result<Texts, Error> {
    let (host, repository) = pack.repository.split_once('/').unwrap_or((&pack.repository, ""));
    // A registry on the same machine has no certificate, as docker and others have it.
    let is_local = Url::parse(&format!("https://{host}")).ok().and_then(|url| literal(url.host_str()?));
    let scheme = if is_local.is_some_and(|address| address.is_loopback()) { "http" } else { "https" };
    let registry = Registry {
        base: format!("{scheme}://{host}/v2/{repository}"),
        shown: pack.repository.clone(),
        credentials,
        settings,
        limits: Limits::new(LONGEST, 4 * LARGEST_LAYER),
    };
    tokio::time::timeout(LONGEST, registry.pack(&pack.digest))
        .await
        .map_err(|_| Error::TooSlow(pack.repository.clone()))?
}

struct Registry<'a> {
    /// The address of the repository.
    base: String,
    /// The repository for messages.
    shown: String,
    credentials: &'a Credentials,
    settings: &'a Settings,
    limits: Limits,
}

impl Registry<'_> {
    async fn pack(&self, digest: &str) -> Result<Texts, Error> {
        let url = format!("{}/manifests/{digest}", self.base);
        let client = self.signed_in(&url).await?;
        let manifest = self.get(&client, &url, digest, LARGEST_MANIFEST).await?;
        let wrong = |why: String| Error::Artifact { of: self.shown.clone(), why };
        let Manifest { layers } = serde_json::from_slice(&manifest).map_err(|_| {
            wrong(
                "it is no manifest of an image or an artifact; name the digest of a manifest, and not of an index"
                    .to_owned(),
            )
        })?;
        if layers.len() > MOST_LAYERS {
            return Err(wrong(format!("it has more than {MOST_LAYERS} layers")));
        }
        let mut found = Texts::new();
        let mut left = LARGEST_PACK;
        for (number, layer) in layers.iter().enumerate() {
            let Layer { media_type, digest, annotations } = layer;
            let kind = Kind::of(media_type);
            if kind == Kind::Unknown {
                return Err(wrong(format!(
                    "its layer {number} has the type `{media_type}`, which is neither rules nor an archive of them; push it without that layer"
                )));
            }
            if digest.parse::<Digest>().is_err() {
                return Err(wrong(format!("its layer {number} has no valid digest")));
            }
            let content = self.get(&client, &format!("{}/blobs/{digest}", self.base), digest, LARGEST_LAYER).await?;
            let title = annotations.get(TITLE).cloned().unwrap_or_else(|| format!("layer-{number}.rego"));
            let files = match kind {
                Kind::Tar => unpacked(content, &self.shown).await?,
                _ if title.ends_with("_test.rego") => Texts::new(),
                _ => {
                    let text = String::from_utf8(content);
                    let text = text.map_err(|_| Error::PackText { name: title.clone(), of: self.shown.clone() })?;
                    Texts::from([(title, text)])
                }
            };
            for (name, text) in files {
                left = left.checked_sub(text.len() as u64).ok_or_else(|| Error::PackTooLarge(self.shown.clone()))?;
                found.insert(format!("{number}/{name}"), text);
            }
        }
        if found.is_empty() {
            return Err(wrong("none of its layers has rules".to_owned()));
        }
        Ok(found)
    }

    /// A client that the registry has let in, if it asks for that.
    async fn signed_in(&self, url: &str) -> Result<Client, Error> {
        let anybody = self.client(&self.base, None)?;
        let response = self.send(&anybody, url).await?.0;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(anybody);
        }
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE);
        let challenges: Vec<&str> = challenges.iter().filter_map(|value| value.to_str().ok()).collect();
        match challenges.iter().find_map(|challenge| Bearer::read(challenge)) {
            Some(bearer) => {
                let token = self.token(&bearer).await?;
                self.client(&self.base, Some(format!("Bearer {token}")))
            }
            None => self.client(&self.base, self.credentials.for_archives()),
        }
    }

    /// The token that the service of the registry gives to the user of the credentials, or to anybody.
    async fn token(&self, bearer: &Bearer) -> Result<String, Error> {
        let wrong = |why: &str| Error::Refused { url: self.shown.clone(), why: why.to_owned() };
        let mut url = Url::parse(&bearer.realm).map_err(|_| wrong("it names no valid address for tokens"))?;
        {
            let mut query = url.query_pairs_mut();
            for (name, value) in [("service", &bearer.service), ("scope", &bearer.scope)] {
                if let Some(value) = value {
                    query.append_pair(name, value);
                }
            }
        }
        let client = self.client(url.as_str(), self.credentials.for_archives())?;
        let (response, with_credentials) = self.send(&client, url.as_str()).await?;
        client.accept(&response, with_credentials)?;
        let body = self.read(response, LARGEST_MANIFEST).await?;
        let answer: Token = serde_json::from_slice(&body).map_err(|_| wrong("its service gave no token"))?;
        let token =
            answer.token.or(answer.access_token).filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
        token.ok_or_else(|| wrong("its service gave no token"))
    }

    fn client(&self, url: &str, authorization: Option<String>) -> Result<Client, Error> {
        Client::new(url, &self.shown, self.credentials, authorization, self.settings)
    }

    /// The content of this digest.
    async fn get(&self, client: &Client, url: &str, digest: &str, largest: u64) -> Result<Vec<u8>, Error> {
        let (response, with_credentials) = self.send(client, url).await?;
        client.accept(&response, with_credentials)?;
        let content = self.read(response, largest).await?;
        if Digest::of(&content) != *digest {
            return Err(Error::ContentDigest { of: self.shown.clone(), wanted: digest.to_owned() });
        }
        Ok(content)
    }

    async fn send(&self, client: &Client, url: &str) -> Result<(Response, bool), Error> {
        let (request, with_credentials) = client.request(Method::GET, url)?;
        let response = request.header(header::ACCEPT, MANIFESTS).timeout(self.limits.time()).send().await;
        let response = response.map_err(|error| client::failure(&self.shown, &error, &self.limits))?;
        Ok((response, with_credentials))
    }

    async fn read(&self, mut response: Response, largest: u64) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        let failed = |error: reqwest::Error| client::failure(&self.shown, &error, &self.limits);
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            let is_within = self.limits.take(&self.shown, chunk.len()).is_ok();
            if !is_within || (content.len() + chunk.len()) as u64 > largest {
                return Err(Error::PackTooLarge(self.shown.clone()));
            }
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// A registry's demand for a token.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bearer {
    realm: String,
    service: Option<String>,
    scope: Option<String>,
}

impl Bearer {
    /// Reads `Bearer realm="...",service="...",scope="..."`.
    fn read(challenge: &str) -> Option<Self> {
        let (scheme, mut rest) = challenge.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut bearer = Self::default();
        while let Some((name, quoted)) = rest.split_once("=\"") {
            let (value, after) = quoted.split_once('"')?;
            match name.trim_matches([',', ' ']) {
                "realm" => value.clone_into(&mut bearer.realm),
                "service" => bearer.service = Some(value.to_owned()),
                "scope" => bearer.scope = Some(value.to_owned()),
                _ => {}
            }
            rest = after;
        }
        (!bearer.realm.is_empty()).then_some(bearer)
    }
}

/// The files with rules in a tar archive, which may be compressed with gzip.
async fn unpacked(content: Vec<u8>, of: &str) -> Result<Texts, Error> {
    let of = of.to_owned();
    crate::git::blocking(move || {
        let folder = tempfile::tempdir()?;
        let plain: Box<dyn Read> = match content.as_slice() {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(content.as_slice())),
            _ => Box::new(content.as_slice()),
        };
        // An archive of more ends in the middle, which is an error.
        let plain = plain.take(4 * LARGEST_LAYER);
        let wrong = |why: String| Error::Artifact { of: of.clone(), why };
        unpack_tar(plain, folder.path(), |_| true).map_err(|error| wrong(error.to_string()))?;
        if let Some(name) = data(folder.path()) {
            return Err(wrong(format!(
                "it has data in `{name}`, which rules on plans do not read; put it into the rules"
            )));
        }
        texts(folder.path(), "", &of)
    })
    .await
}

/// A document with data at the root of a bundle. `opa build` writes an empty one.
fn data(folder: &Path) -> Option<&'static str> {
    ["data.json", "data.yaml"].into_iter().find(|name| {
        std::fs::read(folder.join(name)).is_ok_and(|data| !matches!(data.trim_ascii(), b"{}" | b"" | b"null"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demand_for_a_token_is_read() {
        let text =
            r#"Bearer realm="https://auth.example.com/token",service="registry",scope="repository:a/b:pull,push""#;
        let bearer = Bearer {
            realm: "https://auth.example.com/token".to_owned(),
            service: Some("registry".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(Bearer::read(text), Some(bearer));
        for other in ["", "Basic realm=\"x\"", "Bearer", "Bearer service=\"x\"", "Bearer realm=\"x"] {
            assert_eq!(Bearer::read(other), None, "{other}");
        }
    }

    #[test]
    fn only_layers_of_rules_are_read() {
        let rows = [
            ("application/vnd.cncf.openpolicyagent.policy.layer.v1+rego", Kind::Rules),
            ("application/vnd.oci.image.layer.v1.tar+gzip", Kind::Tar),
            ("application/vnd.cncf.openpolicyagent.data.layer.v1+json", Kind::Unknown),
            ("", Kind::Unknown),
        ];
        for (media_type, expect) in rows {
            assert_eq!(Kind::of(media_type), expect, "{media_type}");
        }
    }
}
