//! `knoll policy test`: evaluates the rules of a Policy on plans, without a cluster or on the plans that a cluster has kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use knoll_api::Policy;
use knoll_api::policy::{RuleAction, RulePack};
use knoll_api::verdict::PlanVerdict;
use knoll_rules::{Evaluator, Finding, Judged, Pack, PackError, RuleSet, text_of, verdict};
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::earlier;
use crate::connect::Connection;
use crate::output;
use crate::runs::verdict::results_table;

/// The file with the cases of a folder.
const CASES: &str = "cases.yaml";

/// The arguments of `knoll policy test`.
#[derive(clap::Args)]
pub struct PolicyTestArgs {
    #[command(flatten)]
    connection: Connection,
    /// A file with a Policy
    #[arg(long, short, env = "KNOLL_POLICY_FILE", value_name = "FILE", conflicts_with = "folder")]
    file: Option<PathBuf>,
    /// A plan as JSON, as `terraform show -json PLAN` prints it
    #[arg(long, env = "KNOLL_PLAN", value_name = "FILE", requires = "file")]
    plan: Option<PathBuf>,
    /// Evaluate the rules on the plans of the runs of this time that are kept, such as `30d`, with your own rights
    #[arg(long, env = "KNOLL_SINCE", value_name = "DURATION", requires = "file", conflicts_with = "plan", value_parser = earlier::time)]
    since: Option<Duration>,
    /// With --since: the runs of all namespaces
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES")]
    all_namespaces: bool,
    /// The text of a pack that the Policy takes from a ConfigMap, a git repository or a registry
    #[arg(long = "pack", env = "KNOLL_PACK", value_name = "NAME=FILE", value_parser = pack)]
    packs: Vec<(String, PathBuf)>,
    /// A folder with `cases.yaml`: a list of `name`, `policy`, `plan` (files of the folder) and `expect` (`Pass`, `Warn`, `RequireApproval` or `Deny`)
    #[arg(required_unless_present = "file")]
    folder: Option<PathBuf>,
}

fn pack(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("write NAME=FILE")?;
    Ok((name.to_owned(), file.into()))
}

/// A plan and its expected verdict.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    name: String,
    policy: PathBuf,
    plan: PathBuf,
    expect: Expected,
    /// The rules that object, as the results name them; not compared when absent.
    #[serde(default)]
    rules: Option<Vec<String>>,
    /// Files of packs that are not in the Policy, by the name of the pack.
    #[serde(default)]
    packs: BTreeMap<String, PathBuf>,
    /// `name`, `namespace` and `labels` of the Workspace.
    #[serde(default)]
    workspace: Option<Value>,
    /// `name`, `operation`, `requestedBy` and `labels` of the Run.
    #[serde(default)]
    run: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Expected {
    Pass,
    Warn,
    RequireApproval,
    Deny,
}

impl Expected {
    fn of(verdict: &PlanVerdict) -> Self {
        match verdict.action {
            None => Self::Pass,
            Some(RuleAction::Warn) => Self::Warn,
            Some(RuleAction::RequireApproval) => Self::RequireApproval,
            Some(RuleAction::Deny) => Self::Deny,
        }
    }
}

