//! Checking a log whole, and repairing it when a person asks for it.
//!
//! Owns the one rewrite that changes lines which stand: bad ones are replaced by a notice under
//! the same number, and the file as it was is kept. Must not know who asks.

use super::error::{DiskError, LoadError};
use super::foreign::{HOLE, Loaded};
use super::layout::whole_entry_in;
use super::lines::Forward;
use super::write::Refused;
use super::{Log, Store};
use glrs_protocol::SessionId;
use std::path::PathBuf;

/// What a check of a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Number of entries, bad ones included.
    pub entries: u64,
    /// Numbers of those that cannot be read.
    pub bad: Vec<u64>,
    /// What opening had to drop or mend; the next write to the session does it for good.
    pub notices: Vec<String>,
    /// Whether the file's last line is missing, torn, or does not say how many entries there are.
    pub last_line: bool,
}

impl Check {
    /// Whether the file would not be as it is if it were written now.
    pub fn is_damaged(&self) -> bool {
        self.last_line || !self.bad.is_empty() || !self.notices.is_empty()
    }
}

impl Store {
    /// Reads every entry of a session. Changes nothing.
    ///
    /// # Errors
    /// When the session cannot be loaded.
    pub fn check(&self, id: &SessionId) -> Result<Check, LoadError> {
        let log = self.load(id)?;
        Ok(self.sound(&log)?.0)
    }

    /// Writes a damaged log anew: a notice in the place of each bad line, without what is torn,
    /// with a last line that is right. Returns where the file as it was is kept;
    /// `None` when there was nothing to do. Only for a session that no one has loaded.
    ///
    /// # Errors
    /// When the session cannot be loaded or written.
    pub fn repair(&self, id: &SessionId) -> Result<Option<PathBuf>, LoadError> {
        let log = self.load(id)?;
        let (check, body) = self.sound(&log)?;
        // Without entries there is nothing that could take the damaged file's place.
        let Some(stamp) = log.stamp.filter(|_| check.is_damaged() && check.entries > 0) else { return Ok(None) };
        let loaded = Loaded {
            header: log.header().clone(),
            body,
            count: check.entries,
            updated_at: log.updated_at().to_owned(),
            context_tokens: log.context_tokens(),
            notices: Vec::new(),
            lossy: true,
        };
        let path = log.path().to_owned();
        let mut mended = Log::in_memory(self.0.clone(), path.clone(), loaded, Some(stamp));
        match mended.write() {
            Ok(()) => Ok(mended.kept.take()),
            Err(Refused::Disk(e)) => Err(e.into()),
            Err(Refused::Foreign) => {
                Err(LoadError::Disk { path, why: "another program changed it just now: try again".to_owned() })
            }
        }
    }

    /// The check, and the log's bytes with a notice in the place of each bad line.
    fn sound(&self, log: &Log) -> Result<(Check, Vec<u8>), DiskError> {
        let reader = log.reader();
        let mut check = Check { notices: log.salvage().to_vec(), ..Check::default() };
        let mut body = log.header().line.clone();
        let mut lines = Forward::new(&reader, reader.start, reader.end);
        let mut n = 0;
        while let Some(line) = lines.next().map_err(|e| DiskError::new(log.path(), &e))? {
            n += 1;
            if n > 1 {
                body.push(b',');
            }
            match whole_entry_in(line.bytes) {
                Some(entry) => body.extend_from_slice(entry),
                None => {
                    check.bad.push(n);
                    body.extend_from_slice(HOLE);
                }
            }
            body.push(b'\n');
        }
        check.entries = n;
        check.last_line = log.cut.is_some() || n != log.len();
        Ok((check, body))
    }
}
