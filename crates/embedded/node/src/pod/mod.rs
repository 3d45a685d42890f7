//! One pod: a task that brings its containers up, keeps them as its policy says, and takes them down.
//!
//! The task is a loop around two pure functions: [`lifecycle`] says what to do next, [`status`](super::status) what to
//! report. It waits for the pod's object to change, for its shims, and for points in time; it never polls.

mod instance;
mod message;
mod prepare;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::container::{self, Recovered, Shim};
use super::folder::PodFolder;
use super::lifecycle::{self, Next, Progress, Restart, Role};
use super::report::Reporter;
use super::status::{self, View};
use instance::{Instance, Stage};

/// A status that nobody waits for may be put off that long.
const UNHURRIED: Duration = Duration::from_millis(50);
/// How long a pod's containers have to end when it does not say.
const GRACE_SECONDS: i64 = 30;

/// What the API server says about the pod.
#[derive(Clone, Debug)]
pub enum Update {
    /// It is so now.
    Changed(Arc<Pod>),
    /// It does not exist any more.
    Gone,
}

/// What a pod's tasks tell it.
enum Event {
    /// The volumes are there.
    Volumes(BTreeMap<String, PathBuf>),
    /// The volumes cannot be made yet.
    VolumesWait(String),
    /// A container cannot be prepared yet.
    Wait(usize, u32, String),
    /// A container's shim says something.
    Container(usize, u32, container::Event),
}

/// Why and until when the pod ends.
struct Stop {
    /// Those that still run then are killed.
    kill_at: Instant,
    killed: bool,
}

/// The task of one pod.
pub struct Worker {
    context: Arc<Context>,
    pod: Arc<Pod>,
    folder: PodFolder,
    instances: Vec<Instance>,
    volumes: Option<BTreeMap<String, PathBuf>>,
    /// What stands in the way of the whole pod.
    trouble: Option<String>,
    start_time: Timestamp,
    stop: Option<Stop>,
    verdict: Option<(&'static str, &'static str)>,
    finished: bool,
    /// It was over before this node looked at it, so its status is as it was.
    history: bool,
    reported: PodStatus,
    reporter: Reporter,
    sender: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
    tasks: JoinSet<()>,
}

impl Worker {
    /// Runs the pod until its object is gone or the node stops; containers outlive the latter.
    pub async fn run(
        context: Arc<Context>,
        pod: Arc<Pod>,
        mut updates: mpsc::UnboundedReceiver<Update>,
        shutdown: CancellationToken,
    ) {
        let mut worker = Self::new(context, pod);
        if let Err(error) = worker.begin().await {
            // Nothing can be run without the folder; the pod says so for as long as it exists.
            worker.trouble = Some(format!("the pod's folder cannot be used: {error}"));
            tracing::error!(pod = worker.name(), %error, "a pod's folder cannot be used");
        }
        loop {
            let now = Instant::now();
            worker.step(now);
            let wake = worker.wake();
            tokio::select! {
                () = shutdown.cancelled() => return,
                update = updates.recv() => match update {
                    Some(Update::Changed(pod)) => worker.pod = pod,
                    Some(Update::Gone) => return worker.vanish().await,
                    None => return,
                },
                Some(event) = worker.events.recv() => worker.hear(event),
                Some(_) = worker.tasks.join_next() => {}
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
            }
            // What has come in the meantime is one step.
            while let Ok(event) = worker.events.try_recv() {
                worker.hear(event);
            }
        }
    }

