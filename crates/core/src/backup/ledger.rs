//! What has to be copied, in which order, and when it is tried again.
//!
//! *Guarantees.* A piece of work is carried out by one task at a time; a change in between asks for it again. While the
//! target is unreachable one copy at a time is tried, each a different one, after growing waits: a single copy that the
//! target refuses does not keep the others waiting. Everything here can be found out anew from the cluster and the target.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::standing::{Copied, FoundBackup, Standing, StateBackup};
use super::waiting::Waiting;

/// The first wait after a failure; it doubles with each one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait: a target that is back is noticed within this time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Something that is to be copied as it is when its turn comes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// The versions of a state that are not in the target yet.
    State { namespace: String, workspace: String },
    /// An object. `kind` is in lower case.
    Object { kind: &'static str, namespace: Option<String>, name: String },
}

impl Work {
    /// The namespace that it is of; none for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Work::State { namespace, .. } => Some(namespace),
            Work::Object { namespace, .. } => namespace.as_deref(),
        }
    }
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// All versions of the state are in the target; this is the current one.
    State(Copied),
    /// The cluster has no state; this is the newest version in the target.
    NoState(Option<FoundBackup>),
    /// The object is in the target.
    Object,
    /// The target failed; every other copy would fail as well.
    Unreachable(String),
    /// The content cannot be read from the cluster, or cannot be copied.
    Failed(String),
}

/// A time in which the target fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub since: Timestamp,
    /// Why, as the first failure had it.
    pub why: String,
    failures: u32,
    next_try: Timestamp,
}

/// What a copy's end has changed for the target as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    /// The target was reachable before.
    WentAway,
    /// The target was unreachable before.
    CameBack,
}

/// The work that is left, and how far each state is.
#[derive(Debug, Default)]
pub struct Ledger {
    waiting: Waiting,
    running: HashSet<Work>,
    /// Work that was asked for while it was running.
    again: HashSet<Work>,
    /// Work that failed by itself, by the time of its next try.
    later: BTreeSet<(Timestamp, Work)>,
    failures: HashMap<Work, u32>,
    outage: Option<Outage>,
    states: HashMap<(String, String), Standing>,
}

impl Ledger {
    /// Asks for a piece of work.
    pub fn ask(&mut self, work: Work) {
        if self.running.contains(&work) {
            self.again.insert(work);
        } else {
            self.waiting.push(work);
        }
    }

    /// The head of a state names this version; `copied` is what the Workspace's status says.
    pub fn head(
        &mut self,
        (namespace, workspace): (&str, &str),
        (digest, written_at): (&str, Timestamp),
        run: Option<&str>,
        copied: Option<Copied>,
    ) {
        let standing = self.states.entry((namespace.to_owned(), workspace.to_owned())).or_default();
        if let Some(copied) = copied {
            standing.remember(copied);
        }
        if standing.head(digest, written_at, run) {
            self.ask(Work::State { namespace: namespace.to_owned(), workspace: workspace.to_owned() });
        }
    }

    /// A Workspace has no state. Whether the target has one is looked up once.
    pub fn no_head(&mut self, namespace: &str, workspace: &str, is_new: bool) {
        let key = (namespace.to_owned(), workspace.to_owned());
        if is_new || !self.states.contains_key(&key) {
            self.states.insert(key, Standing::default());
            self.ask(Work::State { namespace: namespace.to_owned(), workspace: workspace.to_owned() });
        }
    }

    /// Forgets a Workspace that is gone and has no state.
    pub fn forget(&mut self, namespace: &str, workspace: &str) {
        self.states.remove(&(namespace.to_owned(), workspace.to_owned()));
    }

