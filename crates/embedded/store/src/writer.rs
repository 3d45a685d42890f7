//! The one thread that writes.
//!
//! It drains the queue into one transaction, makes it durable with one fsync, shows the result, then answers.
//! While an fsync is under way the next writes gather in the queue, so the busier the store is, the more
//! writes share a commit. Sweeping up compacted history rides along in small pieces.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

use redb::{Database, Durability};
use tokio::sync::oneshot;

use super::apply::{Tables, apply};
use super::error::Error;
use super::file::Opened;
use super::journal::Journal;
use super::live::Concerned;
use super::record;
use super::retention::Retention;
use super::shared::Shared;
use super::snapshot::Snapshot;
use super::{Event, Write};

/// How many writes, and bytes of them, share one commit at most.
const BATCH_WRITES: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;
/// How many revisions of compacted history one commit sweeps up: about a millisecond's work, so that
/// writes are not held up.
const SWEEP_REVISIONS: usize = 256;

pub(super) enum Command {
    Write { write: Write, answer: oneshot::Sender<Result<u64, Error>> },
    Compact { before: u64, answer: oneshot::Sender<Result<(), Error>> },
    Close { answer: oneshot::Sender<()> },
}

pub(super) struct Writer {
    db: Database,
    /// What makes commits durable before the tables are; a store in memory has none.
    journal: Option<Journal>,
    queue: Receiver<Command>,
    shared: Arc<Shared>,
    retention: Retention,
    revision: u64,
    compacted: u64,
    /// Whether history up to `compacted` is still in the file.
    sweeping: bool,
    /// Set by the first commit that fails, for good.
    failed: Option<Error>,
}

/// The commands that were taken from the queue together.
#[derive(Default)]
struct Batch {
    writes: Vec<Write>,
    answers: Vec<oneshot::Sender<Result<u64, Error>>>,
    bytes: usize,
    compactions: Vec<u64>,
    compaction_answers: Vec<oneshot::Sender<Result<(), Error>>>,
    close: Option<Vec<oneshot::Sender<()>>>,
}

/// What became of each write of a batch that is shown, and who is to hear of it.
type Shown = (Vec<Result<u64, Error>>, Concerned);

/// What a transaction did.
struct Done {
    outcomes: Vec<Result<u64, Error>>,
    events: Vec<Arc<Event>>,
    compacted: u64,
    sweeping: bool,
    /// There was something to commit.
    changed: bool,
}

impl Writer {
    pub fn new(opened: Opened, queue: Receiver<Command>, shared: Arc<Shared>, retention: Retention) -> Writer {
        let Opened { db, journal, revision, compacted } = opened;
        // Sweeping may have been cut short when the file was last in use; the first piece finds out.
        Writer { db, journal, queue, shared, retention, revision, compacted, sweeping: true, failed: None }
    }

    /// Runs until the store is closed or nobody holds it any more.
    pub fn run(mut self) {
        let ended = EndOnDrop(self.shared.clone());
        let mut waiting = loop {
            let mut batch = self.gather();
            let close = batch.close.take();
            self.carry_out(batch);
            if let Some(waiting) = close {
                break waiting;
            }
        };
        // Reads end before the database goes, and the file is free before anybody hears of it.
        drop(ended);
        let Writer { db, journal, failed, .. } = self;
        // What a commit that failed has left is not made durable by the way.
        if journal.is_some() && failed.is_none() {
            let durable = db.begin_write().map_err(TransactError::from).and_then(|all| Ok(all.commit()?));
            if let Err(error) = durable {
                tracing::warn!(%error, "the store's tables are behind its journal, which the next start makes good");
            }
        }
        drop((db, journal));
        for answer in waiting.drain(..) {
            // Who asked may have gone away meanwhile; that changes nothing.
            let _ = answer.send(());
        }
    }

    /// Waits for something to do and takes as much of it as fits into one commit.
    fn gather(&mut self) -> Batch {
        let mut batch = Batch::default();
        match self.wait() {
            Ok(Some(command)) => batch.add(command),
            Ok(None) => {}
            Err(Disconnected) => batch.close = Some(Vec::new()),
        }
        while !batch.full() {
            match self.queue.try_recv() {
                Ok(command) => batch.add(command),
                Err(_) => break,
            }
        }
        batch
    }

    /// The next command, or `None` when there is housekeeping to do first.
    fn wait(&self) -> Result<Option<Command>, Disconnected> {
        if self.sweeping && self.failed.is_none() {
            return match self.queue.try_recv() {
                Ok(command) => Ok(Some(command)),
                Err(TryRecvError::Empty) => Ok(None),
                Err(TryRecvError::Disconnected) => Err(Disconnected),
            };
        }
        match self.retention.wake().filter(|_| self.failed.is_none()) {
            None => self.queue.recv().map(Some).map_err(|_| Disconnected),
            Some(wake) => match self.queue.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(command) => Ok(Some(command)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(Disconnected),
            },
        }
    }

