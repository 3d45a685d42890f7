//! Watches one Run from the background, through lost connections.

use std::sync::Arc;

use futures::StreamExt;
use knoll_api::Run;
use knoll_api::run::{RunPhase, RunStatus};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The newest picture of a Run.
pub struct Watched {
    picture: watch::Receiver<Seen>,
    _task: AbortOnDropHandle<()>,
}

/// What was seen last.
#[derive(Clone, Debug)]
pub enum Seen {
    /// The Run.
    Run(Arc<Run>),
    /// Somebody deleted it before it had ended.
    Gone,
}

fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

impl Watched {
    /// Watches from `run` on.
    pub fn start(api: Api<Run>, run: Run) -> Self {
        let name = run.metadata.name.clone().unwrap_or_default();
        let uid = run.metadata.uid.clone();
        let (tell, picture) = watch::channel(Seen::Run(Arc::new(run)));
        let task = tokio::spawn(async move {
            let mut stream = watch_object(api, &name).default_backoff().boxed();
            while let Some(event) = stream.next().await {
                let seen = match event {
                    Ok(Some(run)) if run.metadata.uid == uid => Seen::Run(Arc::new(run)),
                    // Another one of the same name is not ours.
                    Ok(_) => Seen::Gone,
                    Err(error) => {
                        tracing::debug!(%error, "the run cannot be watched");
                        continue;
                    }
                };
                // How it ended is told, even if it went right after that.
                let over = matches!(&*tell.borrow(), Seen::Run(run) if is_over(run));
                if over && matches!(seen, Seen::Gone) || tell.send(seen).is_err() {
                    return;
                }
            }
        });
        Watched { picture, _task: AbortOnDropHandle::new(task) }
    }

    /// What was seen last.
    pub fn now(&mut self) -> Seen {
        self.picture.borrow_and_update().clone()
    }

    /// Resolves when there is something new to see.
    pub async fn changed(&mut self) {
        if self.picture.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when `wanted` holds for what is seen.
    pub async fn until(&mut self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        loop {
            let now = self.now();
            if wanted(&now) {
                return now;
            }
            self.changed().await;
        }
    }

    /// Another view of the same Run.
    pub fn view(&self) -> watch::Receiver<Seen> {
        self.picture.clone()
    }
}

impl Seen {
    /// The status, empty when there is none.
    pub fn status(&self) -> RunStatus {
        match self {
            Seen::Run(run) => run.status.clone().unwrap_or_default(),
            Seen::Gone => RunStatus::default(),
        }
    }

    /// Whether the pod of this name has nothing more to do.
    pub fn is_past(&self, pod: &str) -> bool {
        match self {
            Seen::Gone => true,
            Seen::Run(_) => {
                let status = self.status();
                let other = status.pod_name.as_deref() != Some(pod);
                other || status.phase.is_finished() || status.phase == RunPhase::Review
            }
        }
    }
}
