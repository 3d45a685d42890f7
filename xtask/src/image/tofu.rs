//! OpenTofu, built once from the Go module proxy into the user's cache.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::cluster::{self, GoSource};

/// The version that is built.
pub const VERSION: &str = "1.10.10";

const MODULE: &str = "github.com/opentofu/opentofu";

fn home() -> anyhow::Result<PathBuf> {
    Ok(cluster::user_cache()?.join("knoll/tofu").join(VERSION))
}

/// The binary, if it was built before.
pub fn built() -> anyhow::Result<Option<PathBuf>> {
    Ok(Some(home()?.join("bin/tofu")).filter(|path| path.is_file()))
}

/// The binary, after building it if need be.
pub fn ensure() -> anyhow::Result<PathBuf> {
    if let Some(path) = built()? {
        return Ok(path);
    }
    let home = home()?;
    let bin = home.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make the folder {}", bin.display()))?;
    let _lock = cluster::lock(&home.join("lock"), "another run builds OpenTofu")?;
    if let Some(path) = built()? {
        return Ok(path);
    }
    println!("Building OpenTofu {VERSION} into {}: this is done once", bin.display());
    let tag = format!("v{VERSION}");
    let source = GoSource::new(home.join("src"), MODULE, &tag, &format!("OpenTofu {VERSION}"), |theirs| {
        cluster::go_mod_of_program("tofu", MODULE, &tag, theirs)
    })?;
    let target = bin.join("tofu");
    source.build(&format!("{MODULE}/cmd/tofu"), &format!("-s -w -X {MODULE}/version.dev=no"), &target)?;
    Ok(target)
}
