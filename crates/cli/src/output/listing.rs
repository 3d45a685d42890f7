//! `knoll KIND list`: lists the objects of a kind in one namespace or in all.

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
use crate::workspace::Session;

/// The arguments of a list.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// List the objects of all namespaces
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES")]
    all_namespaces: bool,
}

/// The input of a table.
pub struct Listing<'a, K> {
    pub objects: &'a [K],
    pub session: &'a Session,
    /// Whether the objects come from several namespaces.
    pub namespaces: bool,
    /// Whether to add the columns of `-o wide`.
    pub wide: bool,
    /// The time that ages are relative to.
    pub now: Timestamp,
}

/// Lists the objects of a kind. `maker` is the command that creates one.
pub async fn run<K>(
    args: ListArgs,
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
    let session = Session::find(&args.connection.or(outer)).await?;
    let namespaces = args.all_namespaces;
    let api: Api<K> = if namespaces { Api::all(session.cluster.client.clone()) } else { session.api() };
    let listed = api.list(&ListParams::default()).await;
    let objects = listed.explain(&session.cluster, &format!("cannot list {plural}"))?.items;
    let scope = if namespaces { "any namespace".to_owned() } else { format!("namespace `{}`", session.namespace) };
    let nothing = format!("No {plural} found in {scope}. Create one with `{maker}`.");
    list(&objects, args.output.output, &nothing, |wide| {
        table(&Listing { objects: &objects, session: &session, namespaces, wide, now: Timestamp::now() })
    })
}
