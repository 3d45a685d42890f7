//! What an instance that has ended left in its folder.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use k8s_openapi::api::core::v1::Container;

use crate::logs;
use crate::shim::files::{self, Cause, Exit, Spec, Started};
use crate::status::Ended;

/// The longest termination message.
const LIMIT: u64 = 4096;
/// The longest piece of a log that stands for one.
const LOG_LIMIT: usize = 2048;
const LOG_LINES: u64 = 80;

/// How the instance of a folder ended, if it has.
pub fn ended(folder: &Path, container: &Container) -> Option<Ended> {
    let exit: Exit = files::read(folder, files::EXIT).ok()??;
    let started: Option<Started> = files::read(folder, files::STARTED).ok().flatten();
    let message = match exit.cause {
        Cause::Exited | Cause::OutOfMemory => message(folder, container, exit.code),
        Cause::NotStarted(_) | Cause::Lost => None,
    };
    Some(Ended { pid: started.map(|started| started.pid), exit, message })
}

fn message(folder: &Path, container: &Container, code: i32) -> Option<String> {
    let spec: Spec = files::read(folder, files::SPEC).ok()??;
    let written = last_bytes(&spec.termination_message, LIMIT).filter(|text| !text.is_empty());
    let fall_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError") && code != 0;
    if written.is_some() || !fall_back {
        return written;
    }
    let text = logs::last_lines(&folder.join(files::LOG), LOG_LINES).ok()?;
    let text = String::from_utf8_lossy(&text);
    let start = text.ceil_char_boundary(text.len().saturating_sub(LOG_LIMIT));
    Some(text[start..].to_owned()).filter(|text| !text.is_empty())
}

fn last_bytes(path: &Path, limit: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(|metadata| metadata.is_file())?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit))).ok()?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the shim of an instance said before it went.
pub fn shim_error(folder: &Path) -> String {
    let said = std::fs::read_to_string(folder.join(files::SHIM_LOG)).unwrap_or_default();
    match said.trim() {
        "" => "the container's shim ended before the container started".to_owned(),
        said => said.to_owned(),
    }
}
