//! Writes a runner's reports into its Run's status.

use jiff::Timestamp;
use knoll_api::names::field_manager;
use knoll_api::run::{Run, RunStatus};
use knoll_api::verdict::PlanVerdict;
use knoll_api::wire::{EndReason, Exit, Progress};
use knoll_core::{patch, progress};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};

use crate::error::Error;
use crate::session::Session;

/// How often a report is merged again because another writer was faster.
const ATTEMPTS: usize = 10;

/// The reports of one pod.
#[derive(Default)]
pub struct Reports {
    /// The highest sequence that was written.
    sequence: u64,
    /// The Run as it was after the last report, which may be newer than the watched copy.
    run: Option<Run>,
}

/// Merges `report` into the Run's status, and returns the Run as the API has it then, if there was something to write.
/// A report that is older than one that was written is ignored.
///
/// # Errors
/// When the status cannot be written.
pub async fn write(client: &Client, session: &Session, seen: &Run, report: &Progress) -> Result<Option<Run>, Error> {
    let mut reports = session.reports.lock().await;
    if report.sequence <= reports.sequence && report.exit.is_none() {
        return Ok(None);
    }
    let base = newer(reports.run.take(), seen.clone());
    let change = |run: &Run| progress::merge(run, report, Timestamp::now());
    let (run, written) = merge(client, &session.caller.namespace, base, &session.caller.uid, change).await?;
    reports.sequence = report.sequence;
    reports.run = Some(run.clone());
    Ok(written.then_some(run))
}

/// Writes the verdict of the rules of Policies on the plan into the Run's status.
///
/// # Errors
/// When the status cannot be written.
pub async fn judged(client: &Client, session: &Session, seen: &Run, verdict: &PlanVerdict) -> Result<(), Error> {
    let mut reports = session.reports.lock().await;
    let base = newer(reports.run.take(), seen.clone());
    let change = |run: &Run| progress::judge(run, verdict);
    let (run, _) = merge(client, &session.caller.namespace, base, &session.caller.uid, change).await?;
    reports.run = Some(run);
    Ok(())
}

/// Ends a run whose job cannot even be made: the reason stands where the user looks.
///
/// # Errors
/// When the status cannot be written.
pub async fn fail(
    client: &Client,
    session: &Session,
    seen: &Run,
    reason: EndReason,
    message: &str,
) -> Result<(), Error> {
    let exit = Exit { code: 1, reason: Some(reason), message: Some(message.to_owned()) };
    let report = Progress { sequence: u64::MAX, exit: Some(exit), ..Progress::default() };
    write(client, session, seen, &report).await.map(drop)
}

/// The Run with the status that `change` makes of it, and whether it had to be written.
async fn merge(
    client: &Client,
    namespace: &str,
    base: Run,
    uid: &str,
    change: impl Fn(&Run) -> RunStatus,
) -> Result<(Run, bool), Error> {
    let api: Api<Run> = Api::namespaced(client.clone(), namespace);
    let name = base.name_any();
    let params = PatchParams { field_manager: Some(field_manager::HUB.to_owned()), ..PatchParams::default() };
    let mut run = base;
    for _ in 0..ATTEMPTS {
        let next = change(&run);
        let patch = patch::status(run.metadata.resource_version.as_deref(), run.status.as_ref(), &next)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let Some(patch) = patch else { return Ok((run, false)) };
        match api.patch_status(&name, &params, &Patch::Merge(&patch)).await {
            Ok(written) => return Ok((written, true)),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                run = api.get(&name).await?;
                if run.status.as_ref().and_then(|status| status.pod_uid.as_deref()) != Some(uid) {
                    return Err(Error::Fenced(format!("the run `{name}` has another pod by now")));
                }
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                return Err(Error::Fenced(format!("the run `{name}` was deleted")));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::NotYet(format!("the status of the run `{name}` changes too often")))
}

/// The copy with the higher resourceVersion. If they cannot be compared, the API will say that it was the wrong one.
fn newer(written: Option<Run>, seen: Run) -> Run {
    let revision = |run: &Run| run.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    match written {
        Some(written) if revision(&written) > revision(&seen) => written,
        _ => seen,
    }
}
