//! Where copies go: a bucket, or a folder.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use knoll_api::source::shown_address;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use reqwest::Url;

/// How long a connection and a request may take, unless a variable says otherwise: a server that accepts no connection by
/// then is down or behind a firewall, and the largest state is sent in that time over a line of 1 MiB a second.
const LIMITS: [(&str, &str); 2] = [("CONNECT_TIMEOUT", "10s"), ("TIMEOUT", "90s")];
/// A request is repeated soon, for servers that ask to slow down. Longer outages are the caller's to bridge.
const RETRIES: usize = 2;
const RETRY_FOR: Duration = Duration::from_secs(10);
/// The longest message of a server that is shown.
const SHOWN: usize = 300;

/// An address that names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` cannot be used for backups: {why}")]
pub struct TargetError {
    url: String,
    why: String,
}

/// A bucket or a folder, with the prefix below which everything lies. A clone is the same target.
#[derive(Clone)]
pub struct Target {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    shown: String,
}

impl Target {
    /// Opens `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///FOLDER`, with the credentials
    /// of this process: its environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`), or the identity of its workload. No request is
    /// sent; a folder is created.
    ///
    /// # Errors
    /// When the address is another one, or something that it needs is missing.
    pub fn open(url: &str) -> Result<Self, TargetError> {
        let environment = std::env::vars_os();
        let text = environment.filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
        Self::open_with(url, &text.collect())
    }

    /// As [`Target::open`], with these variables for those of the process.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn open_with(url: &str, environment: &BTreeMap<String, String>) -> Result<Self, TargetError> {
        let shown = shown_address(url.split(['?', '#']).next().unwrap_or_default());
        let wrong = |why: String| TargetError { url: shown.clone(), why };
        let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if parsed.password().is_some() || parsed.query().is_some() || parsed.fragment().is_some() {
            let why = "it holds more than a bucket and a prefix; credentials belong into the environment";
            return Err(wrong(why.to_owned()));
        }
        let has_bucket = parsed.host_str().is_some_and(|host| !host.is_empty());
        let prefix = Path::from_url_path(parsed.path()).map_err(|error| wrong(error.to_string()))?;
        let bucket = format!("{}://{}", parsed.scheme(), parsed.host_str().unwrap_or_default());
        // Every option is a variable, with the names that the clouds' own tools have for them.
        macro_rules! cloud {
            ($builder:ident, $prefix:literal) => {{
                let defaults = LIMITS.map(|(key, value)| (concat!($prefix, "_").to_owned() + key, value.to_owned()));
                let given = environment.iter().map(|(key, value)| (key.clone(), value.clone()));
                let builder = $builder::new().with_url(bucket).with_retry(retry());
                let builder = defaults.into_iter().chain(given).fold(builder, |builder, (key, value)| {
                    let short = key.strip_prefix(concat!($prefix, "_")).map(str::to_ascii_lowercase);
                    let long = key.to_ascii_lowercase();
                    match short.and_then(|short| long.parse().or_else(|_| short.parse()).ok()) {
                        Some(option) => builder.with_config(option, value),
                        None => builder,
                    }
                });
                Arc::new(builder.build().map_err(|error| wrong(describe(&error)))?) as Arc<dyn ObjectStore>
            }};
        }
        let (store, prefix) = match parsed.scheme() {
            "file" if !has_bucket => {
                (Arc::new(folder(&parsed).map_err(wrong)?) as Arc<dyn ObjectStore>, Path::default())
            }
            "s3" if has_bucket => (cloud!(AmazonS3Builder, "AWS"), prefix),
            "gs" if has_bucket => (cloud!(GoogleCloudStorageBuilder, "GOOGLE"), prefix),
            "az" if has_bucket => (cloud!(MicrosoftAzureBuilder, "AZURE"), prefix),
            _ => {
                let example = "write for example `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///folder`";
                return Err(wrong(format!("it names no bucket and no folder; {example}")));
            }
        };
        Ok(Target { store, prefix, shown })
    }

    /// The address, for messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn path(&self, parts: &[&str]) -> Path {
        parts.iter().fold(self.prefix.clone(), |path, part| path.join(*part))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.shown).finish()
    }
}

/// A folder whose files are written as a whole, and are on the disk when the write has ended.
fn folder(url: &Url) -> Result<LocalFileSystem, String> {
    let path = url.to_file_path().map_err(|()| "it names no absolute path".to_owned())?;
    std::fs::create_dir_all(&path).map_err(|error| format!("cannot create the folder: {error}"))?;
    Ok(LocalFileSystem::new_with_prefix(&path).map_err(|error| describe(&error))?.with_fsync(true))
}

fn retry() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_FOR }
}

/// The message of an error with those of its causes, on one line: addresses in it have no credentials and no query, and
/// nothing is left of a document that a server sent.
pub(crate) fn describe(error: &object_store::Error) -> String {
    let kind = match error {
        object_store::Error::PermissionDenied { .. } => "access denied: ",
        object_store::Error::Unauthenticated { .. } => "the credentials were not accepted: ",
        object_store::Error::NotFound { .. } => "not found: ",
        _ => "",
    };
    // The outermost message names the library's own type, and repeats the message of its cause.
    let mut cause = error.source();
    let mut text = String::new();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = if text.is_empty() { next } else { format!("{text}: {next}") };
        }
        cause = error.source();
    }
    if text.is_empty() {
        text = error.to_string();
    }
    let text = text.split('<').next().unwrap_or_default();
    let words: Vec<String> = text.split_whitespace().map(shown_address).collect();
    let text: String = words.join(" ").chars().take(SHOWN).collect();
    format!("{kind}{}", text.trim_end_matches([':', ' ']))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_address_that_names_no_target_is_refused() {
        for bad in [
            "",
            "bucket",
            "/folder",
            "http://127.0.0.1/bucket",
            "https://example.com/bucket",
            "s3://",
            "s3:///prefix",
            "file://host/folder",
            "memory:///x",
            "s3://key:secret@bucket/prefix",
            "az://container/prefix?sig=secret",
        ] {
            let error = Target::open(bad).map(|target| format!("{target:?}")).unwrap_err().to_string();
            assert!(error.contains("cannot be used for backups"), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_folder_is_a_target() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/new", folder.path().display());
        let target = Target::open(&url).unwrap();
        assert_eq!(target.shown(), url);
        assert!(folder.path().join("new").is_dir());
    }

    #[test]
    fn a_message_shows_no_document_and_no_query() {
        let why = "Error performing PUT https://a.example/b?sig=secret in 1ms - 403:\n<Error><Key>AKIA</Key></Error>";
        let error = object_store::Error::Generic { store: "S3", source: why.into() };
        let text = describe(&error);
        assert!(text.starts_with("Error performing PUT https://a.example/b"), "{text}");
        assert!(!text.contains("secret") && !text.contains("AKIA") && !text.contains('\n'), "{text}");
    }
}
