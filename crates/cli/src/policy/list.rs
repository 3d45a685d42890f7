//! `knoll policy list`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use knoll_api::Policy;
use knoll_api::names::condition;
use knoll_api::policy::ReviewFloor;
use knoll_core::policy::status::fault;
use kube::api::{Api, ListParams};
use kube::{ResourceExt, core::Selector};

use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table};
use crate::output::{self, Format, OutputArgs, time, visible};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll policy list`.
#[derive(clap::Args)]
pub struct PolicyListArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the Policies of the cluster.
pub async fn run(args: PolicyListArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let api: Api<Policy> = Api::all(session.cluster.client.clone());
    let listed = api.list(&ListParams::default()).await;
    let policies = listed.explain(&session.cluster, "cannot list policies")?.items;
    let nothing = "No policies found. `kubectl apply` one to demand a review, or to restrict what runs may use.";
    let format = args.output.output;
    output::list(&policies, format, nothing, |_| table(&policies, Timestamp::now()))?;
    if matches!(format, Format::Table | Format::Wide) {
        for (policy, why) in policies.iter().filter_map(|policy| Some((policy, fault(policy.status.as_ref())?))) {
            style::note(&format!("policy `{}`: {}", policy.name_any(), visible(why)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(policies: &[Policy], now: Timestamp) -> Table {
    let mut table = Table::new(&["NAME", "READY", "NAMESPACES", "WORKSPACES", "REVIEW", "ALLOW", "PLAN", "AGE"]);
    for policy in policies {
        let row: [Cell; 8] = [
            policy.name_any().into(),
            ready(policy).into(),
            selector(policy.spec.namespace_selector.as_ref()).into(),
            selector(policy.spec.workspace_selector.as_ref()).into(),
            review(policy).into(),
            allow(policy).into(),
            plan(policy).into(),
            time::age(policy.metadata.creation_timestamp.as_ref(), now).into(),
        ];
        table.row(row);
    }
    table
}

/// What the operator has found; `-` until it has looked.
fn ready(policy: &Policy) -> String {
    let conditions = policy.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|found| found.type_ == condition::READY);
    ready.map_or_else(|| "-".to_owned(), |ready| ready.status.clone())
}

fn selector(selector: Option<&LabelSelector>) -> String {
    let read = selector.map(|selector| Selector::try_from(selector.clone()));
    match read {
        None => "all".to_owned(),
        Some(Ok(selector)) if selector.selects_all() => "all".to_owned(),
        Some(Ok(selector)) => selector.to_string(),
        Some(Err(_)) => "unreadable".to_owned(),
    }
}

fn review(policy: &Policy) -> String {
    let Some(review) = &policy.spec.review else { return "-".to_owned() };
    let mut words = Vec::new();
    words.extend((review.floor > ReviewFloor::Auto).then(|| review.floor.as_str().to_owned()));
    words.extend(review.approvers.map(|approvers| {
        let plural = if approvers == 1 { "" } else { "s" };
        format!("{approvers} approver{plural}")
    }));
    words.extend((!review.groups.is_empty()).then(|| format!("of {}", review.groups.join(", "))));
    words.extend(review.four_eyes.then(|| "four eyes".to_owned()));
    let words = words.join("; ");
    match review.floor {
        _ if words.is_empty() => "-".to_owned(),
        // Without a floor, the rest holds for the runs that something else sends into a review.
        ReviewFloor::Auto => format!("if reviewed: {words}"),
        ReviewFloor::ManualOnDestroy | ReviewFloor::Manual => words,
    }
}

/// The names of the fields that restrict something.
fn allow(policy: &Policy) -> String {
    let allow = policy.spec.allow.clone().unwrap_or_default();
    let fields = [
        (allow.sources.is_some(), "sources"),
        (allow.images.is_some(), "images"),
        (allow.service_accounts.is_some(), "serviceAccounts"),
        (allow.tools.is_some(), "tools"),
        (allow.pod.is_some(), "pod"),
        (allow.hooks.is_some(), "hooks"),
        (allow.privileged.is_some(), "privileged"),
    ];
    let set: Vec<&str> = fields.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
    if set.is_empty() { "-".to_owned() } else { set.join(",") }
}

/// The number of rules on plans, packs included.
fn plan(policy: &Policy) -> String {
    let rules = policy.spec.plan.as_ref().map_or(0, |plan| plan.rules.len() + plan.packs.len());
    if rules == 0 { "-".to_owned() } else { format!("{rules} rule{}", if rules == 1 { "" } else { "s" }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_without_a_floor_demands_no_review_by_itself() {
        let shown = |rules: serde_json::Value| {
            let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "p"}, "spec": {"review": rules}});
            review(&serde_json::from_value(policy).unwrap())
        };
        assert_eq!(shown(json!({})), "-");
        assert_eq!(shown(json!({"floor": "ManualOnDestroy", "approvers": 1})), "ManualOnDestroy; 1 approver");
        assert_eq!(shown(json!({"approvers": 3, "fourEyes": true})), "if reviewed: 3 approvers; four eyes");
    }

    #[test]
    fn a_row_says_what_a_policy_selects_and_restricts() {
        let policy: Policy = serde_json::from_value(json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "production"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"env": "production"}},
                "review": {"floor": "Manual", "approvers": 2, "groups": ["release"], "fourEyes": true},
                "allow": {"images": [], "hooks": "None"},
            },
        }))
        .unwrap();
        let text = table(&[policy], Timestamp::UNIX_EPOCH).to_string();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split("   ").filter(|cell| !cell.is_empty()).collect();
        let expect =
            ["production", "-", "env=production", "all", "Manual; 2 approvers; of release; four eyes", "images,hooks"];
        assert_eq!(row.iter().map(|cell| cell.trim()).take(6).collect::<Vec<_>>(), expect);
    }
}
