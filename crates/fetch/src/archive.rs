//! Fetches archives: tar, plain or compressed with gzip or zstd, and zip.

use std::{
    fs,
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use knoll_api::source::{ArchiveSource, shown_address};
use knoll_bundle::{Bundle, inside, unpack_tar};
use reqwest::Method;
use sha2::{Digest, Sha256};

use crate::{
    Credentials, Error, Settings,
    client::{self, Client},
    git::{blocking, bundle},
    limits::{LARGEST, Limits},
};

/// Fetches the bundle of an archive whose sha256 matches its source.
///
/// # Errors
/// If the archive cannot be fetched, has another sha256, or contains no module.
pub async fn archive(source: &ArchiveSource, credentials: &Credentials, settings: &Settings) -> Result<Bundle, Error> {
    let limits = Arc::new(Limits::default());
    let url = shown_address(&source.url);
    let mut file = tempfile::tempfile()?;
    let found = match source.url.strip_prefix("file://") {
        Some(_) if !settings.local => return Err(Error::Local(url)),
        Some(path) => {
            let (path, shown, limits) = (path.to_owned(), url.clone(), limits.clone());
            let (back, found) = blocking(move || {
                let reach = |error: io::Error| Error::Reach { url: shown.clone(), why: error.to_string() };
                let mut from = fs::File::open(path).map_err(reach)?;
                let mut hash = Sha256::new();
                let mut buffer = vec![0; 1 << 16];
                loop {
                    let count = from.read(&mut buffer).map_err(reach)?;
                    if count == 0 {
                        return Ok((file, hex(&hash.finalize())));
                    }
                    limits.take(&shown, count).map_err(|_| Error::TooLarge(shown.clone()))?;
                    hash.update(&buffer[..count]);
                    file.write_all(&buffer[..count])?;
                }
            })
            .await?;
            file = back;
            found
        }
        None => {
            let client = Client::new(&source.url, &url, credentials, credentials.for_archives(), settings)?;
            download(&client, &source.url, &url, &limits, &mut file).await?
        }
    };
    if found != source.sha256 {
        return Err(Error::Digest { url, wanted: source.sha256.clone() });
    }
    let path = source.path.clone().unwrap_or_default();
    blocking(move || {
        let folder = tempfile::tempdir()?;
        let into = folder.path().join("tree");
        fs::create_dir(&into)?;
        unpack(&mut file, &into, &url)?;
        bundle(&into, &path, &format!("the archive `{url}`"))
    })
    .await
}

async fn download(
    client: &Client,
    from: &str,
    url: &str,
    limits: &Limits,
    file: &mut fs::File,
) -> Result<String, Error> {
    let failed = |error: reqwest::Error| client::failure(url, &error, limits);
    let (request, with_credentials) = client.request(Method::GET, from)?;
    let mut response = request.send().await.map_err(failed)?;
    client.accept(&response, with_credentials)?;
    let mut hash = Sha256::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        limits.take(url, chunk.len()).map_err(|_| Error::TooLarge(url.to_owned()))?;
        hash.update(&chunk);
        file.write_all(&chunk)?;
    }
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Unpacks an archive. Its first bytes identify the format.
fn unpack(file: &mut fs::File, into: &Path, url: &str) -> Result<(), Error> {
    let wrong = |why: String| Error::Archive { url: url.to_owned(), why };
    file.rewind()?;
    let mut magic = [0; 4];
    let count = file.read(&mut magic)?;
    file.rewind()?;
    let tar = |reader: &mut dyn Read| unpack_tar(reader, into, |_| true).map_err(|error| wrong(error.to_string()));
    match &magic[..count] {
        [0x1f, 0x8b, ..] => tar(&mut flate2::read::MultiGzDecoder::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => tar(&mut zstd::Decoder::new(file)?),
        [b'P', b'K', 3 | 5, _] => unzip(file, into).map_err(wrong),
        _ => tar(file),
    }
}

fn unzip(file: &mut fs::File, into: &Path) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut archive = zip::ZipArchive::new(file).map_err(|error| text(&error))?;
    if archive.has_duplicate_names() {
        return Err("it has two entries of the same name, and other programs may read the other one".to_owned());
    }
    let mut left = LARGEST;
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).map_err(|error| text(&error))?;
        let name = entry.name().map_err(|error| text(&error))?.into_owned();
        let path = inside(Path::new(&name)).ok_or_else(|| format!("its entry `{name}` lies outside of the archive"))?;
        if entry.is_dir() || path.as_os_str().is_empty() {
            continue;
        }
        if entry.is_symlink() {
            return Err(format!("its entry `{name}` is a symlink, which is not supported in zip archives"));
        }
        let path = into.join(path);
        let parent = path.parent().unwrap_or(into);
        fs::create_dir_all(parent).map_err(|error| text(&error))?;
        let mode = if entry.unix_mode().unwrap_or(0o644) & 0o100 == 0 { 0o644 } else { 0o755 };
        let to = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut to = to.map_err(|error| format!("cannot write its entry `{name}`: {error}"))?;
        // The size in the entry's header is not trusted.
        let count = io::copy(&mut (&mut entry).take(left + 1), &mut to).map_err(|error| text(&error))?;
        left = left.checked_sub(count).ok_or_else(|| format!("it unpacks to more than {} MiB", LARGEST >> 20))?;
    }
    Ok(())
}