/// Evaluates the rules, and fails when a plan is denied or a case has another verdict than expected.
pub async fn run(args: PolicyTestArgs, outer: &Connection) -> Result<ExitCode> {
    let evaluator = Evaluator::default();
    let packs: Packs = args.packs.into_iter().collect();
    if let (Some(file), Some(since)) = (&args.file, args.since) {
        let rules = Rules { evaluator, policies: policies(file)?, packs };
        return earlier::run(&rules, since, args.all_namespaces, &args.connection.or(outer)).await;
    }
    if let (Some(file), Some(plan)) = (&args.file, &args.plan) {
        let verdict = judged(&evaluator, file, plan, packs, None, None).await?;
        let text = match verdict.results.as_slice() {
            [] => "The rules have no objection.\n".to_owned(),
            results => results_table(results).to_string(),
        };
        output::print(&text)?;
        return Ok(if verdict.is_denied() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let folder =
        args.folder.ok_or_else(|| anyhow!("name a folder with `{CASES}`, or `--file` with `--plan` or `--since`"))?;
    cases(&evaluator, &folder).await
}

async fn cases(evaluator: &Evaluator, folder: &Path) -> Result<ExitCode> {
    let path = folder.join(CASES);
    let cases: Vec<Case> = read(&path)?;
    if cases.is_empty() {
        bail!("`{}` has no cases\n  write a list of `name`, `policy`, `plan` and `expect`", path.display());
    }
    let mut failed = 0;
    for Case { name, policy, plan, expect, rules, packs, workspace, run } in cases {
        let packs = packs.into_iter().map(|(name, file)| (name, folder.join(file))).collect();
        let verdict = judged(evaluator, &folder.join(policy), &folder.join(plan), packs, workspace, run).await?;
        let found = Expected::of(&verdict);
        let objecting: Vec<&str> = verdict.results.iter().map(|result| result.rule.as_str()).collect();
        let is_expected = found == expect
            && !verdict.results.iter().any(|result| result.failed)
            && rules.as_ref().is_none_or(|rules| same(rules, &objecting));
        let word = if is_expected { "ok" } else { "FAILED" };
        let mut text = format!("{word:<8}{name}: {found:?}\n");
        if !is_expected {
            failed += 1;
            let rules = rules.map(|rules| format!(" by {}", rules.join(", "))).unwrap_or_default();
            text += &format!("        expected {expect:?}{rules}\n");
            for result in &verdict.results {
                text += &format!("        {}\n", result.sentence());
            }
        }
        output::print(&text)?;
    }
    if failed > 0 {
        bail!("{failed} case(s) have another verdict than `{}` expects", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether both name the same rules, in any order.
fn same(expected: &[String], found: &[&str]) -> bool {
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let mut found = found.to_vec();
    for list in [&mut expected, &mut found] {
        list.sort_unstable();
        list.dedup();
    }
    expected == found
}

/// The verdict of the Policies in a file on a plan.
async fn judged(
    evaluator: &Evaluator,
    file: &Path,
    plan: &Path,
    packs: Packs,
    workspace: Option<Value>,
    run: Option<Value>,
) -> Result<PlanVerdict> {
    let json = std::fs::read(plan).with_context(|| format!("cannot read `{}`", plan.display()))?;
    let rules = Rules { evaluator: evaluator.clone(), policies: policies(file)?, packs };
    let workspace = workspace.unwrap_or_else(|| json!({"name": "test", "namespace": "test", "labels": {}}));
    let run = run.unwrap_or_else(|| json!({"name": "test", "operation": "apply", "requestedBy": "", "labels": {}}));
    rules.verdict(|_| true, &workspace, &run, json.into()).await
}

/// The Policies of a file, of which one has rules on plans.
fn policies(file: &Path) -> Result<Vec<Policy>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let policies: Vec<Policy> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("`{}` has no Policy", file.display()))?;
    if policies.iter().all(|policy| policy.spec.plan.is_none()) {
        bail!("`{}` has no rules on plans\n  write them into `spec.plan` of a Policy", file.display());
    }
    Ok(policies)
}

/// Files of packs by the names of the packs.
type Packs = BTreeMap<String, PathBuf>;

/// Policies that are tried.
pub(super) struct Rules {
    pub evaluator: Evaluator,
    pub policies: Vec<Policy>,
    /// The files of packs that are not in their Policy.
    pub packs: Packs,
}

impl Rules {
    /// The verdict of the Policies that hold on a plan.
    pub async fn verdict(
        &self,
        holds: impl Fn(&Policy) -> bool,
        workspace: &Value,
        run: &Value,
        plan: Bytes,
    ) -> Result<PlanVerdict> {
        let mut all = Vec::new();
        for policy in self.policies.iter().filter(|policy| holds(policy)) {
            let Some(rules) = &policy.spec.plan else { continue };
            let (workspace, run) = (workspace.clone(), run.clone());
            let mut set = RuleSet { rules: rules.rules.clone(), workspace, run, ..RuleSet::default() };
            let mut failed = Vec::new();
            for pack in &rules.packs {
                match self.pack(pack)? {
                    Ok(pack) => set.packs.push(pack),
                    Err(error) => failed.push(Finding::failure(&pack.name, error.to_string())),
                }
            }
            let place = self.evaluator.place("", &policy.name_any()).await;
            let mut findings = self.evaluator.findings(&place, &set, plan.clone()).await;
            findings.append(&mut failed);
            all.push(Judged { policy: policy.name_any(), overridable: rules.overrides.is_some(), findings });
        }
        Ok(verdict("", None, all))
    }

    /// A pack that is in its Policy, or in the file that is named for it. The digest of a pack from outside of the cluster
    /// is that of its archive or commit, so the file is taken as it is.
    fn pack(&self, pack: &RulePack) -> Result<Result<Pack, PackError>> {
        let outside = pack.git.is_some() || pack.oci.is_some();
        if !outside {
            return Ok(text_of(pack, of_file(pack, &self.packs)?.as_deref()).map(|text| Pack::of(pack, text)));
        }
        let text = of_file(pack, &self.packs)?.unwrap_or_default();
        Ok(Ok(Pack::of(pack, text)))
    }
}

/// The text of a pack that is not in its Policy, and here in a file.
fn of_file(pack: &RulePack, packs: &BTreeMap<String, PathBuf>) -> Result<Option<String>> {
    let place = match pack {
        RulePack { config_map: Some(_), .. } => "a ConfigMap",
        RulePack { git: Some(_), .. } => "a git repository",
        RulePack { oci: Some(_), .. } => "a registry",
        _ => return Ok(None),
    };
    let file = packs.get(&pack.name).with_context(|| {
        format!(
            "pack `{name}` is in {place}\n  name its file: --pack {name}=FILE, or `packs` of the case",
            name = pack.name
        )
    })?;
    std::fs::read_to_string(file).map(Some).with_context(|| format!("cannot read `{}`", file.display()))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|error| anyhow!("cannot read `{}`: {error}", path.display()))
}
