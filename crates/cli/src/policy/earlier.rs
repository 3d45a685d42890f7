//! `knoll policy test --since`: tries rules on the plans of earlier Runs that the cluster has kept, with the user's own rights.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use knoll_api::policy::{Policy, RuleAction};
use knoll_api::verdict::PlanVerdict;
use knoll_api::{Run, Stack, Workspace};
use knoll_core::policy::{self, Labels};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::test::Rules;
use crate::connect::{Connection, Explain};
use crate::output::table::Table;
use crate::output::{self, time};
use crate::style;
use crate::workspace::Session;

/// Reads a length of time, also in days and weeks.
pub fn time(text: &str) -> Result<Duration, String> {
    let days =
        |count: &str, days: u64| Some(Duration::from_secs(count.parse::<u64>().ok()?.checked_mul(days * 86_400)?));
    let read = match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(count), _) => days(count, 1),
        (None, Some(count)) => days(count, 7),
        (None, None) => crate::install::duration(text).ok(),
    };
    read.ok_or_else(|| "write a number with a unit (w, d, h, m or s), for example 30d or 12h".to_owned())
}

/// What the rules say of the plan of one Run.
struct Tried {
    run: Run,
    verdict: PlanVerdict,
}

/// The Runs that were looked at.
#[derive(Default)]
struct Tally {
    tried: Vec<Tried>,
    /// Runs whose plan's JSON is not kept.
    skipped: usize,
    /// Runs that no Policy of the file selects.
    unselected: usize,
}