    /// The next piece of work, which is running from now on.
    pub fn next(&mut self, now: Timestamp) -> Option<Work> {
        if let Some(outage) = &self.outage
            && (now < outage.next_try || !self.running.is_empty())
        {
            return None;
        }
        while let Some((at, work)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, work));
                break;
            }
            self.ask(work);
        }
        let work = self.waiting.pop()?;
        self.running.insert(work.clone());
        Some(work)
    }

    /// When [`Ledger::next`] may have something although nobody asks for anything until then.
    #[must_use]
    pub fn next_try(&self) -> Option<Timestamp> {
        let later = self.later.first().map(|(at, _)| *at);
        match &self.outage {
            None => later,
            Some(_) if self.waiting.is_empty() && later.is_none() => None,
            Some(outage) if self.waiting.is_empty() => later.max(Some(outage.next_try)),
            Some(outage) => Some(outage.next_try),
        }
    }

    /// A piece of work has ended.
    pub fn ended(&mut self, work: Work, outcome: CopyOutcome, now: Timestamp) -> Change {
        self.running.remove(&work);
        let mut asked = self.again.remove(&work);
        let is_reachable = !matches!(outcome, CopyOutcome::Unreachable(_) | CopyOutcome::Failed(_));
        match &outcome {
            CopyOutcome::Unreachable(_) => {
                asked = false;
                self.waiting.push_refused(work.clone());
            }
            CopyOutcome::Failed(_) => {
                let failures = self.failures.entry(work.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.later.insert((after(now, *failures), work.clone()));
            }
            _ => drop(self.failures.remove(&work)),
        }
        if let Work::State { namespace, workspace } = &work
            && let Some(standing) = self.states.get_mut(&(namespace.clone(), workspace.clone()))
        {
            match &outcome {
                CopyOutcome::State(copied) => standing.copied(copied.clone()),
                CopyOutcome::NoState(found) => standing.absent(found.clone()),
                CopyOutcome::Failed(why) => standing.failure = Some(why.clone()),
                CopyOutcome::Object | CopyOutcome::Unreachable(_) => {}
            }
        }
        if asked {
            self.ask(work);
        }
        match (outcome, self.outage.take()) {
            (CopyOutcome::Unreachable(_), Some(mut outage)) => {
                outage.failures = outage.failures.saturating_add(1);
                outage.next_try = after(now, outage.failures);
                self.outage = Some(outage);
                Change::None
            }
            (CopyOutcome::Unreachable(why), None) => {
                self.outage = Some(Outage { since: now, why, failures: 1, next_try: after(now, 1) });
                Change::WentAway
            }
            (_, Some(_)) if is_reachable => Change::CameBack,
            (_, outage) => {
                self.outage = outage;
                Change::None
            }
        }
    }

    #[must_use]
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// What is known of the copies of a Workspace's state.
    #[must_use]
    pub fn state(&self, namespace: &str, workspace: &str, target: &str) -> StateBackup {
        let standing = self.states.get(&(namespace.to_owned(), workspace.to_owned())).cloned().unwrap_or_default();
        StateBackup {
            target: target.to_owned(),
            standing,
            outage: self.outage.as_ref().map(|outage| outage.why.clone()),
        }
    }

    /// The Workspaces with versions that are not copied.
    pub fn late(&self) -> impl Iterator<Item = (&str, &str)> {
        let late = self.states.iter().filter(|(_, standing)| standing.behind() > 0);
        late.map(|((namespace, workspace), _)| (namespace.as_str(), workspace.as_str()))
    }

    /// How many versions are not copied, and when the first of them was written.
    #[must_use]
    pub fn lag(&self) -> (usize, Option<Timestamp>) {
        let behind = self.states.values().map(Standing::behind).sum();
        (behind, self.states.values().filter_map(Standing::behind_since).min())
    }
}

