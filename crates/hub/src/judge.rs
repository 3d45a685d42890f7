//! Judges the plan of a Run by the rules of the Policies that hold for it.
//!
//! *Guarantees.* The Policies are read from the API for each plan. One that cannot be read, a pack that is not the one that
//! its Policy names and a rule without a result deny the plan. The plan's JSON stays in memory, for as long as it is
//! evaluated.

use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Namespace;
use knoll_api::policy::{PlanRules, Policy};
use knoll_api::run::Run;
use knoll_api::stack::Stack;
use knoll_api::verdict::PlanVerdict;
use knoll_api::wire::VERDICT_TIMEOUT;
use knoll_api::workspace::Workspace;
use knoll_core::policy::{self, Labels};
use knoll_rules::{Evaluator, Finding, Judged, Pack, Place, RuleSet, text_of, verdict};
use knoll_storage::Packs;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::error::Error;

/// How long the rules of all Policies may take for one plan. The time in which others are evaluated does not count.
const TIME: Duration = Duration::from_secs(45);
/// How long a plan waits for its turn with one Policy before its runner is sent away, to come again. What all Policies take
/// is less than a runner waits for an answer.
const TURN: Duration = Duration::from_secs(120);
const _: () = assert!(TURN.as_secs() + TIME.as_secs() < VERDICT_TIMEOUT.as_secs());

/// The Policies of the cluster.
struct Policies {
    readable: Vec<Policy>,
    /// The names of those that do not have the form that this version of Knoll reads.
    unreadable: Vec<String>,
}

/// Judges plans by the rules of Policies.
pub struct Judge {
    pub client: Client,
    pub evaluator: Evaluator,
    /// The packs from outside of the cluster.
    pub packs: Packs,
}

/// What the rules say of the plan of digest `plan`.
///
/// # Errors
/// When the Policies, or the labels by which they select, cannot be read.
pub async fn plan(
    judge: &Judge,
    run: &Run,
    workspace: &Workspace,
    plan: &str,
    json: Bytes,
) -> Result<PlanVerdict, Error> {
    let client = &judge.client;
    let (namespace, name) = (run.namespace().unwrap_or_default(), workspace.name_any());
    let (policies, labels, stack) =
        tokio::join!(policies(client), namespace_labels(client, &namespace), stack(client, &namespace, &name),);
    let Policies { readable, unreadable } = policies?;
    let of_workspace = policy::labels(Some(workspace), stack?.as_ref());
    let unreadable = unreadable.iter().map(String::as_str);
    let effective = policy::effective(&readable, unreadable, &labels?, &of_workspace);
    let blocking = effective.blocking().into_iter().chain(policy::plan::not_isolated(run, &effective));
    let blocking = blocking.map(|violation| Judged {
        findings: vec![Finding::failure("", violation.message)],
        policy: violation.from.trim_start_matches("Policy ").trim_matches('`').to_owned(),
        overridable: false,
    });
    let mut judged: Vec<Judged> = blocking.collect();
    let (mut time, mut turn) = (TIME, TURN);
    for name_of_policy in effective.judges() {
        let found = readable.iter().find(|policy| policy.name_any() == name_of_policy);
        let Some(rules) = found.and_then(|policy| policy.spec.plan.as_ref()) else { continue };
        let set = RuleSet {
            workspace: json!({"name": name, "namespace": namespace, "labels": of_workspace}),
            run: json!({
                "name": run.name_any(),
                "operation": run.spec.operation,
                "requestedBy": run.spec.requested_by.clone().unwrap_or_default(),
                "labels": run.labels(),
            }),
            ..RuleSet::default()
        };
        let findings = match within(&mut time, with_packs(judge, rules, set)).await {
            Some(Ok((set, mut failed))) => {
                let place = within(&mut turn, judge.evaluator.place(&namespace, name_of_policy)).await;
                let place = place.ok_or(Error::Crowded)?;
                let mut findings = evaluate(&judge.evaluator, place, &set, json.clone(), &mut time).await;
                findings.append(&mut failed);
                findings
            }
            Some(Err(error)) => return Err(error),
            None => late(),
        };
        judged.push(Judged { policy: name_of_policy.to_owned(), overridable: rules.overrides.is_some(), findings });
    }
    Ok(verdict(plan, effective.rules_digest(), judged))
}

