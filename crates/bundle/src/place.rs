//! The path of the root module in a bundle. It is not always the top, because a module may refer to modules beside it.
//!
//! A file at the top of the bundle contains the path, so the digest of the bundle covers it.

use std::path::{Path, PathBuf};

use crate::pack::{Bundle, File, Files, PackError, pack};
use crate::unpack::inside;

/// The file that names the folder of the root module.
pub const MODULE_FILE: &str = ".knoll-module";

/// Packs files whose root module is at `path`; an empty path is the top.
///
/// # Errors
/// As [`pack`].
pub fn pack_at(files: &Files, path: &str) -> Result<Bundle, PackError> {
    if path.is_empty() {
        return pack(files);
    }
    let mut files = files.clone();
    files.insert(MODULE_FILE.to_owned(), File::Plain { content: path.as_bytes().to_vec(), executable: false });
    pack(&files)
}

/// The path of the root module below `folder`, into which a bundle was unpacked; empty if it is `folder` itself.
#[must_use]
pub fn module_path(folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(folder.join(MODULE_FILE)).unwrap_or_default();
    inside(Path::new(text.trim())).filter(|path| folder.join(path).is_dir()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_bundle_knows_where_its_module_is() {
        let files = Files::from([("live/net/main.tf".to_owned(), File::new(""))]);
        let folder = tempfile::tempdir().unwrap();
        crate::unpack(&pack_at(&files, "live/net").unwrap().bytes, folder.path(), |_| true).unwrap();
        assert_eq!(module_path(folder.path()), Path::new("live/net"));
        for elsewhere in ["", "..", "/etc", "gone"] {
            std::fs::write(folder.path().join(MODULE_FILE), elsewhere).unwrap();
            assert_eq!(module_path(folder.path()), Path::new(""), "{elsewhere}");
        }
        assert_eq!(pack_at(&files, "").unwrap(), pack(&files).unwrap());
    }
}
