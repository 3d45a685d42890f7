//! Every transition of the machine by table, and any sequence of events by property.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use knoll_api::{AtomSpec, atom::ObjectKey, names::condition};
use proptest::prelude::*;

use super::*;
use crate::conditions;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

fn revision(template: &str, inputs: &str) -> AtomRevision {
    AtomRevision { template: template.to_owned(), inputs: inputs.to_owned(), ..AtomRevision::default() }
}

fn object(name: &str, ready: bool) -> AtomObject {
    let key = ObjectKey { kind: "ConfigMap".to_owned(), name: name.to_owned(), ..ObjectKey::default() };
    AtomObject { object: key, ready, message: (!ready).then(|| "Not yet.".to_owned()), ..AtomObject::default() }
}

/// An Atom that wants `v2` and has this status.
fn atom(status: AtomStatus) -> Atom {
    let mut atom = Atom::new("web", AtomSpec { version: "v2".to_owned(), ..AtomSpec::default() });
    atom.metadata.generation = Some(2);
    atom.metadata.finalizers = Some(vec![finalizer::ATOM.to_owned()]);
    atom.status = Some(status);
    atom
}

/// A status of this phase: `v1` was good, `v2` is tried since second 0.
fn status(phase: AtomPhase, stage: Option<JournalStage>) -> AtomStatus {
    AtomStatus {
        phase,
        target_version: Some("v2".to_owned()),
        last_good_version: Some("v1".to_owned()),
        started_at: Some(MicroTime(at(0))),
        journal: stage.map(|stage| AtomJournal { secret_name: "j".to_owned(), stage }),
        objects: vec![object("a", false)],
        tried: Some(revision("t2", "i")),
        good: Some(revision("t1", "i")),
        ..AtomStatus::default()
    }
}

fn known(template: &str, inputs: &str) -> Wanted {
    Wanted::Known(revision(template, inputs))
}

fn missing() -> Wanted {
    Wanted::Unknown { cause: Cause::new(reason::VERSION_NOT_FOUND, "It is not there."), stuck: true }
}

/// What is decided: the next phase and stage, and what to do when the status stays.
fn decided(atom: &Atom, wanted: &Wanted, second: i64) -> (AtomPhase, Option<JournalStage>, Option<Action>) {
    let decision = decide(&Observed { atom, wanted }, at(second));
    (decision.status.phase, decision.status.journal.map(|journal| journal.stage), decision.action)
}

