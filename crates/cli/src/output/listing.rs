//! `knoll KIND list`: all objects of a kind, here or everywhere.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::table::Table;
use super::{OutputArgs, list};
use crate::connect::{Connection, Explain};
use crate::workspace::Place;

/// The arguments of a list.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// Those of every namespace
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES")]
    all_namespaces: bool,
}

/// What a table is made of.
pub struct Listing<'a, K> {
    /// The objects.
    pub objects: &'a [K],
    /// Where the user is.
    pub place: &'a Place,
    /// They are of several namespaces.
    pub namespaces: bool,
    /// There is room for more columns.
    pub wide: bool,
    /// What ages are counted from.
    pub now: Timestamp,
}

/// Lists the objects that are called `plural`; `maker` is the command that makes one.
pub async fn run<K>(
    args: Args,
    outer: &Connection,
    plural: &str,
    maker: &str,
    table: impl FnOnce(&Listing<'_, K>) -> Table,
) -> Result<ExitCode>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let place = Place::find(&args.connection.or(outer)).await?;
    let namespaces = args.all_namespaces;
    let api: Api<K> = if namespaces { Api::all(place.cluster.client.clone()) } else { place.api() };
    let listed = api.list(&ListParams::default()).await;
    let objects = listed.explain(&place.cluster, &format!("cannot list the {plural}"))?.items;
    let scope = if namespaces { "any namespace".to_owned() } else { format!("namespace `{}`", place.namespace) };
    let nothing = format!("There are no {plural} in {scope}; `{maker}` makes one.");
    list(&objects, args.output.output, &nothing, |wide| {
        table(&Listing { objects: &objects, place: &place, namespaces, wide, now: Timestamp::now() })
    })
}
