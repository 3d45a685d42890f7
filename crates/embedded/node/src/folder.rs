//! Where a pod lies on disk.
//!
//! ```text
//! pods/UID/volumes/NAME          a volume
//!          home/, tmp/           HOME and TMPDIR of its containers
//!          containers/NAME/0/    the first instance of a container, see `shim::files`; 1/ the second, ...
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::shim::files;

#[derive(Clone, Debug)]
pub struct PodFolder(PathBuf);

impl PodFolder {
    /// The folder of the pod with that uid.
    pub fn new(pods: &Path, uid: &str) -> Self {
        Self(pods.join(uid))
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn create(&self) -> io::Result<()> {
        for path in [self.home(), self.temporary(), self.0.join("volumes")] {
            files::create_folder(&path)?;
        }
        Ok(())
    }

    /// HOME of its containers.
    pub fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// TMPDIR of its containers.
    pub fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    pub fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    /// An instance of a container.
    pub fn container(&self, name: &str, attempt: u32) -> PathBuf {
        self.0.join("containers").join(name).join(attempt.to_string())
    }

    /// The instances of a container that were begun, in order.
    pub fn attempts(&self, name: &str) -> Vec<u32> {
        let entries = std::fs::read_dir(self.0.join("containers").join(name)).into_iter().flatten().flatten();
        let mut attempts: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        attempts.sort_unstable();
        attempts
    }

    /// The newest instance that was told to run, and the one before it.
    pub fn newest(&self, name: &str) -> (Option<PathBuf>, Option<PathBuf>) {
        let begun = self.attempts(name).into_iter().rev().map(|attempt| self.container(name, attempt));
        let mut begun = begun.filter(|folder| folder.join(files::SPEC).exists());
        (begun.next(), begun.next())
    }

    /// Every instance of every container.
    pub fn instances(&self) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.0.join("containers")).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .flat_map(|name| self.attempts(&name).into_iter().map(move |n| (name.clone(), n)).collect::<Vec<_>>())
            .map(|(name, attempt)| self.container(&name, attempt))
            .collect()
    }

    /// Removes it with all it holds.
    pub async fn remove(&self) -> io::Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match tokio::fs::remove_dir_all(&self.0).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // A shim that was not needed may still be on its way out.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries < 10 => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
