//! Watches one Run in the background, and reconnects when the connection is lost.

use std::sync::Arc;

use futures::StreamExt;
use knoll_api::Run;
use knoll_api::run::{RunPhase, RunStatus};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The latest state of a watched Run.
pub struct Watched {
    picture: watch::Receiver<Observed>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug)]
pub enum Observed {
    Run(Arc<Run>),
    /// The Run was deleted before it had finished.
    Deleted,
}

fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

impl Watched {
    /// Starts to watch, beginning with `run`.
    pub fn start(api: Api<Run>, run: Run) -> Self {
        let name = run.metadata.name.clone().unwrap_or_default();
        let uid = run.metadata.uid.clone();
        let (sender, picture) = watch::channel(Observed::Run(Arc::new(run)));
        let task = tokio::spawn(async move {
            let mut stream = watch_object(api, &name).default_backoff().boxed();
            while let Some(event) = stream.next().await {
                let seen = match event {
                    Ok(Some(run)) if run.metadata.uid == uid => Observed::Run(Arc::new(run)),
                    // A Run of the same name with another UID is a new one.
                    Ok(_) => Observed::Deleted,
                    Err(error) => {
                        tracing::debug!(%error, "the run cannot be watched");
                        continue;
                    }
                };
                // The final status is kept, even if the Run was deleted right after it.
                let over = matches!(&*sender.borrow(), Observed::Run(run) if is_over(run));
                if over && matches!(seen, Observed::Deleted) || sender.send(seen).is_err() {
                    return;
                }
            }
        });
        Watched { picture, _task: AbortOnDropHandle::new(task) }
    }

    pub fn now(&mut self) -> Observed {
        self.picture.borrow_and_update().clone()
    }

    /// Resolves when there is a new observation.
    pub async fn changed(&mut self) {
        if self.picture.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the observation satisfies `condition`.
    pub async fn until(&mut self, condition: impl Fn(&Observed) -> bool) -> Observed {
        loop {
            let now = self.now();
            if condition(&now) {
                return now;
            }
            self.changed().await;
        }
    }

    /// Another receiver for the same observations.
    pub fn view(&self) -> watch::Receiver<Observed> {
        self.picture.clone()
    }
}

impl Observed {
    /// The status, or an empty one.
    pub fn status(&self) -> RunStatus {
        match self {
            Observed::Run(run) => run.status.clone().unwrap_or_default(),
            Observed::Deleted => RunStatus::default(),
        }
    }

    /// Whether the pod of this name has nothing more to do.
    pub fn is_past(&self, pod: &str) -> bool {
        match self {
            Observed::Deleted => true,
            Observed::Run(_) => {
                let status = self.status();
                let other = status.pod_name.as_deref() != Some(pod);
                other || status.phase.is_finished() || status.phase == RunPhase::Review
            }
        }
    }
}