fn after(now: Timestamp, failures: u32) -> Timestamp {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.saturating_sub(1).min(16));
    now.checked_add(doubled.min(LONGEST_WAIT)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn second(at: i64) -> Timestamp {
        Timestamp::from_second(at).unwrap()
    }

    fn state(name: &str) -> Work {
        Work::State { namespace: "n".to_owned(), workspace: name.to_owned() }
    }

    fn head(ledger: &mut Ledger, name: &str, digest: &str, at: i64) {
        ledger.head(("n", name), (digest, second(at)), Some(digest), None);
    }

    fn done(digest: &str, at: i64) -> CopyOutcome {
        CopyOutcome::State(Copied { serial: 1, digest: digest.to_owned(), written_at: second(at) })
    }

    fn away() -> CopyOutcome {
        CopyOutcome::Unreachable("away".to_owned())
    }

    #[test]
    fn a_change_of_work_that_is_running_asks_for_it_again() {
        let mut ledger = Ledger::default();
        head(&mut ledger, "a", "1", 1);
        head(&mut ledger, "a", "1", 1);
        assert_eq!(ledger.next(second(1)), Some(state("a")));
        assert_eq!(ledger.next(second(1)), None);
        head(&mut ledger, "a", "2", 2);
        assert_eq!(ledger.next(second(2)), None, "one task at a time");
        assert_eq!(ledger.ended(state("a"), done("1", 1), second(2)), Change::None);
        assert_eq!(ledger.lag(), (1, Some(second(2))));
        assert_eq!(ledger.next(second(2)), Some(state("a")));
        ledger.ended(state("a"), done("2", 2), second(3));
        assert_eq!((ledger.next(second(3)), ledger.lag()), (None, (0, None)));
    }

    #[test]
    fn an_outage_is_probed_by_one_copy_at_a_time_each_a_different_one() {
        let mut ledger = Ledger::default();
        for name in ["a", "b", "c"] {
            head(&mut ledger, name, "1", 1);
        }
        let (first, second_) = (ledger.next(second(1)).unwrap(), ledger.next(second(1)).unwrap());
        assert_eq!(ledger.ended(first, away(), second(1)), Change::WentAway);
        assert_eq!(ledger.ended(second_, away(), second(1)), Change::None);
        assert_eq!(ledger.next(second(1)), None, "it waits");
        let at = ledger.next_try().unwrap();
        assert_eq!(at, second(3));
        assert_eq!(ledger.next(at), Some(state("c")));
        assert_eq!(ledger.next(at), None, "one at a time");
        ledger.ended(state("c"), away(), at);
        let at = ledger.next_try().unwrap();
        assert_eq!(ledger.next(at), Some(state("a")), "another one");
        assert_eq!(ledger.lag(), (3, Some(second(1))));
        assert_eq!(ledger.ended(state("a"), done("1", 1), at), Change::CameBack);
        assert_eq!(ledger.outage(), None);
        assert_eq!((ledger.next(at), ledger.next(at)), (Some(state("b")), Some(state("c"))));
        assert_eq!(ledger.late().count(), 2);
    }

    #[test]
    fn waits_grow_up_to_a_minute() {
        let waits: Vec<i64> = (1..9).map(|failures| after(second(0), failures).as_second()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(after(second(0), u32::MAX), second(60));
    }

    #[test]
    fn a_state_that_cannot_be_copied_keeps_no_other_waiting() {
        let mut ledger = Ledger::default();
        head(&mut ledger, "bad", "1", 1);
        head(&mut ledger, "good", "1", 1);
        let bad = ledger.next(second(1)).unwrap();
        assert_eq!(ledger.ended(bad, CopyOutcome::Failed("damaged".to_owned()), second(1)), Change::None);
        assert_eq!(ledger.state("n", "bad", "t").standing.failure.as_deref(), Some("damaged"));
        assert_eq!(ledger.next(second(1)), Some(state("good")));
        assert_eq!(ledger.next(second(1)), None);
        assert_eq!(ledger.next_try(), Some(second(2)));
        assert_eq!(ledger.next(second(2)), Some(state("bad")));
    }

    #[test]
    fn what_the_status_names_as_copied_is_not_copied_after_a_restart() {
        let mut ledger = Ledger::default();
        let copied = Copied { serial: 1, digest: "1".to_owned(), written_at: second(1) };
        ledger.head(("n", "a"), ("1", second(1)), Some("r"), Some(copied.clone()));
        assert_eq!(ledger.next(second(1)), None);
        ledger.head(("n", "b"), ("2", second(2)), Some("r"), Some(copied));
        assert_eq!(ledger.next(second(1)), Some(state("b")));
    }

    #[test]
    fn a_workspace_without_a_state_is_looked_up_once_and_again_when_its_state_goes() {
        let mut ledger = Ledger::default();
        ledger.no_head("n", "a", false);
        ledger.no_head("n", "a", false);
        assert_eq!(ledger.next(second(1)), Some(state("a")));
        let found = FoundBackup { serial: 7, written_at: second(7) };
        ledger.ended(state("a"), CopyOutcome::NoState(Some(found)), second(1));
        ledger.no_head("n", "a", false);
        assert_eq!(ledger.next(second(1)), None);
        ledger.no_head("n", "a", true);
        assert_eq!(ledger.next(second(1)), Some(state("a")));
    }
}
