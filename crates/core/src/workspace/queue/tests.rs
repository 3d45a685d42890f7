#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn at(second: i64, version: u64) -> Arrival {
    Arrival::new(Timestamp::from_second(second).unwrap(), Some(version))
}

#[track_caller]
fn check_lane(command: &str, args: &[&str], expect: Lane) {
    let spec = RunSpec {
        operation: Operation::Command,
        command: Some(command.to_owned()),
        args: args.iter().map(ToString::to_string).collect(),
        ..RunSpec::default()
    };
    assert_eq!(lane(&spec), expect, "{command} {args:?}");
}

#[test]
fn what_may_change_the_state_queues() {
    for (operation, expect) in [
        (Operation::Plan, Lane::AtOnce),
        (Operation::Apply, Lane::Queue),
        (Operation::Destroy, Lane::Queue),
        (Operation::Refresh, Lane::Queue),
    ] {
        assert_eq!(lane(&RunSpec { operation, ..RunSpec::default() }), expect, "{operation:?}");
    }
    check_lane("show", &[], Lane::AtOnce);
    check_lane("output", &["-json"], Lane::AtOnce);
    check_lane("state", &["list"], Lane::AtOnce);
    check_lane("state list", &["-id=x"], Lane::AtOnce);
    check_lane("state", &["rm", "a.b"], Lane::Queue);
    check_lane("state mv", &["list", "show"], Lane::Queue);
    check_lane("state", &[], Lane::Queue);
    check_lane("import", &["a.b", "id"], Lane::Queue);
    check_lane("sh", &["-c", "terraform show"], Lane::Queue);
    check_lane("-chdir=x", &["show"], Lane::Queue);
    check_lane("init", &[], Lane::AtOnce);
    check_lane("init", &["-upgrade", "--input=false"], Lane::AtOnce);
    check_lane("init", &["-migrate-state"], Lane::Queue);
    check_lane("init", &["-backend-config=x"], Lane::Queue);
    check_lane("init", &["folder"], Lane::Queue);
    check_lane("", &[], Lane::Queue);
}

/// What can happen to a Workspace's runs, in any order.
#[derive(Clone, Debug)]
enum Happens {
    /// A run is created; the time has seconds, as Kubernetes has.
    Created {
        name: u8,
        second: i64,
        lane: bool,
    },
    /// A run reaches its end, if it has started or waits.
    Ended(u8),
    /// A run is deleted; its pod lives on for a while when it has one.
    Deleted {
        name: u8,
        pod_lives: bool,
    },
    /// The last pod of a deleted run ends.
    PodEnded(u8),
    Looks,
}

fn happens() -> impl Strategy<Value = Happens> {
    let name = 0u8..8;
    prop_oneof![
        3 => (name.clone(), 0i64..4, prop::bool::weighted(0.8))
            .prop_map(|(name, second, lane)| Happens::Created { name, second, lane }),
        2 => name.clone().prop_map(Happens::Ended),
        1 => (name.clone(), any::<bool>()).prop_map(|(name, pod_lives)| Happens::Deleted { name, pod_lives }),
        1 => name.prop_map(Happens::PodEnded),
        4 => Just(Happens::Looks),
    ]
}

/// A Workspace with its runs, and who has been at work when.
#[derive(Default)]
struct World {
    places: Places,
    runs: BTreeMap<String, QueueEntry>,
    lingering: BTreeSet<String>,
    /// Runs that were activated, by name; a name that is created anew may be activated again.
    activated: BTreeSet<String>,
    /// The `resourceVersion` of the last Run.
    version: u64,
}

