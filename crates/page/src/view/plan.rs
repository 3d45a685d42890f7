//! A plan: what a decision on it covers, and its changes, destroys first.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use knoll_api::run::{ChangeAction, PlanSummary, Run};
use knoll_api::step::StepName;
use knoll_core::run::covers;
use knoll_core::visible::visible_line;
use knoll_storage::{PlanTextError, Storage};
use schemars::JsonSchema;
use serde::Serialize;

use super::run::{self, RunObserved, RunView};
use super::shown::{PlanCounts, Tone};
use crate::error::PageError;
use crate::plan_blocks::{self, Block, PlanLine};
use crate::user::User;

/// The page of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    pub run: RunView,
    pub counts: Option<PlanCounts>,
    /// The digest that a decision has to name, while the run waits for one.
    pub digest: Option<String>,
    /// What the digest covers, as labels and values.
    pub covers: Vec<Covered>,
    /// Who demands the review, and how many Approvals there are.
    pub review: Option<String>,
    pub groups: Vec<ChangeGroup>,
    /// Lines about no resource: outputs and counts.
    pub rest: Vec<PlanLine>,
    /// Changes that the status does not list.
    pub omitted: u32,
    /// Why terraform's own text is not shown, or not all of it. Such a plan cannot be approved here.
    pub problem: Option<String>,
}

/// A part of what a decision covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Covered {
    pub label: String,
    pub value: String,
}

/// Changes of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangeGroup {
    pub title: String,
    /// terraform's symbol for the change.
    pub symbol: String,
    pub tone: Tone,
    pub resources: Vec<ChangeView>,
}

/// The change of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangeView {
    pub address: String,
    /// The module that it is in, as `module.net`; none for the root module.
    pub module: Option<String>,
    /// terraform's words on the change.
    pub sentence: String,
    pub lines: Vec<PlanLine>,
    /// The names of attributes that change, where the text is not shown.
    pub attributes: Vec<String>,
}

/// What was read for the page of a plan.
pub struct PlanObserved {
    pub run: RunObserved,
    pub text: Result<Option<String>, PlanTextError>,
}

pub async fn observe(user: &User, namespace: &str, name: &str) -> Result<PlanObserved, PageError> {
    let run = run::observe(user, namespace, name).await?;
    let text = Storage::new(user.client.clone()).plan_texts().of(&run.run).await;
    Ok(PlanObserved { run, text })
}

#[must_use]
pub fn view(seen: &PlanObserved, now: Timestamp) -> PlanView {
    let status = seen.run.run.status.clone().unwrap_or_default();
    let plan = status.plan.clone().unwrap_or_default();
    let text = seen.text.as_ref().ok().and_then(Option::as_deref).unwrap_or_default();
    let (text, is_whole) = plan_blocks::shown(text);
    let (blocks, rest) = plan_blocks::blocks(text);
    let too_long = (!is_whole).then(|| plan_blocks::TOO_LONG.to_owned());
    let fields = covers::fields(&status).into_iter().filter(|(_, value)| !value.is_empty());
    PlanView {
        run: run::view(&seen.run, now),
        counts: status.plan.as_ref().map(PlanCounts::of),
        digest: status.review_digest.clone(),
        covers: fields.map(|(label, value)| Covered { label: label.to_owned(), value: visible_line(&value) }).collect(),
        review: review(&seen.run.run),
        groups: groups(&plan, blocks),
        rest: trimmed(rest),
        omitted: plan.omitted,
        problem: seen.text.as_ref().err().map(ToString::to_string).or(too_long),
    }
}

fn review(run: &Run) -> Option<String> {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    steps.into_iter().find(|step| step.name == StepName::Review)?.message.clone()
}

/// The order and the words of the groups: what is lost comes first.
const GROUPS: [(ChangeAction, &str, &str, Tone); 8] = [
    (ChangeAction::Delete, "Destroy", "-", Tone::Bad),
    (ChangeAction::Replace, "Replace", "-/+", Tone::Bad),
    (ChangeAction::Forget, "Forget", ".", Tone::Waits),
    (ChangeAction::Update, "Change", "~", Tone::Waits),
    (ChangeAction::Create, "Create", "+", Tone::Good),
    (ChangeAction::Import, "Import", "<+", Tone::Good),
    (ChangeAction::Move, "Move", "->", Tone::Quiet),
    (ChangeAction::Read, "Read", "<=", Tone::Quiet),
];