#[test]
fn every_decision() {
    use {Action as A, AtomPhase as P, JournalStage as S};
    let t2 = || known("t2", "i");
    let failed = |reason: &str, from: AtomStatus| AtomStatus {
        failure: Some(AtomFailure { reason: reason.to_owned(), ..AtomFailure::default() }),
        ..from
    };
    #[rustfmt::skip]
    let rows: Vec<(&str, AtomStatus, bool, Wanted, i64, (P, Option<S>, Option<A>))> = vec![
        ("nothing is known yet", AtomStatus::default(), false, missing(), 1, (P::Pending, None, None)),
        ("a first version", AtomStatus::default(), false, t2(), 1, (P::Updating, None, None)),
        ("a first version, cancelled", AtomStatus::default(), true, t2(), 1, (P::Pending, None, None)),
        ("half of an update waits", status(P::Pending, Some(S::Kept)), false, missing(), 1, (P::Pending, Some(S::Kept), None)),
        ("half of an update waits too long", status(P::Pending, Some(S::Kept)), false, missing(), 400, (P::Rollback, Some(S::Restore), None)),
        ("half of an update is cancelled", status(P::Pending, Some(S::Kept)), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("half of an update goes on", status(P::Pending, Some(S::Kept)), false, t2(), 400, (P::Updating, Some(S::Kept), None)),
        ("checked first", status(P::Updating, None), false, t2(), 1, (P::Updating, None, Some(A::Prepare))),
        ("checked anew", status(P::Updating, Some(S::Kept)), false, t2(), 1, (P::Updating, Some(S::Kept), Some(A::Prepare))),
        ("written", status(P::Updating, Some(S::Apply)), false, t2(), 1, (P::Updating, Some(S::Apply), Some(A::Write))),
        ("waited for", status(P::Updating, Some(S::Wait)), false, t2(), 1, (P::Updating, Some(S::Wait), Some(A::Look))),
        ("pruned", status(P::Updating, Some(S::Prune)), false, t2(), 1, (P::Updating, Some(S::Prune), Some(A::Prune))),
        ("goes on while a dependency works", status(P::Updating, Some(S::Wait)), false, missing(), 1, (P::Updating, Some(S::Wait), Some(A::Look))),
        ("too late", status(P::Updating, Some(S::Wait)), false, t2(), 300, (P::Deadline, Some(S::Wait), None)),
        ("too late to prune", status(P::Updating, Some(S::Prune)), false, t2(), 300, (P::Deadline, Some(S::Prune), None)),
        ("cancelled", status(P::Updating, Some(S::Wait)), true, t2(), 1, (P::Cancelled, Some(S::Wait), None)),
        ("a newer version", status(P::Updating, Some(S::Wait)), false, known("t3", "i"), 1, (P::Cancelled, Some(S::Wait), None)),
        ("newer inputs", status(P::Updating, Some(S::Wait)), false, known("t2", "j"), 1, (P::Cancelled, Some(S::Wait), None)),
        ("cancelled for a newer one", failed(reason::SUPERSEDED, status(P::Cancelled, Some(S::Wait))), false, t2(), 1, (P::Pending, Some(S::Kept), None)),
        ("cancelled for good", failed(reason::CANCELLED, status(P::Cancelled, Some(S::Wait))), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("superseded and cancelled", failed(reason::SUPERSEDED, status(P::Cancelled, Some(S::Wait))), true, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("an error", status(P::Error, Some(S::Apply)), false, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("an error before anything was kept", status(P::Error, None), false, t2(), 1, (P::Rollback, None, None)),
        ("a deadline", status(P::Deadline, Some(S::Wait)), false, t2(), 1, (P::Rollback, Some(S::Restore), None)),
        ("nothing to undo", status(P::Rollback, None), false, t2(), 1, (P::Reverted, None, None)),
        ("undone", status(P::Rollback, Some(S::Restore)), false, t2(), 1, (P::Rollback, Some(S::Restore), Some(A::Restore))),
        ("undone, whatever is new", status(P::Rollback, Some(S::Restore)), true, known("t3", "i"), 1, (P::Rollback, Some(S::Restore), Some(A::Restore))),
        ("not undone in time", status(P::Rollback, Some(S::Restore)), false, t2(), 300, (P::Failure, Some(S::Restore), None)),
        ("the journal is forgotten", status(P::Running, Some(S::Done)), false, known("t3", "i"), 1, (P::Running, Some(S::Done), Some(A::Forget))),
        ("it runs", status(P::Running, None), false, t2(), 1, (P::Running, None, None)),
        ("it runs while a dependency works", status(P::Running, None), false, missing(), 1, (P::Running, None, None)),
        ("a new version", status(P::Running, None), false, known("t3", "i"), 1, (P::Pending, None, None)),
        ("new inputs", status(P::Running, None), false, known("t2", "j"), 1, (P::Pending, None, None)),
        ("reverted", status(P::Reverted, None), false, t2(), 1, (P::Reverted, None, None)),
        ("reverted, and a new version", status(P::Reverted, None), false, known("t3", "i"), 1, (P::Pending, None, None)),
        ("failure", status(P::Failure, Some(S::Restore)), false, t2(), 1, (P::Failure, Some(S::Restore), None)),
        ("failure, and a new version", status(P::Failure, Some(S::Restore)), false, known("t3", "i"), 1, (P::Pending, Some(S::Kept), None)),
    ];
    for (what, status, cancel, wanted, second, expect) in rows {
        let mut atom = atom(status);
        atom.spec.cancel = cancel;
        assert_eq!(decided(&atom, &wanted, second), expect, "{what}");
    }
}

#[test]
fn an_atom_is_held_until_its_objects_are_gone() {
    let mut one = atom(AtomStatus::default());
    one.metadata.finalizers = None;
    assert_eq!(decided(&one, &known("t2", "i"), 1).2, Some(Action::AddFinalizer));
    let mut going = atom(status(AtomPhase::Updating, Some(JournalStage::Apply)));
    going.metadata.deletion_timestamp = Some(Time(at(1)));
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, Some(Action::Delete));
    // What hinders it is told once, and not taken back before the next attempt.
    let refused = || Outcome::Refused(Cause::new(reason::IMMUTABLE, "You may not."));
    going.status = Some(settle(&going, refused(), at(1)));
    let told = going.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    assert_eq!(told.map(|told| told.message.as_str()), Some("Its objects are being deleted. You may not."));
    let wanted = known("t2", "i");
    let seen = Observed { atom: &going, wanted: &wanted };
    assert_eq!(Some(decide(&seen, at(2)).status), going.status);
    assert_eq!(Some(settle(&going, refused(), at(2))), going.status);
    going.status = Some(settle(&going, Outcome::Deleted { left: Vec::new() }, at(1)));
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, Some(Action::RemoveFinalizer));
    going.metadata.finalizers = None;
    assert_eq!(decided(&going, &known("t2", "i"), 1).2, None);
}

#[test]
fn every_outcome() {
    use {AtomPhase as P, JournalStage as S};
    let prepared = || Outcome::Prepared { secret_name: "k".to_owned(), objects: vec![object("b", false)] };
    let refused = || Outcome::Refused(Cause::new(reason::IMMUTABLE, "No."));
    let seen = |ready| Outcome::Seen { objects: vec![object("a", ready)], failed: None };
    let lost = || Outcome::Seen { objects: vec![object("a", false)], failed: Some("It crashed.".to_owned()) };
    let restored = |ready| Outcome::Restored { objects: vec![object("a", ready)] };
    let rows: Vec<(AtomStatus, Outcome, P, Option<S>)> = vec![
        (status(P::Updating, None), prepared(), P::Updating, Some(S::Apply)),
        (status(P::Updating, Some(S::Kept)), prepared(), P::Updating, Some(S::Apply)),
        (status(P::Updating, None), refused(), P::Error, None),
        (status(P::Updating, Some(S::Apply)), refused(), P::Error, Some(S::Apply)),
        (status(P::Updating, Some(S::Apply)), Outcome::Later("Busy.".to_owned()), P::Updating, Some(S::Apply)),
        (status(P::Updating, Some(S::Apply)), Outcome::Written(vec![object("a", false)]), P::Updating, Some(S::Wait)),
        (status(P::Updating, Some(S::Wait)), seen(false), P::Updating, Some(S::Wait)),
        (status(P::Updating, Some(S::Wait)), seen(true), P::Updating, Some(S::Prune)),
        (status(P::Updating, Some(S::Wait)), lost(), P::Error, Some(S::Wait)),
        (status(P::Updating, Some(S::Prune)), refused(), P::Error, Some(S::Prune)),
        (status(P::Updating, Some(S::Prune)), Outcome::Pruned, P::Running, Some(S::Done)),
        (status(P::Rollback, Some(S::Restore)), restored(false), P::Rollback, Some(S::Restore)),
        (status(P::Rollback, Some(S::Restore)), refused(), P::Rollback, Some(S::Restore)),
        (status(P::Rollback, Some(S::Restore)), restored(true), P::Reverted, Some(S::Done)),
        (status(P::Reverted, Some(S::Done)), Outcome::Forgotten, P::Reverted, None),
    ];
    for (before, outcome, phase, stage) in rows {
        let after = settle(&atom(before.clone()), outcome.clone(), at(1));
        assert_eq!((after.phase, after.journal.map(|journal| journal.stage)), (phase, stage), "{before:?} {outcome:?}");
    }
}

#[test]
fn inputs_that_are_as_they_were_when_all_was_good_are_no_news() {
    let mut back = status(AtomPhase::Reverted, None);
    back.tried = Some(revision("t2", "new"));
    back.good = Some(revision("t1", "old"));
    let rows = [("new", AtomPhase::Reverted), ("old", AtomPhase::Reverted), ("newer", AtomPhase::Pending)];
    for (inputs, expect) in rows {
        assert_eq!(decided(&atom(back.clone()), &known("t2", inputs), 1).0, expect, "{inputs}");
    }
    back.phase = AtomPhase::Running;
    assert_eq!(decided(&atom(back), &known("t2", "old"), 1).0, AtomPhase::Pending);
}

#[test]
fn the_end_says_what_happened() {
    let mut failed = status(AtomPhase::Rollback, Some(JournalStage::Restore));
    failed.failure =
        Some(AtomFailure { phase: AtomPhase::Error, reason: String::new(), message: "It crashed.".to_owned() });
    let said = |status: &AtomStatus| {
        conditions::find(&status.conditions, condition::READY).map(|ready| ready.message.clone()).unwrap_or_default()
    };
    let back = settle(&atom(failed.clone()), Outcome::Restored { objects: Vec::new() }, at(1));
    assert_eq!(said(&back), "Version `v1` is there again instead of `v2`. It crashed.");
    let late = decide(&Observed { atom: &atom(failed), wanted: &known("t2", "i") }, at(300)).status;
    assert_eq!(
        said(&late),
        "Version `v2` could not be undone within 5m; what is not back: `ConfigMap a`: Not yet. It was undone because: It crashed."
    );
}

/// Something that happens to an Atom.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its version is another.
    Version(u8),
    /// Its inputs are others.
    Inputs(u8),
    /// Something that it needs is there, or not.
    Known(bool),
    /// `spec.cancel`.
    Cancel(bool),
    /// Time passes.
    Seconds(u16),
    /// What is to be done is done, and this comes of it.
    Done(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u8..3).prop_map(Event::Version),
        (0u8..2).prop_map(Event::Inputs),
        any::<bool>().prop_map(Event::Known),
        any::<bool>().prop_map(Event::Cancel),
        (0u16..400).prop_map(Event::Seconds),
        any::<u8>().prop_map(Event::Done),
        any::<u8>().prop_map(Event::Done),
        any::<u8>().prop_map(Event::Done),
    ]
}