/// Tries the rules on each plan that is kept.
pub async fn run(rules: &Rules, since: Duration, all_namespaces: bool, connection: &Connection) -> Result<ExitCode> {
    let session = Session::find(connection).await?;
    let client = session.cluster.client.clone();
    let api: Api<Run> = if all_namespaces { Api::all(client) } else { session.api() };
    let listed = api.list(&ListParams::default()).await.explain(&session.cluster, "cannot list runs")?;
    let begin = Timestamp::now().checked_sub(since).unwrap_or(Timestamp::MIN);
    let mut runs: Vec<Run> = listed.items.into_iter().filter(|run| has_changes(run) && created(run) >= begin).collect();
    crate::runs::list::sort(&mut runs);
    let mut labels = KnownLabels::default();
    let mut tally = Tally::default();
    for run in runs {
        let (of_namespace, of_workspace) = labels.of(&session, &run).await?;
        let holds =
            |policy: &Policy| policy::effective([policy], [], &of_namespace, &of_workspace).judges().next().is_some();
        if !rules.policies.iter().any(holds) {
            tally.unselected += 1;
            continue;
        }
        let namespace = run.namespace().unwrap_or_default();
        let found = session.storage().descriptions().get(&namespace, &run.name_any()).await;
        let Some(json) = found.map_err(|error| unreadable(&run, &error))? else {
            tally.skipped += 1;
            continue;
        };
        let workspace = json!({"name": run.spec.workspace, "namespace": namespace, "labels": of_workspace});
        let of_run = json!({
            "name": run.name_any(),
            "operation": run.spec.operation,
            "requestedBy": run.spec.requested_by.clone().unwrap_or_default(),
            "labels": run.labels(),
        });
        let verdict = rules.verdict(holds, &workspace, &of_run, json).await?;
        tally.tried.push(Tried { run, verdict });
    }
    output::print(&text(&tally, Timestamp::now()))?;
    if tally.skipped > 0 {
        style::hint_aside(
            "The JSON of a plan is kept, as long as its run, where a Policy has rules on plans or the plan is reviewed.",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn has_changes(run: &Run) -> bool {
    run.status.as_ref().and_then(|status| status.plan.as_ref()).is_some_and(|plan| plan.changes)
}

fn created(run: &Run) -> Timestamp {
    run.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
}

fn unreadable(run: &Run, error: &knoll_storage::Error) -> anyhow::Error {
    let secret = knoll_api::names::description_secret(&run.name_any());
    anyhow!(
        "cannot read the plan of run `{}`: {error}\n  it is in the Secret `{secret}`, which you need the right to read, as it has the values of the plan",
        run.name_any()
    )
}

/// The labels by which Policies select, each read once.
#[derive(Default)]
struct KnownLabels {
    namespaces: BTreeMap<String, Labels>,
    workspaces: BTreeMap<(String, String), Labels>,
}

impl KnownLabels {
    /// The labels of the namespace and of the Workspace of a Run. A Workspace that is gone has none.
    async fn of(&mut self, session: &Session, run: &Run) -> Result<(Labels, Labels)> {
        let client = &session.cluster.client;
        let (namespace, workspace) = (run.namespace().unwrap_or_default(), run.spec.workspace.clone());
        if !self.namespaces.contains_key(&namespace) {
            let found = Api::<Namespace>::all(client.clone()).get_metadata(&namespace).await;
            let found = found.explain(&session.cluster, "cannot read the labels of a namespace")?;
            self.namespaces.insert(namespace.clone(), found.labels().clone());
        }
        let key = (namespace.clone(), workspace.clone());
        if !self.workspaces.contains_key(&key) {
            let found = Api::<Workspace>::namespaced(client.clone(), &namespace).get_opt(&workspace).await;
            let found = found.explain(&session.cluster, "cannot read a workspace")?;
            let stack = Api::<Stack>::namespaced(client.clone(), &namespace).get_opt(&workspace).await;
            let stack = stack.explain(&session.cluster, "cannot read a stack")?;
            self.workspaces.insert(key.clone(), policy::labels(found.as_ref(), stack.as_ref()));
        }
        Ok((self.namespaces[&namespace].clone(), self.workspaces[&key].clone()))
    }
}

fn text(tally: &Tally, now: Timestamp) -> String {
    let Tally { tried, skipped, unselected } = tally;
    let count = |action: Option<RuleAction>| tried.iter().filter(|tried| tried.verdict.action == action).count();
    let mut out = String::new();
    let objecting: Vec<&Tried> = tried.iter().filter(|tried| tried.verdict.action.is_some()).collect();
    if !objecting.is_empty() {
        let mut table =
            Table::new(&["RULES SAY", "NAMESPACE", "RUN", "WORKSPACE", "AGE", "RULE", "MESSAGE", "RESOURCES"]);
        for Tried { run, verdict } in objecting {
            for result in &verdict.results {
                let word = if result.failed { "Failed" } else { result.action.as_str() };
                table.row([
                    word.into(),
                    run.namespace().unwrap_or_default().into(),
                    run.name_any().into(),
                    run.spec.workspace.clone().into(),
                    time::age(run.metadata.creation_timestamp.as_ref(), now).into(),
                    result.rule.as_str().into(),
                    result.message.as_str().into(),
                    result.addresses.join(", ").into(),
                ]);
            }
        }
        out = format!("{table}\n");
    }
    let runs = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    out += &format!(
        "Of {} with a plan, the rules would have refused {}, demanded a review of {} and warned of {}.\n",
        runs(tried.len()),
        count(Some(RuleAction::Deny)),
        count(Some(RuleAction::RequireApproval)),
        count(Some(RuleAction::Warn)),
    );
    if *skipped > 0 {
        out += &format!("Skipped {}, as the JSON of the plan is not kept.\n", runs(*skipped));
    }
    if *unselected > 0 {
        out += &format!("Left out {}, which the Policy does not select.\n", runs(*unselected));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_written_in_days_too() {
        assert_eq!(time("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(time("2w"), Ok(Duration::from_secs(14 * 86_400)));
        assert_eq!(time("90m"), Ok(Duration::from_secs(90 * 60)));
        for wrong in ["", "d", "30", "-1d", "1.5d", "99999999999999999999d", "18446744073709551615d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_would_have_been_refused_is_counted() {
        let tried = |action| Tried {
            run: Run::new("r", knoll_api::run::RunSpec::default()),
            verdict: PlanVerdict { action, ..PlanVerdict::default() },
        };
        let all = vec![
            tried(None),
            tried(Some(RuleAction::Deny)),
            tried(Some(RuleAction::Deny)),
            tried(Some(RuleAction::Warn)),
        ];
        let shown = text(&Tally { tried: all, skipped: 1, unselected: 2 }, Timestamp::UNIX_EPOCH);
        for expect in [
            "Of 4 runs with a plan, the rules would have refused 2, demanded a review of 0 and warned of 1.",
            "Skipped 1 run, as the JSON of the plan is not kept.",
            "Left out 2 runs, which the Policy does not select.",
        ] {
            assert!(shown.contains(expect), "{shown}");
        }
    }
}
