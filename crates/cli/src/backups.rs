//! The flags that say where states are copied to, shared by `knoll operator` and `knoll up`, and those of the commands
//! that read the copies.

use anyhow::{Context, Result, bail};
use knoll_api::Duration;
use knoll_backup::{Archive, Retention, Target};
use knoll_operator::BackupSettings;

/// The variable of the target's address.
const URL: &str = "KNOLL_BACKUP_URL";

/// Where states are copied to.
#[derive(clap::Args, Clone, Debug)]
pub struct BackupArgs {
    /// Copy every state to this bucket or folder: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or
    /// `file:///FOLDER`; the credentials are those of the environment
    #[arg(long, env = URL, value_name = "URL")]
    pub backup_url: Option<String>,
    /// How many versions of each state stay in the bucket, whatever their age
    #[arg(long, env = "KNOLL_BACKUP_KEEP", value_name = "COUNT", default_value_t = 100)]
    pub backup_keep: usize,
    /// How long each version stays in the bucket, whatever the count
    #[arg(long, env = "KNOLL_BACKUP_KEEP_FOR", value_name = "DURATION", default_value = "2160h")]
    pub backup_keep_for: Duration,
}

impl BackupArgs {
    /// The settings of the operator; none without an address.
    pub fn settings(&self) -> Result<Option<BackupSettings>> {
        let Some(url) = self.backup_url.as_deref().filter(|url| !url.is_empty()) else { return Ok(None) };
        let retention = Retention { versions: self.backup_keep, age: self.backup_keep_for.get() };
        Ok(Some(BackupSettings { target: target(url)?, retention }))
    }
}

/// Where copies are read from.
#[derive(clap::Args, Clone, Debug)]
pub struct ArchiveArgs {
    /// The bucket or folder with the backups, as the operator's `--backup-url`
    #[arg(long, env = URL, value_name = "URL")]
    backup_url: Option<String>,
}

impl ArchiveArgs {
    pub fn archive(&self) -> Result<Archive> {
        match self.backup_url.as_deref() {
            Some(url) if !url.is_empty() => Ok(Archive::new(target(url)?)),
            _ => bail!("no backups are named; set `--backup-url URL` or the variable `{URL}`, as the operator has it"),
        }
    }
}

fn target(url: &str) -> Result<Target> {
    Target::open(url).context("cannot open the target of backups")
}