    fn new(context: Arc<Context>, pod: Arc<Pod>) -> Self {
        let folder = PodFolder::new(&context.pods, pod.metadata.uid.as_deref().unwrap_or_default());
        let before = pod.status.clone().unwrap_or_default();
        let finished = matches!(before.phase.as_deref(), Some("Succeeded" | "Failed"));
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            reporter: Reporter::new(context.client.clone(), &pod),
            instances: Instance::all(&pod),
            volumes: None,
            trouble: None,
            start_time: before.start_time.as_ref().map_or_else(Timestamp::now, |time| time.0),
            stop: None,
            verdict: None,
            finished,
            history: finished,
            reported: before,
            sender,
            events,
            tasks: JoinSet::new(),
            context,
            pod,
            folder,
        }
    }

    /// Finds what runs already, and begins with what does not.
    async fn begin(&mut self) -> std::io::Result<()> {
        if self.finished {
            return Ok(());
        }
        let known = self.folder.root().exists();
        self.folder.create()?;
        for index in 0..self.instances.len() {
            self.recover(index, known).await?;
        }
        if self.pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for index in 0..self.instances.len() {
            // A shim that is up already saves its start when its container's turn comes.
            if matches!(self.instances[index].stage, Stage::New) && self.instances[index].shim.is_none() {
                self.spawn_shim(index);
            }
        }
        let prepare =
            prepare::volumes(self.context.clone(), self.pod.clone(), self.folder.clone(), self.sender.clone());
        self.tasks.spawn(prepare);
        Ok(())
    }

    async fn recover(&mut self, index: usize, known: bool) -> std::io::Result<()> {
        let name = self.instances[index].name().to_owned();
        let attempts = if known { self.folder.attempts(&name) } else { Vec::new() };
        let Some(attempt) = attempts.last().copied() else {
            // The pod says that it ran, but its folder is gone: it must not run a second time as if it had not.
            self.instances[index].recall(&self.reported);
            return Ok(());
        };
        let last = attempt.checked_sub(1).map(|before| self.folder.container(&name, before));
        let folder = self.folder.container(&name, attempt);
        let found = Shim::find(&folder, self.listener(index, attempt)).await?;
        let instance = &mut self.instances[index];
        instance.attempt = attempt;
        instance.last = last.and_then(|folder| message::ended(&folder, &instance.spec));
        match found {
            Recovered::New => {}
            Recovered::Ended => {
                instance.stage = message::ended(&folder, &instance.spec).map_or(Stage::New, Stage::Ended);
            }
            Recovered::Alive(shim) => {
                instance.stage = Stage::Preparing { trouble: None };
                instance.shim = Some(shim);
            }
        }
        Ok(())
    }

    /// Does what there is to do now, and reports.
    fn step(&mut self, now: Instant) {
        self.notice_end(now);
        let view: Vec<(Role, Progress)> =
            self.instances.iter().map(|instance| (instance.role, instance.progress())).collect();
        if !self.finished {
            let mut next = match self.stop {
                Some(_) => lifecycle::stop(&view),
                None => lifecycle::next(Restart::parse(self.spec().restart_policy.as_deref()), &view),
            };
            if self.volumes.is_none() {
                // What runs already, found again, goes on; nothing new begins without the volumes.
                next.start.clear();
                next.restart.clear();
            }
            self.carry_out(next, now);
        }
        if self.finished {
            // Shims that were not needed go away.
            self.instances.iter_mut().for_each(|instance| instance.shim = None);
            self.tasks.abort_all();
        }
        self.publish();
        if self.finished && self.pod.metadata.deletion_timestamp.is_some() {
            self.reporter.delete();
        }
    }

    fn carry_out(&mut self, next: Next, now: Instant) {
        for index in next.start {
            self.start(index);
        }
        for index in next.restart {
            if self.instances[index].restart_due(now) {
                self.instances[index].begin_again();
                self.forget_old(index);
                self.start(index);
            }
        }
        let killing =
            self.stop.as_mut().is_some_and(|stop| now >= stop.kill_at && !std::mem::replace(&mut stop.killed, true));
        for index in next.stop {
            let instance = &mut self.instances[index];
            if !std::mem::replace(&mut instance.told_to_end, true) {
                instance.signal(Signal::SIGTERM);
            }
        }
        if killing {
            self.instances.iter().for_each(|instance| instance.signal(Signal::SIGKILL));
        }
        self.finished = next.finished;
    }

    /// Takes in that the pod is being deleted, or has had its time.
    fn notice_end(&mut self, now: Instant) {
        let asked =
            self.pod.metadata.deletion_timestamp.is_some().then(|| self.pod.metadata.deletion_grace_period_seconds);
        let grace = self.spec().termination_grace_period_seconds.unwrap_or(GRACE_SECONDS);
        let seconds = match asked {
            Some(seconds) => seconds.unwrap_or(grace),
            None if self.time_left().is_some_and(|left| left.is_zero()) && !self.finished => {
                self.verdict =
                    Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"));
                grace
            }
            None => return,
        };
        let kill_at = now + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        match &mut self.stop {
            // A second deletion may shorten the time, never lengthen it.
            Some(stop) => stop.kill_at = stop.kill_at.min(kill_at),
            None => {
                self.tasks.abort_all();
                self.stop = Some(Stop { kill_at, killed: false });
            }
        }
    }

    /// How much longer the pod may be active.
    fn time_left(&self) -> Option<Duration> {
        let seconds = self.spec().active_deadline_seconds?;
        let deadline = self.start_time.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()?;
        Some(deadline.duration_since(Timestamp::now()).try_into().unwrap_or_default())
    }

    /// When to look again although nothing was heard.
    fn wake(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        match &self.stop {
            Some(stop) if stop.killed => None,
            Some(stop) => Some(stop.kill_at),
            None => {
                let deadline = self.time_left().map(|left| Instant::now() + left);
                self.instances.iter().filter_map(|instance| instance.restart_at).chain(deadline).min()
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Volumes(roots) => {
                self.volumes = Some(roots);
                self.trouble = None;
            }
            Event::VolumesWait(message) => self.trouble = Some(message),
            Event::Wait(index, attempt, message) => {
                if self.instances[index].attempt == attempt {
                    self.instances[index].wait(&message);
                }
            }
            Event::Container(index, attempt, event) => {
                let stopping = self.stop.is_some();
                let instance = &mut self.instances[index];
                if instance.attempt == attempt {
                    instance.hear(event, &self.folder.container(instance.name(), attempt), stopping);
                }
            }
        }
    }

    fn start(&mut self, index: usize) {
        if self.instances[index].shim.is_none() {
            self.spawn_shim(index);
        }
        let instance = &mut self.instances[index];
        let (Some(shim), Some(volumes)) = (&instance.shim, &self.volumes) else {
            return;
        };
        instance.stage = Stage::Preparing { trouble: None };
        self.tasks.spawn(prepare::container(
            self.context.clone(),
            self.pod.clone(),
            self.folder.clone(),
            volumes.clone(),
            prepare::Target { index, attempt: instance.attempt, spec: instance.spec.clone(), shim: shim.clone() },
            self.sender.clone(),
        ));
    }

    fn spawn_shim(&mut self, index: usize) {
        let attempt = self.instances[index].attempt;
        let folder = self.folder.container(self.instances[index].name(), attempt);
        match Shim::spawn(&self.context.shim, &folder, self.listener(index, attempt)) {
            Ok(shim) => self.instances[index].shim = Some(shim),
            Err(error) => {
                let why = format!(
                    "`{}` cannot be started as the container's shim: {error}",
                    self.context.shim.path.display()
                );
                self.instances[index].fail(why);
            }
        }
    }

    fn listener(&self, index: usize, attempt: u32) -> impl Fn(container::Event) + Send + Sync + 'static {
        let sender = self.sender.clone();
        move |event| {
            let _ = sender.send(Event::Container(index, attempt, event));
        }
    }

    /// Of a container's instances only this one and the one before it are kept.
    fn forget_old(&self, index: usize) {
        let instance = &self.instances[index];
        for attempt in
            self.folder.attempts(instance.name()).into_iter().filter(|attempt| attempt + 1 < instance.attempt)
        {
            let folder = self.folder.container(instance.name(), attempt);
            tokio::spawn(async move { tokio::fs::remove_dir_all(folder).await });
        }
    }

    fn publish(&mut self) {
        if self.history {
            return;
        }
        let containers = Instance::describe(&self.instances, self.trouble.as_deref(), self.name());
        let view = View {
            pod: &self.pod,
            containers: &containers,
            start_time: self.start_time,
            volumes: self.volumes.is_some(),
            finished: self.finished,
            verdict: self.verdict,
        };
        let status = status::status(view, &self.reported, Timestamp::now());
        let hurry =
            self.finished || self.stop.is_some() || self.trouble.is_some() || Instance::settled(&self.instances);
        self.reporter.publish(status.clone(), if hurry { Duration::ZERO } else { UNHURRIED });
        self.reported = status;
    }

    /// The pod's object is gone: so is everything of it.
    async fn vanish(mut self) {
        self.tasks.shutdown().await;
        self.instances.iter().for_each(|instance| instance.signal(Signal::SIGKILL));
        while self.instances.iter().any(|instance| matches!(instance.progress(), Progress::Active { .. })) {
            let Some(event) = self.events.recv().await else {
                break;
            };
            self.stop.get_or_insert(Stop { kill_at: Instant::now(), killed: true });
            self.hear(event);
        }
        self.instances.clear();
        if let Err(error) = self.folder.remove().await {
            tracing::warn!(pod = self.name(), %error, "a pod's folder could not be removed");
        }
    }

    fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
        self.pod.spec.as_ref().unwrap_or(&EMPTY)
    }

    fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }
}
