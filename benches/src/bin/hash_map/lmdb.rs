//! LMDB with the records of the comparison. It syncs nothing: neither commits nor its file reach a disk.

use std::path::Path;

use farfield::{Error, Result};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};

use crate::records::{RECORDS, key, value};

/// The most bytes of its file, which is sparse.
const MAP_BYTES: usize = 4 << 30;

pub(crate) struct Lmdb {
    environment: Env,
    records: Database<'static, Bytes, Bytes>,
}

/// How a transaction's pages come into the file.
#[derive(Clone, Copy)]
pub(crate) enum Writing {
    /// By system calls, as by default.
    Calls,
    /// They are changed in the memory map: faster, and without protection from stray writes.
    Map,
}

fn failed(error: heed::Error) -> Error {
    Error::other(format!("LMDB: {error}"))
}

impl Lmdb {
    /// Opens the database in a folder, where transactions write in one of the ways. Processes that open the same folder share it.
    pub(crate) fn open(folder: &Path, writing: Writing) -> Result<Self> {
        let flags = match writing {
            Writing::Calls => EnvFlags::NO_SYNC,
            Writing::Map => EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
        };
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: without syncs a crash of the machine may corrupt the file, which is of this benchmark's run and is never opened again.
        unsafe { options.flags(flags) };
        // SAFETY: the folder was made for this run, on a local file system, and only LMDB accesses its files, with its locks. With `WRITE_MAP` stray
        // writes of the process could corrupt the mapping: this program's own `unsafe` code is this function.
        let environment = unsafe { options.open(folder) }.map_err(failed)?;
        let txn = environment.write_txn().map_err(failed)?;
        let records = environment
            .create_databases_and_commit(txn, |opener, txn| {
                opener.create_database(txn, None).map(CommitOrAbort::<_, ()>::Commit)
            })
            .map_err(failed)?
            .unwrap_commit();
        Ok(Self { environment, records })
    }

    /// Puts all records, in one transaction.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut txn = self.environment.write_txn().map_err(failed)?;
        for record in 0..RECORDS {
            self.records.put(&mut txn, &key(record), &value(record, 0)).map_err(failed)?;
        }
        txn.commit().map_err(failed)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let txn = self.environment.read_txn().map_err(failed)?;
        Ok(self.records.get(&txn, key).map_err(failed)?.map(<[u8]>::to_vec))
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut txn = self.environment.write_txn().map_err(failed)?;
        self.records.put(&mut txn, key, value).map_err(failed)?;
        txn.commit().map_err(failed)
    }
}
