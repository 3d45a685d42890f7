//! Copies the runner into a pod whose image does not contain it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io};

/// Installs this binary to `folder` as `knoll`, atomically: as a hard link if possible, otherwise as a copy.
///
/// # Errors
/// If the directory is not writable.
pub fn install(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let target = folder.join("knoll");
    let part = folder.join(".knoll");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let own = std::env::current_exe()?;
    // A link shares its mode with the original, so it only works if everybody may execute that.
    let runnable = fs::metadata(&own)?.permissions().mode() & 0o555 == 0o555;
    if !runnable || fs::hard_link(&own, &part).is_err() {
        fs::copy(&own, &part)?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o755))?;
    }
    // Other containers wait for the file, and must not execute a partial one.
    fs::rename(&part, &target)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_executable_is_there_and_can_be_run_also_twice() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("a/bin");
        install(&bin).unwrap();
        install(&bin).unwrap();
        let meta = fs::metadata(bin.join("knoll")).unwrap();
        assert_eq!(meta.len(), fs::metadata(std::env::current_exe().unwrap()).unwrap().len());
        assert_eq!(meta.permissions().mode() & 0o555, 0o555);
    }
}
