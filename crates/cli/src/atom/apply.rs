//! `knoll atom apply`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::names::{annotation, field_manager, label};
use knoll_api::{Atom, AtomVersion, AtomVersionSpec};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::files::FilesArgs;
use super::wait::{self, WaitArgs};
use crate::connect::{Connection, Explain};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll atom apply`.
#[derive(clap::Args)]
pub struct AtomApplyArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// How long an update may take until every object is ready
    #[arg(long, env = "KNOLL_DEADLINE", value_name = "DURATION")]
    deadline: Option<String>,
    /// How long a rollback may take
    #[arg(long, env = "KNOLL_ROLLBACK_DEADLINE", value_name = "DURATION")]
    rollback_deadline: Option<String>,
    /// The service account that reads and writes the objects [default: default]
    #[arg(long, env = "KNOLL_SERVICE_ACCOUNT", value_name = "NAME")]
    service_account: Option<String>,
    /// Take over fields owned by other field managers
    #[arg(long, env = "KNOLL_FORCE")]
    force: bool,
}

/// Creates an AtomVersion from the objects, and sets it as the version of the Atom.
pub async fn run(args: AtomApplyArgs, outer: &Connection) -> Result<ExitCode> {
    let template = args.files.read()?;
    let session = Session::find(&args.connection.clone().or(outer)).await?;
    let (name, version) = (template.atom.clone(), template.version());
    let mut object =
        AtomVersion::new(&version, AtomVersionSpec { template: Some(template.text), ..AtomVersionSpec::default() });
    object.metadata.labels = Some([(label::ATOM.to_owned(), name.clone())].into());
    match session.api::<AtomVersion>().create(&PostParams::default(), &object).await {
        // The name of a version is derived from its content, so an existing one has the same objects.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created.explain(&session.cluster, &format!("cannot create version `{version}`"))?),
    }
    let known = session.api::<Atom>().get_opt(&name).await;
    let known = known.explain(&session.cluster, &format!("cannot read atom `{name}`"))?;
    let mut spec = json!({"version": version, "cancel": null});
    for (field, value) in [
        ("deadline", args.deadline.map(Value::from)),
        ("rollbackDeadline", args.rollback_deadline.map(Value::from)),
        ("serviceAccountName", args.service_account.map(Value::from)),
        ("force", args.force.then_some(Value::Bool(true))),
    ] {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let why = format!("cannot update atom `{name}`");
    let atom = match &known {
        Some(known) => {
            let mut patch = json!({"spec": spec});
            // A version that failed before is tried again on request.
            let same = known.spec.version == version;
            let failed = known.status.as_ref().is_some_and(|status| status.failure.is_some());
            if same && failed {
                patch["metadata"] = json!({"annotations": {annotation::RECONCILE: Timestamp::now().to_string()}});
            }
            session.api::<Atom>().patch(&name, &params, &Patch::Merge(patch)).await.explain(&session.cluster, &why)?
        }
        None => {
            let object = json!({
                "apiVersion": knoll_api::names::API_VERSION, "kind": "Atom", "metadata": {"name": name}, "spec": spec,
            });
            let object: Atom = serde_json::from_value(object)?;
            session.api::<Atom>().create(&PostParams::default(), &object).await.explain(&session.cluster, &why)?
        }
    };
    style::say("Applied", &format!("version `{version}` of atom `{name}`"));
    if !args.wait.wait {
        style::hint_aside(&format!("`knoll atom status {name}` shows its progress."));
        return Ok(ExitCode::SUCCESS);
    }
    wait::until_rest(&session, &atom, args.wait.timeout).await
}
