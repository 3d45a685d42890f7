//! Finding a container's program on the host.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file that a command's first word names, by the rules of `execvp`, or a sentence that says what is wrong.
pub fn find(word: &str, path: &str, cwd: &Path) -> Result<PathBuf, String> {
    if word.contains('/') {
        let file = cwd.join(word);
        return match std::fs::metadata(&file) {
            Ok(metadata) if executable(&metadata) => Ok(file),
            Ok(_) => {
                Err(format!("`{}` is not an executable file; make it one, or name another program", file.display()))
            }
            Err(error) => Err(format!(
                "`{}` cannot be run: {error}; the embedded node has no images, so the program must be on this machine: install it there, or name a program that is on `PATH`",
                file.display()
            )),
        };
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| cwd.join(folder).join(word))
        .find(|file| std::fs::metadata(file).is_ok_and(|metadata| executable(&metadata)))
        .ok_or_else(|| {
            format!(
                "`{word}` is not on `PATH` ({path}); the embedded node has no images, so install `{word}` on this machine or name its path"
            )
        })
}

fn executable(metadata: &std::fs::Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (name, mode) in [("a/tool", 0o755), ("b/tool", 0o755), ("b/data", 0o644)] {
            let file = root.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = format!("{0}/none:{0}/a:{0}/b", root.display());
        let found = |word: &str| find(word, &path, root).map(|file| file.strip_prefix(root).unwrap().to_path_buf());
        assert_eq!(found("tool"), Ok("a/tool".into()));
        assert_eq!(found("b/tool"), Ok("b/tool".into()));
        assert_eq!(found("./b/tool"), Ok("b/tool".into()));
        for (word, says) in [
            ("data", "`data` is not on `PATH`"),
            ("b/data", "not an executable"),
            ("b/no", "cannot be run"),
            ("b", "is not on"),
        ] {
            let message = found(word).unwrap_err();
            assert!(message.contains(says), "{word}: {message}");
        }
    }
}
