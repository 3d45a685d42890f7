//! The evaluation of the objects' own expressions, beside the tasks of the controllers.
//!
//! *Guarantees.* An expression holds up no other Atom: it runs on a thread of its own, within a number of steps and within a
//! time. Few such threads exist at a time, and Atoms get them in the order in which they ask.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use knoll_core::readiness::{self, Budget, Health};
use serde_json::Value;
use tokio::sync::Semaphore;

/// How many Atoms are evaluated at a time: as many as leave processors for the controllers of a small node.
const THREADS: usize = 2;

/// The steps of all expressions of an Atom in one check. Each expression has a lower limit of its own.
const STEPS: u64 = 10_000_000;

/// The time of one check. The steps take a fraction of it; it counts only if a step takes longer than any should.
const PATIENCE: Duration = Duration::from_secs(10);

/// The threads that evaluate expressions.
#[derive(Debug)]
pub struct Evaluations {
    threads: Arc<Semaphore>,
}

impl Default for Evaluations {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(THREADS)) }
    }
}

impl Evaluations {
    /// The health of objects of one Atom, in their order.
    pub async fn health(&self, objects: Vec<Value>) -> Vec<Health> {
        let stop = Arc::new(AtomicBool::new(false));
        let budget = Budget::new(STEPS, stop.clone());
        if !objects.iter().any(readiness::has_expression) {
            return all(&objects, budget);
        }
        let count = objects.len();
        // The semaphore is never closed, so there is always a permit.
        let permit = self.threads.clone().acquire_owned().await.ok();
        let mut work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            all(&objects, budget)
        });
        let done = match tokio::time::timeout(PATIENCE, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                stop.store(true, Ordering::Relaxed);
                work.await
            }
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(%error, "the readiness of an Atom's objects could not be evaluated");
            vec![Health::Waiting("Its readiness cannot be evaluated.".to_owned()); count]
        })
    }
}

fn all(objects: &[Value], mut budget: Budget) -> Vec<Health> {
    objects.iter().map(|object| readiness::health(object, &mut budget)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_endless_expression_leaves_the_task_to_others_and_ends() {
        let opened: String = (0..9).map(|level| format!("[0,1,2,3,4,5,6,7,8,9].all(v{level},")).collect();
        let endless = format!("{opened}true{}", ")".repeat(9));
        let object = |expression: &str| json!({"metadata": {"annotations": {"knoll.dev/ready-when": expression}}});
        let evaluations = Evaluations::default();
        let slow = evaluations.health(vec![object(&endless), object("true")]);
        let plain = evaluations.health(vec![json!({"metadata": {}})]);
        // On the one thread of this test, the second is done before the first is.
        let mut slow = std::pin::pin!(slow);
        tokio::select! {
            biased;
            _ = &mut slow => panic!("it was evaluated on the task"),
            plain = plain => assert_eq!(plain, [Health::Ready]),
        }
        let found = slow.await;
        assert!(matches!(&found[0], Health::Failed(why) if why.contains("too expensive")), "{found:?}");
        assert_eq!(found[1], Health::Ready);
    }
}