/// Does work for as long as is left, and takes the time that it takes from that; none if it takes longer.
async fn within<T>(left: &mut Duration, work: impl Future<Output = T>) -> Option<T> {
    let begin = Instant::now();
    let done = tokio::time::timeout(*left, work).await.ok();
    *left = left.saturating_sub(begin.elapsed());
    done
}

/// The findings of one Policy that has its turn.
async fn evaluate(
    evaluator: &Evaluator,
    place: Place,
    set: &RuleSet,
    plan: Bytes,
    left: &mut Duration,
) -> Vec<Finding> {
    within(left, evaluator.findings(&place, set, plan)).await.unwrap_or_else(late)
}

fn late() -> Vec<Finding> {
    vec![Finding::failure("", format!("the rules of all Policies took longer than {} s", TIME.as_secs()))]
}

/// The rules of one Policy with its packs, and a failure for each pack that cannot be had.
async fn with_packs(judge: &Judge, rules: &PlanRules, mut set: RuleSet) -> Result<(RuleSet, Vec<Finding>), Error> {
    let mut failed = Vec::new();
    set.rules.clone_from(&rules.rules);
    for (number, pack) in rules.packs.iter().enumerate() {
        let failure = |why: String| Finding::failure(&pack.name, format!("spec.plan.packs[{number}]: {why}"));
        match judge.packs.texts(pack).await {
            Ok(Some(files)) => set.packs.push(Pack::of_files(pack, files.as_ref().clone())),
            Ok(None) => match text_of(pack, judge.packs.config_map(pack).await?.as_deref()) {
                Ok(text) => set.packs.push(Pack::of(pack, text)),
                Err(error) => failed.push(failure(error.to_string())),
            },
            Err(error) => failed.push(failure(error.to_string())),
        }
    }
    Ok((set, failed))
}

async fn policies(client: &Client) -> Result<Policies, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Policy>(&()));
    let mut found = Policies { readable: Vec::new(), unreadable: Vec::new() };
    for object in api.list(&ListParams::default()).await?.items {
        let name = object.name_any();
        let read = serde_json::to_value(object).and_then(serde_json::from_value);
        match read {
            Ok(policy) => found.readable.push(policy),
            Err(_) => found.unreadable.push(name),
        }
    }
    Ok(found)
}

async fn namespace_labels(client: &Client, namespace: &str) -> Result<Labels, Error> {
    let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await?;
    Ok(found.labels().clone())
}

/// The Stack of the Workspace's name, whose labels count as those of the Workspace.
async fn stack(client: &Client, namespace: &str, name: &str) -> Result<Option<Stack>, Error> {
    Ok(Api::<Stack>::namespaced(client.clone(), namespace).get_opt(name).await?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// While the plans of others were judged, a plan was denied because its rules took too long.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_time_of_rules_began_before_their_turn() {
        let evaluator = Evaluator::of("/nowhere");
        let mut left = Duration::from_millis(500);
        let other = evaluator.place("other", "p").await;
        let mut turn = Box::pin(evaluator.place("team", "p"));
        assert!(tokio::time::timeout(left * 2, &mut turn).await.is_err(), "the other one has the place");
        drop(other);
        let place = turn.await;
        let findings = evaluate(&evaluator, place, &RuleSet::default(), Bytes::new(), &mut left).await;
        assert!(findings[0].message.contains("cannot be started"), "{findings:?}");
        assert!(!left.is_zero() && left < Duration::from_millis(500), "what they take is counted");
        assert!(within(&mut left, std::future::pending::<()>()).await.is_none() && left.is_zero());
    }
}