    fn carry_out(&mut self, mut batch: Batch) {
        // What is due was committed long ago; what was asked for may be a write of this very batch.
        let due = self.retention.due(Instant::now());
        let asked = batch.compactions.len();
        batch.compactions.extend(due);
        let result = match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.commit(&batch.writes, &batch.compactions),
        };
        let (outcomes, concerned) = match result {
            Ok(shown) => shown,
            Err(failed) => {
                self.failed = Some(failed.clone());
                (vec![Err(failed); batch.answers.len()], Concerned::default())
            }
        };
        for (answer, outcome) in batch.answers.into_iter().zip(outcomes) {
            let _ = answer.send(outcome);
        }
        let compactions = batch.compactions.into_iter().take(asked);
        for (answer, asked) in batch.compaction_answers.into_iter().zip(compactions) {
            let newest = self.revision;
            let outcome = match &self.failed {
                Some(failed) => Err(failed.clone()),
                None if asked > newest => Err(Error::Future { asked, newest }),
                None => Ok(()),
            };
            let _ = answer.send(outcome);
        }
        // Whoever writes waits for the answer; there may be many watchers, and they would all be served before it.
        concerned.wake();
    }

    /// Carries out a batch durably and shows it. After an error nothing of it was shown.
    fn commit(&mut self, writes: &[Write], compactions: &[u64]) -> Result<Shown, Error> {
        if writes.is_empty() && compactions.is_empty() && !self.sweeping {
            return Ok(Shown::default());
        }
        let room = self.journal.as_ref().is_some_and(|journal| journal.has_room(writes));
        let durability = if room && compactions.is_empty() { Durability::None } else { Durability::Immediate };
        let done = self.transact(writes, compactions, durability).map_err(failed)?;
        self.sweeping = done.sweeping;
        if !done.changed {
            return Ok((done.outcomes, Concerned::default()));
        }
        let first = self.revision + 1;
        self.revision += done.events.len() as u64;
        if let Some(journal) = &mut self.journal {
            match durability {
                Durability::None if done.events.is_empty() => {}
                Durability::None => {
                    let taken = writes.iter().zip(&done.outcomes).filter(|(_, outcome)| outcome.is_ok());
                    journal.append(first, taken.map(|(write, _)| write)).map_err(failed)?;
                }
                _ => journal.restart(self.revision),
            }
        }
        self.compacted = done.compacted;
        let bytes: usize = done.events.iter().map(|event| event.size()).sum();
        self.retention.wrote(self.revision, bytes as u64);
        let snapshot = Snapshot::take(&self.db, self.revision, self.compacted).map_err(failed)?;
        Ok((done.outcomes, self.shared.publish(snapshot, done.events)))
    }

    /// One transaction: durable by itself, which also makes those before it durable, or not yet.
    fn transact(&self, writes: &[Write], compactions: &[u64], durability: Durability) -> Result<Done, TransactError> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(durability)?;
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut events = Vec::new();
        let (compacted, swept);
        {
            let mut tables = Tables::open(&transaction)?;
            for write in writes {
                let revision = self.revision + events.len() as u64 + 1;
                outcomes.push(match apply(&mut tables, write, revision)? {
                    Ok(event) => {
                        events.push(Arc::new(event));
                        Ok(revision)
                    }
                    Err(refused) => Err(refused),
                });
            }
            let newest = self.revision + events.len() as u64;
            let targets = compactions.iter().copied().filter(|to| *to <= newest);
            compacted = targets.fold(self.compacted, u64::max);
            if compacted > self.compacted {
                let mut meta = transaction.open_table(record::META)?;
                meta.insert(record::META_COMPACTED, compacted)?;
            }
            swept = tables.sweep(compacted, SWEEP_REVISIONS)?;
        }
        let changed = !events.is_empty() || compacted > self.compacted || swept > 0;
        if changed {
            transaction.commit()?;
        } else {
            // Refused writes cost no fsync.
            transaction.abort()?;
        }
        Ok(Done { outcomes, events, compacted, sweeping: swept == SWEEP_REVISIONS, changed })
    }
}

/// Why a transaction could not be carried out; either way, the store stops writing.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransactError {
    #[error(transparent)]
    Begin(#[from] redb::TransactionError),
    #[error(transparent)]
    Table(#[from] redb::TableError),
    #[error(transparent)]
    Storage(#[from] redb::StorageError),
    #[error(transparent)]
    Durability(#[from] redb::SetDurabilityError),
    #[error(transparent)]
    Commit(#[from] redb::CommitError),
    #[error(transparent)]
    Damaged(#[from] Error),
}

/// What everybody is told once a commit has failed.
fn failed(error: impl std::fmt::Display) -> Error {
    let reason: Arc<str> = error.to_string().into();
    tracing::error!(%reason, "the store's file could not be written; no more writes are taken");
    Error::Failed { reason }
}

/// Nobody holds the store any more.
struct Disconnected;

impl Batch {
    fn add(&mut self, command: Command) {
        match command {
            Command::Write { write, answer } => {
                self.bytes += write.size();
                self.writes.push(write);
                self.answers.push(answer);
            }
            Command::Compact { before, answer } => {
                self.compactions.push(before);
                self.compaction_answers.push(answer);
            }
            Command::Close { answer } => self.close.get_or_insert_default().push(answer),
        }
    }

    fn full(&self) -> bool {
        self.writes.len() >= BATCH_WRITES || self.bytes >= BATCH_BYTES
    }
}

/// Ends reads and watches when the writer ends, also when it panics.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(match std::thread::panicking() {
            false => Error::Closed,
            true => failed("the thread that writes has panicked"),
        });
    }
}