/// An Atom, what it depends on, and the time.
struct Play {
    atom: Atom,
    inputs: u8,
    known: bool,
    now: i64,
    /// The versions that were proven, in their order.
    proven: Vec<String>,
}

impl Play {
    fn wanted(&self) -> Wanted {
        if self.known { known(&self.atom.spec.version, &self.inputs.to_string()) } else { missing() }
    }

    fn decide(&self) -> Decision {
        decide(&Observed { atom: &self.atom, wanted: &self.wanted() }, at(self.now))
    }

    /// Writes the status that was decided, or does what is to be done; whether there was anything.
    fn step(&mut self, luck: u8) -> bool {
        let decision = self.decide();
        let before = self.atom.status.clone().unwrap_or_default();
        if decision.status != before {
            self.atom.status = Some(decision.status);
            return true;
        }
        let Some(action) = decision.action else { return false };
        // Whatever is under way is looked at again at its deadline at the latest.
        let rests = before.phase.is_at_rest();
        assert!(rests || decision.requeue_at.is_some_and(|due| due > at(self.now)), "{before:?}");
        let outcome = self.outcome(action, luck, &before);
        if matches!(outcome, Outcome::Pruned) {
            self.proven.push(before.target_version.clone().unwrap_or_default());
        }
        self.atom.status = Some(settle(&self.atom, outcome, at(self.now)));
        true
    }