/// The changes by their action. The action of the status counts, which no module can write: the text only has the
/// details. A block of the text about a resource that the status does not have goes where its heading says, and every
/// block is shown.
fn groups(plan: &PlanSummary, blocks: Vec<Block>) -> Vec<ChangeGroup> {
    let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
    let mut at: HashMap<String, VecDeque<usize>> = HashMap::new();
    let mut moves: HashMap<String, usize> = HashMap::new();
    for (place, block) in blocks.iter().enumerate() {
        let Some(Block { address, sentence, .. }) = block else { continue };
        at.entry(address.clone()).or_default().push_back(place);
        if let Some((_, to)) = sentence.split_once("has moved to ") {
            moves.entry(to.to_owned()).or_insert(place);
        }
    }
    let mut groups: Vec<ChangeGroup> = GROUPS
        .map(|(_, title, symbol, tone)| (title, symbol, tone))
        .into_iter()
        .chain([("Other", " ", Tone::Quiet)])
        .map(|(title, symbol, tone)| ChangeGroup {
            title: title.to_owned(),
            symbol: symbol.to_owned(),
            tone,
            resources: Vec::new(),
        })
        .collect();
    let mut put = |action: Option<ChangeAction>, view: ChangeView| {
        let known = GROUPS.iter().position(|(known, ..)| Some(*known) == action).unwrap_or(GROUPS.len());
        if let Some(group) = groups.get_mut(known) {
            group.resources.push(view);
        }
    };
    for change in &plan.resources {
        let same = at.get_mut(&change.address).and_then(VecDeque::pop_front);
        let moved = || moves.get(&change.address).copied().filter(|_| change.action == ChangeAction::Move);
        let found = same.or_else(moved).and_then(|place| blocks.get_mut(place)?.take());
        let (sentence, lines) = found.map(|block| (block.sentence, block.lines)).unwrap_or_default();
        let attributes = if lines.is_empty() { change.attributes.clone() } else { Vec::new() };
        put(Some(change.action), change_view(&change.address, sentence, lines, attributes));
    }
    for Block { address, sentence, lines } in blocks.into_iter().flatten() {
        put(plan_blocks::action(&sentence), change_view(&address, sentence, lines, Vec::new()));
    }
    for group in &mut groups {
        group.resources.sort_by(|one, other| (&one.module, &one.address).cmp(&(&other.module, &other.address)));
    }
    groups.retain(|group| !group.resources.is_empty());
    groups
}

fn change_view(address: &str, sentence: String, lines: Vec<PlanLine>, attributes: Vec<String>) -> ChangeView {
    let address = visible_line(address);
    ChangeView { module: module(&address), address, sentence, lines, attributes }
}

/// The module of an address: all of it up to the resource's type.
fn module(address: &str) -> Option<String> {
    let mut end = 0;
    let mut rest = address;
    while let Some(inner) = rest.strip_prefix("module.") {
        // The key of an instance may have a dot; a name has none.
        let name = inner.find(['.', '['])?;
        let after = &inner[name..];
        let key = if after.starts_with('[') { after.find("].").map_or(after.len(), |at| at + 1) } else { 0 };
        let length = "module.".len() + name + key;
        end += length;
        rest = address.get(end + 1..)?;
        end += 1;
    }
    let module = address.get(..end.checked_sub(1)?)?;
    (!module.is_empty()).then(|| module.to_owned())
}

fn trimmed(mut lines: Vec<PlanLine>) -> Vec<PlanLine> {
    let blank = |line: &PlanLine| line.text.trim().is_empty();
    while lines.last().is_some_and(blank) {
        lines.pop();
    }
    let first = lines.iter().position(|line| !blank(line)).unwrap_or_default();
    lines.drain(..first);
    lines
}

#[cfg(test)]
mod tests {
    use knoll_api::run::ResourceChange;

    use super::*;

    #[test]
    fn destroys_come_first_and_the_status_decides_what_is_one() {
        let change = |address: &str, action| ResourceChange { address: address.into(), action, ..Default::default() };
        let resources = vec![
            change("a.b", ChangeAction::Create),
            change("module.m.a.c", ChangeAction::Delete),
            change("a.d", ChangeAction::Update),
        ];
        let plan = PlanSummary { resources, changes: true, ..PlanSummary::default() };
        // The text calls a destroy a creation.
        let text = "  # module.m.a.c will be created\n  + x\n\n  # a.b will be created\n  + y\n\n  # a.z will be destroyed\n  - z\n";
        let (blocks, _) = plan_blocks::blocks(text);
        let groups = groups(&plan, blocks);
        let shown: Vec<_> = groups
            .iter()
            .map(|group| {
                let names = group.resources.iter().map(|view| view.address.as_str()).collect::<Vec<_>>();
                (group.title.as_str(), names, group.resources[0].lines.len())
            })
            .collect();
        assert_eq!(
            shown,
            [("Destroy", vec!["a.z", "module.m.a.c"], 1), ("Change", vec!["a.d"], 0), ("Create", vec!["a.b"], 1),]
        );
    }

    #[test]
    fn a_module_is_what_precedes_the_resource() {
        let rows = [
            ("aws_vpc.main", None),
            ("module.net.aws_vpc.main", Some("module.net")),
            ("module.net[\"a.b\"].module.sub.aws_vpc.main[0]", Some("module.net[\"a.b\"].module.sub")),
            ("module.", None),
            ("module.net", None),
        ];
        for (address, expect) in rows {
            assert_eq!(module(address).as_deref(), expect, "{address}");
        }
    }
}
