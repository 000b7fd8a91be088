//! Sessions of glrs from elsewhere: schema 2 as they are, schema 1 as a resume would read them.
//!
//! Owns what is said about parts that do not lie in the document itself. Must not know layouts:
//! that is the store's business.

use super::{ImportError, Imported, Notes};
use crate::store::{LoadError, Store};
use glrs_protocol::SessionId;
use glrs_protocol::entry::Entry;

pub(super) fn read(bytes: &[u8], id: &SessionId, store: &Store) -> Result<Imported, ImportError> {
    let document = store.read_document(bytes, id).map_err(|e| match e {
        LoadError::NewerSchema { schema } => ImportError::Newer(schema),
        LoadError::Broken { why } => ImportError::Broken(why),
        other => ImportError::Broken(other.to_string()),
    })?;
    if document.entries.is_empty() {
        return Err(ImportError::Empty);
    }
    let mut notes = Notes::default();
    for raw in &document.entries {
        match Entry::parse(raw.get()) {
            Ok(Entry::Tool(t)) if t.blob.is_some() => {
                notes.count("tool results are there in part only: the whole ones lay beside the file");
            }
            Ok(Entry::Compacted(c)) if c.artifact.is_some() => {
                notes.count(
                    "compactions whose replaced part lay beside the file: it can be read only in the transcript",
                );
            }
            Ok(Entry::Custom(c)) if c.custom == "glrs:files" => {
                notes.count("changes of files that cannot be taken back: what was there before lay beside the file");
            }
            _ => {}
        }
    }
    let mut said = document.notices;
    said.extend(notes.sentences());
    Ok(Imported {
        cwd: Some(document.cwd).filter(|c| !c.is_empty()),
        created_at: Some(document.created_at).filter(|c| !c.is_empty()),
        entries: document.entries,
        context_tokens: Some(document.context_tokens),
        notes: said,
        ..Imported::default()
    })
}