impl World {
    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Created { name, second, lane } => {
                let name = format!("run-{name}");
                // The API refuses a second object of one name, and a pod that lives keeps its run's name from a new pod.
                if !self.runs.contains_key(&name) && !self.lingering.contains(&name) {
                    let lane = if lane { Lane::Queue } else { Lane::AtOnce };
                    self.activated.remove(&name);
                    if self.places.active.as_ref() == Some(&name) {
                        self.activated.insert(name.clone());
                    }
                    self.version += 1;
                    self.runs.insert(
                        name.clone(),
                        QueueEntry { name, arrival: at(second, self.version), lane, standing: QueueStanding::Waiting },
                    );
                }
            }
            Happens::Ended(name) => {
                if let Some(run) = self.runs.get_mut(&format!("run-{name}")) {
                    run.standing = QueueStanding::Ended;
                }
            }
            Happens::Deleted { name, pod_lives } => {
                let name = format!("run-{name}");
                let known = self.runs.remove(&name);
                let works = self.places.active.as_ref() == Some(&name);
                if pod_lives && works && known.is_some_and(|run| run.standing != QueueStanding::Ended) {
                    self.lingering.insert(name);
                }
            }
            Happens::PodEnded(name) => drop(self.lingering.remove(&format!("run-{name}"))),
            Happens::Looks => self.look(),
        }
    }

    fn look(&mut self) {
        let runs: Vec<QueueEntry> = self.runs.values().rev().cloned().collect();
        let view = View { active: self.places.active.as_deref(), runs: &runs, lingering: &self.lingering };
        let next = decide(&view);
        assert_eq!(next, decide(&View { active: next.active.as_deref(), ..view }), "deciding again changes nothing");

        let before = self.places.active.clone();
        if next.active != before {
            if let Some(before) = before {
                let free = |run: &QueueEntry| run.standing == QueueStanding::Ended || run.lane == Lane::AtOnce;
                let ended = self.runs.get(&before).is_none_or(free);
                assert!(ended && !self.lingering.contains(&before), "{before} was still at work");
            }
            if let Some(active) = &next.active {
                assert!(self.activated.insert(active.clone()), "{active} started twice");
                let first = self.waiting().into_iter().next();
                assert_eq!(first.as_ref(), Some(active), "out of order");
            }
        }
        self.places = next;
        let mut expect = self.waiting();
        expect.retain(|name| Some(name) != self.places.active.as_ref());
        assert_eq!(self.places.queue, expect, "a run was lost, or the order was not kept");
    }

    /// The runs that want the lock, in order.
    fn waiting(&self) -> Vec<String> {
        let mut waiting: Vec<&QueueEntry> = self
            .runs
            .values()
            .filter(|run| run.lane == Lane::Queue && run.standing == QueueStanding::Waiting)
            .collect();
        waiting.sort_by_key(|run| (run.arrival, run.name.clone()));
        waiting.into_iter().map(|run| run.name.clone()).collect()
    }
}

proptest! {
    #[test]
    fn one_is_active_none_is_lost_none_starts_twice(events in prop::collection::vec(happens(), 0..80)) {
        let mut world = World::default();
        for event in events {
            world.happen(event);
        }
        // When every run ends in its turn, all of them get one.
        world.lingering.clear();
        world.look();
        for _ in 0..20 {
            let Some(active) = world.places.active.clone() else { break };
            if let Some(run) = world.runs.get_mut(&active) {
                run.standing = QueueStanding::Ended;
            }
            world.look();
        }
        prop_assert_eq!(&world.places, &Places::default());
    }
}

#[test]
fn a_run_in_review_keeps_the_lock_and_a_held_command_does_not_queue() {
    let entry =
        |name: &str, standing| QueueEntry { name: name.to_owned(), arrival: at(1, 1), lane: Lane::Queue, standing };
    let runs = [entry("a", QueueStanding::Held), entry("b", QueueStanding::Held), entry("c", QueueStanding::Waiting)];
    let none = BTreeSet::new();
    let places = decide(&View { active: Some("a"), runs: &runs, lingering: &none });
    assert_eq!(places, Places { active: Some("a".to_owned()), queue: vec!["c".to_owned()] });
}

#[test]
fn a_run_that_is_being_deleted_is_not_started() {
    let run =
        QueueEntry { name: "a".to_owned(), arrival: at(1, 1), lane: Lane::Queue, standing: QueueStanding::Leaving };
    let none = BTreeSet::new();
    assert_eq!(decide(&View { active: None, runs: &[run], lingering: &none }), Places::default());
}
