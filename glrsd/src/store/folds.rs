//! Folds of large logs, kept so that a session need not be read whole to be shown.
//!
//! Owns the file beside the log and when it counts: only as long as the log is, to the last byte and
//! moment, what it was when the fold was kept. A cache: whatever is wrong with it, the log is read.
//! Must not know what is folded.

use super::disk::Stamp;
use super::error::DiskError;
use super::{Log, Store};
use std::fs;
use std::path::Path;

/// Logs below this are read again faster than a file is written.
const WORTH: u64 = 1024 * 1024;

impl Store {
    /// Keeps a fold of the whole log as it is in its file now. Not synced, and not worth an error for a
    /// person: without it the log is read.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_fold(&self, log: &Log, fold: &str) -> Result<(), DiskError> {
        let path = self.0.paths.fold(log.id());
        let Some(stamp) = log.stamp.filter(|s| s.size >= WORTH && log.is_durable()) else { return Ok(()) };
        let head = head(log, &stamp);
        let disk = &self.0.disk;
        disk.make_dir(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| disk.put_loosely(&path, format!("{head}\n{fold}\n").as_bytes()))
            .map_err(|e| DiskError::new(&path, &e))
    }

    /// The fold that was kept of exactly this log.
    pub fn kept_fold(&self, log: &Log) -> Option<String> {
        let stamp = log.stamp.filter(|s| s.size >= WORTH)?;
        let text = fs::read_to_string(self.0.paths.fold(log.id())).ok()?;
        let (first, fold) = text.split_once('\n')?;
        // The last newline says that all of it was written.
        (first == head(log, &stamp)).then(|| fold.strip_suffix('\n').map(str::to_owned))?
    }
}

/// What the log was. The version is there because another one may fold otherwise.
fn head(log: &Log, stamp: &Stamp) -> String {
    format!("glrs {} {} {}", env!("CARGO_PKG_VERSION"), log.len(), stamp.text())
}

#[cfg(test)]
mod tests {
    use super::super::tests::dir;
    use super::*;
    use glrs_protocol::SessionId;
    use serde_json::value::RawValue;

    #[tokio::test]
    async fn a_fold_counts_for_exactly_the_log_it_was_made_of() {
        let home = dir();
        let store = home.store();
        let id: SessionId = "00c0ffee".parse().unwrap();
        let entry = |text: &str| RawValue::from_string(format!(r#"{{"type":"notice","text":"{text}"}}"#)).unwrap();
        let mut log = store.create(&id, "/r", "");
        log.append(&[entry("small")], None).unwrap();
        log.sync().await.unwrap();
        store.keep_fold(&log, "{}").unwrap();
        assert_eq!(store.kept_fold(&log), None, "not worth it");
        log.append(&[entry(&"x".repeat(WORTH as usize))], None).unwrap();
        store.keep_fold(&log, "{}").unwrap();
        assert_eq!(store.kept_fold(&log), None, "the disk may not have it all");
        log.sync().await.unwrap();
        store.keep_fold(&log, r#"{"a":1}"#).unwrap();
        assert_eq!(store.kept_fold(&log).as_deref(), Some(r#"{"a":1}"#));
        drop(log);
        let mut log = store.load(&id).unwrap();
        assert_eq!(store.kept_fold(&log).as_deref(), Some(r#"{"a":1}"#));
        // Torn: the file has no end.
        let path = store.0.paths.fold(&id);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(store.kept_fold(&log), None);
        fs::write(&path, &whole).unwrap();
        log.append(&[entry("more")], None).unwrap();
        log.sync().await.unwrap();
        assert_eq!(store.kept_fold(&log), None, "the log has grown");
        // Another program wrote the file in place, to the same length.
        store.keep_fold(&log, "{}").unwrap();
        let file = fs::File::options().write(true).open(log.path()).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
        assert_eq!(store.kept_fold(&store.load(&id).unwrap()), None);
        store.delete(&id).unwrap();
        assert!(!path.exists());
    }
}
