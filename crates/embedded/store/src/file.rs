//! Opening the store's files: new ones, those in order, or those that a crash left behind.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadableTable, StorageBackend};

use super::apply::{Tables, apply};
use super::error::Error;
use super::journal::{Journal, Record};
use super::options::Options;
use super::record::{self, FORMAT, META, META_COMPACTED, META_FORMAT};
use super::writer::TransactError;

/// The first bytes of every redb file; they are written last when one is made.
const MAGIC_BYTES: usize = 9;

/// An open database that is known to hold a store.
pub(super) struct Opened {
    pub db: Database,
    pub journal: Option<Journal>,
    pub revision: u64,
    pub compacted: u64,
}

/// Opens the file at `path`, or makes it, readable by its owner only: it holds Secrets.
pub(super) fn open(path: &Path, options: &Options) -> Result<Opened, Error> {
    let failed = |error: redb::Error| match error {
        redb::Error::DatabaseAlreadyOpen => Error::Locked,
        other => Error::Open { path: path.to_owned(), source: Arc::new(other) },
    };
    let file = open_or_create(path).map_err(|error| failed(error.into()))?;
    let db = builder(options).create_file(file).map_err(|error| failed(error.into()))?;
    // Whoever has the database has the journal.
    let path = path.with_extension("journal");
    let journal = create(&path).map_err(|error| failed(error.into()))?;
    let journal = FileBackend::new(journal).map_err(|error| failed(error.into()))?;
    catch_up(prepare(db, failed)?, Box::new(journal), &path, options)
}

/// Opens a store on storages of the caller's.
pub(super) fn open_backend(
    tables: impl StorageBackend,
    journal: Option<Box<dyn StorageBackend>>,
    options: &Options,
) -> Result<Opened, Error> {
    let failed = |error: redb::Error| Error::Read(Arc::new(error));
    let db = builder(options).create_with_backend(tables).map_err(|error: DatabaseError| failed(error.into()))?;
    let opened = prepare(db, failed)?;
    match journal {
        None => Ok(opened),
        Some(journal) => catch_up(opened, journal, Path::new("journal"), options),
    }
}

/// Does again what the journal has and the tables do not.
fn catch_up(opened: Opened, journal: Box<dyn StorageBackend>, path: &Path, options: &Options) -> Result<Opened, Error> {
    let (mut journal, records) = Journal::open(journal, path, options.journal_bytes, opened.revision)?;
    let writes: usize = records.iter().map(|record| record.writes.len()).sum();
    if writes > 0 {
        tracing::info!(writes, "the store was not closed; taking over what its journal has");
        repeat(&opened.db, &records).map_err(|error| Error::Damaged(format!("its journal does not fit: {error}")))?;
    }
    let revision = opened.revision + writes as u64;
    journal.restart(revision);
    Ok(Opened { journal: Some(journal), revision, ..opened })
}

fn repeat(db: &Database, records: &[Record]) -> Result<(), TransactError> {
    let transaction = db.begin_write()?;
    {
        let mut tables = Tables::open(&transaction)?;
        for record in records {
            for (write, revision) in record.writes.iter().zip(record.first..) {
                apply(&mut tables, write, revision)??;
            }
        }
    }
    Ok(transaction.commit()?)
}

fn builder(options: &Options) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(options.cache_bytes);
    builder.set_repair_callback(|session| {
        if session.progress() == 0.0 {
            tracing::info!("the store was not closed; checking its file");
        }
    });
    builder
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut file = create(path)?;
    if file.metadata()?.len() > 0 && was_never_finished(&mut file)? && file.try_lock().is_ok() {
        // A crash while the file was being made leaves one that the database would refuse. Nothing was
        // ever stored in it. The lock is the one that the database takes, so nobody is making it now;
        // what was read before the lock is read again under it.
        if was_never_finished(&mut file)? {
            file.set_len(0)?;
        }
        file.unlock()?;
    }
    Ok(file)
}

fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.len() == 0 {
        // The name itself must outlive a power cut, or every answer given later would be void.
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(file)
}

fn was_never_finished(file: &mut File) -> io::Result<bool> {
    use std::io::{Seek, SeekFrom};
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    file.seek(SeekFrom::Start(0))?;
    file.take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    Ok(magic.iter().all(|byte| *byte == 0))
}

/// Makes the tables of a new database, or checks those of an old one.
fn prepare(db: Database, failed: impl Fn(redb::Error) -> Error) -> Result<Opened, Error> {
    let transaction = db.begin_write().map_err(|error| failed(error.into()))?;
    let found = meta(&transaction, META_FORMAT).map_err(&failed)?;
    if let Some(found) = found
        && found != FORMAT
    {
        transaction.abort().map_err(|error| failed(error.into()))?;
        return Err(Error::Format { found, known: FORMAT });
    }
    if found.is_none() {
        create_tables(&transaction).map_err(&failed)?;
    }
    let compacted = meta(&transaction, META_COMPACTED).map_err(&failed)?.unwrap_or(1);
    let revision = newest(&transaction).map_err(&failed)?.unwrap_or(compacted);
    if found.is_none() {
        transaction.commit().map_err(|error| failed(error.into()))?;
    } else {
        transaction.abort().map_err(|error| failed(error.into()))?;
    }
    Ok(Opened { db, journal: None, revision, compacted })
}

fn create_tables(transaction: &redb::WriteTransaction) -> Result<(), redb::Error> {
    transaction.open_table(record::CURRENT)?;
    transaction.open_table(record::PAST)?;
    transaction.open_table(record::LOG)?;
    let mut meta = transaction.open_table(META)?;
    meta.insert(META_FORMAT, FORMAT)?;
    // The first revision is 1, as etcd's is: an API server never shows 0, which clients take for "any".
    meta.insert(META_COMPACTED, 1)?;
    Ok(())
}

fn meta(transaction: &redb::WriteTransaction, name: &str) -> Result<Option<u64>, redb::Error> {
    Ok(transaction.open_table(META)?.get(name)?.map(|value| value.value()))
}

fn newest(transaction: &redb::WriteTransaction) -> Result<Option<u64>, redb::Error> {
    Ok(transaction.open_table(record::LOG)?.last()?.map(|(revision, _)| revision.value()))
}