    fn outcome(&self, action: Action, luck: u8, before: &AtomStatus) -> Outcome {
        let objects = |ready| vec![object("a", ready)];
        let good = luck.is_multiple_of(3);
        match (action, luck % 3) {
            (Action::Forget, _) => Outcome::Forgotten,
            (_, 1) if luck > 128 => Outcome::Later("Busy.".to_owned()),
            (Action::Restore, _) => Outcome::Restored { objects: objects(good) },
            (Action::Look, 2) => Outcome::Seen { objects: objects(false), failed: Some("It crashed.".to_owned()) },
            (Action::Look, _) => Outcome::Seen { objects: objects(good), failed: None },
            (_, 2) => Outcome::Refused(Cause::new(reason::TEMPLATE_INVALID, "No.")),
            (Action::Prepare, _) => {
                Outcome::Prepared { secret_name: before.attempts.to_string(), objects: objects(false) }
            }
            (Action::Write, _) => {
                assert!(before.journal.is_some(), "nothing is written without a journal");
                Outcome::Written(objects(false))
            }
            (Action::Prune, _) => Outcome::Pruned,
            (action, _) => unreachable!("{action:?}"),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Version(number) => {
                let version = format!("v{number}");
                if self.atom.spec.version != version {
                    self.atom.spec.version = version;
                    self.atom.metadata.generation = self.atom.metadata.generation.map(|number| number + 1);
                }
            }
            Event::Inputs(number) => self.inputs = number,
            Event::Known(known) => self.known = known,
            Event::Cancel(cancel) => self.atom.spec.cancel = cancel,
            Event::Seconds(seconds) => self.now += i64::from(seconds),
            Event::Done(luck) => drop(self.step(luck)),
        }
    }
}

proptest! {
    #[test]
    fn from_any_state_with_any_events_it_ends_or_waits_for_a_named_reason(
        events in prop::collection::vec(event(), 0..60),
        luck in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut atom = atom(AtomStatus::default());
        atom.spec.version = "v0".to_owned();
        let mut play = Play { atom, inputs: 0, known: true, now: 0, proven: Vec::new() };
        for event in events {
            play.take(event);
            let status = play.atom.status.clone().unwrap_or_default();
            // What a rollback goes back to is always what was last proven.
            prop_assert_eq!(status.last_good_version.as_ref(), play.proven.last());
        }
        // From here on nothing new happens: time passes, and what is to be done is done, well or not.
        for luck in luck.iter().cycle().take(4000) {
            if !play.step(*luck) {
                break;
            }
            play.now += 1;
        }
        let end = play.decide();
        prop_assert!(end.action.is_none(), "{:?}", end.status);
        let ready = conditions::find(&end.status.conditions, condition::READY);
        prop_assert!(ready.is_some_and(|ready| !ready.reason.is_empty() && !ready.message.is_empty()));
        let waits = end.status.phase == AtomPhase::Pending && (!play.known || play.atom.spec.cancel);
        prop_assert!(end.status.phase.is_at_rest() || waits, "{:?}", end.status);
        // Half of an update does not wait for ever.
        prop_assert!(!waits || end.status.journal.is_none() || end.requeue_at.is_some());
        prop_assert!(end.status.journal.is_none() || end.status.phase != AtomPhase::Running);
    }
}
