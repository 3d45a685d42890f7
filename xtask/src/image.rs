//! `cargo xtask image`: the images that Knoll runs from, made without Docker and without a registry.

pub mod archive;
mod contents;
pub mod elf;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::build;
use crate::cluster::{self, Place, Runtime};
use crate::progress::{phase, status};
use crate::tools::{self, tofu};

use archive::Image;

/// The image of a shell with its tools, for tests.
const BOX_IMAGE: &str = "knoll/box:1";

#[derive(clap::Args)]
pub struct Arguments {
    /// Also build the image of OpenTofu (it is downloaded, or built with Go, once)
    #[arg(long)]
    tofu: bool,
    /// Fail if no node runs. Without this flag the images are loaded only if a node runs
    #[arg(long)]
    load: bool,
    /// The name of the cluster whose node gets the images [default: default]
    #[arg(long)]
    name: Option<String>,
}

/// Loads images with the programs in this folder, which are built already, into a node.
pub fn load_built(place: &Place, programs: &Path) -> anyhow::Result<()> {
    let name = (place.name != cluster::DEFAULT_NAME).then(|| place.name.clone());
    make(&Arguments { tofu: false, load: true, name }, Some(programs))
}

/// Builds the images and loads them.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    make(arguments, None)
}

fn make(arguments: &Arguments, built: Option<&Path>) -> anyhow::Result<()> {
    let place = Place::of(arguments.name.as_deref())?;
    let runtime = Runtime::of(&place)?;
    if arguments.load && runtime.is_none() {
        bail!("no node runs in {}: run `cargo xtask cluster up --node`", place.folder.display());
    }
    let busybox = cluster::busybox()
        .context("a static busybox is needed for the shell of the images: install the package `busybox-static`")?;
    let folder = build::target().join("images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;

    let publish = |image: &Image| {
        let path = folder.join(format!("{}.tar", file_name(&image.name)));
        phase(&format!("image {}", image.name), || {
            image.write(&path)?;
            runtime.as_ref().map_or(Ok(()), |runtime| runtime.import(&path))
        })
    };
    publish(&contents::shell(BOX_IMAGE, &busybox)?)?;
    match tools::find("terraform") {
        Some(terraform) => {
            elf::check_static(&terraform)?;
            let name = format!("hashicorp/terraform:{}", terraform_version()?);
            publish(&contents::tool(&name, &terraform, &busybox)?)?;
        }
        None => println!("`terraform` is not on the PATH: its image is left out"),
    }
    if arguments.tofu || tofu::cached()?.is_some() {
        let name = format!("opentofu/opentofu:{}", tofu::VERSION);
        publish(&contents::tool(&name, &tofu::ensure()?, &busybox)?)?;
    }
    let programs = match built {
        Some(built) => built.to_owned(),
        None => phase("building a static knoll", || build_release(&contents::PROGRAMS))?,
    };
    for program in contents::PROGRAMS {
        elf::check_static(&programs.join(program))?;
    }
    publish(&contents::knoll(&format!("knoll/knoll:{}", env!("CARGO_PKG_VERSION")), &programs))?;
    println!("The images are in {}", folder.display());
    match runtime {
        Some(_) => println!("They are loaded into the node of {}", place.folder.display()),
        None => println!(
            "No node runs, so they were loaded nowhere: `ctr -n k8s.io images import FILE` or `docker load -i FILE` does it"
        ),
    }
    Ok(())
}

/// The image that holds a pod's namespaces on the node of `cargo xtask cluster`.
pub fn pause(name: &str, busybox: &Path) -> Image {
    contents::pause(name, busybox)
}

/// Builds the programs of these packages to be quick, and tells in which folder they are.
pub fn build_release(packages: &[&str]) -> anyhow::Result<PathBuf> {
    let mut build = build::shipping()?;
    build.arg("--bins").args(packages.iter().flat_map(|package| ["--package", package]));
    status(&mut build)?;
    build::folder("release")
}

/// The version of the `terraform` on the PATH.
pub fn terraform_version() -> anyhow::Result<String> {
    let output = Command::new("terraform")
        .args(["version", "-json"])
        // Otherwise it asks its makers for a newer one.
        .env("CHECKPOINT_DISABLE", "1")
        .env_remove("TF_CLI_CONFIG_FILE")
        .output()
        .context("cannot start terraform")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let version = answer["terraform_version"].as_str();
    Ok(version.context("`terraform version -json` does not name its version")?.to_owned())
}

fn file_name(image: &str) -> String {
    image.replace(['/', ':'], "-")
}
