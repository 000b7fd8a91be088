//! Importing and checking through the registry, as a client would.

use super::*;
use crate::host::Paths;
use crate::model::ModelSets;
use std::path::Path;
use std::sync::Arc;

struct Home {
    _dir: tempfile::TempDir,
    registry: Arc<Registry>,
    cwd: String,
}

fn home() -> Home {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::scratch(dir.path());
    let store = Store::open(paths.clone()).unwrap();
    let cwd = dir.path().canonicalize().unwrap().display().to_string();
    Home { _dir: dir, registry: Registry::new(store, paths, ModelSets::default()), cwd }
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/import")
        .join(name)
        .canonicalize()
        .unwrap()
        .display()
        .to_string()
}

fn of(path: &str, id: &str) -> SessionImport {
    let id = (!id.is_empty()).then(|| id.parse().unwrap());
    SessionImport { path: Some(path.to_owned()), text: None, format: None, id, cwd: None }
}

#[tokio::test]
async fn an_import_is_keyed_by_its_id() {
    let h = home();
    let path = fixture("claude.jsonl");
    let first = h.registry.import(of(&path, "AAAAAAAA")).unwrap();
    assert_eq!((first.session.id.as_str(), first.session.cwd.as_str()), ("aaaaaaaa", "/srv/app"));
    assert_eq!(first.session.title, "Reading two files");
    assert!(first.notes.iter().any(|n| n.contains("directory does not exist")));
    let file = h.registry.shared.paths.log(&first.session.id);
    let bytes = std::fs::read(&file).unwrap();
    let again = h.registry.import(of(&path, "aaaaaaaa")).unwrap();
    assert_eq!((again.session, again.notes.len()), (first.session.clone(), 0));
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    let other = h.registry.import(of(&fixture("codex.jsonl"), "aaaaaaaa")).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict);
    let elsewhere = SessionImport { cwd: Some(h.cwd.clone()), ..of(&path, "aaaaaaaa") };
    assert_eq!(h.registry.import(elsewhere).unwrap_err().kind(), ErrorKind::Conflict);
    // Without an id it is another session each time.
    let new = SessionImport { cwd: Some(h.cwd.clone()), ..of(&path, "") };
    let (a, b) = (h.registry.import(new.clone()).unwrap(), h.registry.import(new).unwrap());
    assert!(a.session.id != b.session.id && a.session.cwd == h.cwd && a.notes == b.notes);
    // An exported session that was imported itself is not mistaken for its source.
    let export = std::fs::read_to_string(&file).unwrap();
    let text = SessionImport { path: None, text: Some(export), ..of("", "bbbbbbbb") };
    h.registry.import(text.clone()).unwrap();
    assert_eq!(h.registry.import(of(&path, "bbbbbbbb")).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(h.registry.import(text).unwrap().session.id.as_str(), "bbbbbbbb");
}

#[tokio::test]
async fn imports_that_cannot_be_leave_nothing() {
    let h = home();
    let kind = |p: SessionImport| h.registry.import(p).unwrap_err().kind();
    assert_eq!(kind(of("relative.jsonl", "")), ErrorKind::InvalidParams);
    assert_eq!(kind(of("/nonexistent", "")), ErrorKind::InvalidParams);
    assert_eq!(kind(of(&h.cwd, "")), ErrorKind::InvalidParams);
    let text = |t: &str| SessionImport { path: None, text: Some(t.to_owned()), ..of("", "cccccccc") };
    assert_eq!(kind(text("no session")), ErrorKind::InvalidParams);
    assert_eq!(kind(text("{\"schema\":9,\"events\":[]}")), ErrorKind::NewerSchema { schema: 9 });
    let homeless = "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"text\":\"hi\"}]}";
    let homeless = SessionImport { format: Some("codex".into()), ..text(homeless) };
    assert_eq!(kind(homeless.clone()), ErrorKind::InvalidParams);
    assert!(!h.registry.shared.store.exists(&"cccccccc".parse().unwrap()));
    h.registry.import(SessionImport { cwd: Some(h.cwd.clone()), ..homeless }).unwrap();
}

#[tokio::test]
async fn a_check_finds_repairs_and_counts_what_remains() {
    let h = home();
    for id in ["aaaaaaaa", "bbbbbbbb", "cccccccc"] {
        h.registry.import(of(&fixture("codex.jsonl"), id)).unwrap();
    }
    let paths = &h.registry.shared.paths;
    let torn = paths.log(&"bbbbbbbb".parse().unwrap());
    let whole = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &whole[..whole.len() - 300]).unwrap();
    std::fs::write(paths.log(&"cccccccc".parse().unwrap()), "").unwrap();
    std::fs::write(paths.sessions().join("my notes.json"), "{}").unwrap();
    let check = async |id: Option<&str>, repair| {
        h.registry.check(SessionCheck { id: id.map(|i| i.parse().unwrap()), repair }).await
    };
    let found = check(None, false).await.unwrap();
    assert_eq!((found.checked, found.problems, found.files.len()), (4, 3, 3), "{found:?}");
    let found = check(None, true).await.unwrap();
    assert_eq!((found.checked, found.problems), (4, 2), "{found:?}");
    let mended = found.files.iter().find(|f| f.name == "bbbbbbbb").unwrap();
    assert_eq!(std::fs::read(&mended.kept[0]).unwrap(), &whole[..whole.len() - 300]);
    let one = check(Some("bbbbbbbb"), false).await.unwrap();
    assert_eq!((one.problems, one.files[0].notes.len()), (0, 1));
    assert_eq!(check(Some("dddddddd"), false).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_session_in_memory_that_nobody_uses_is_repaired_and_a_used_one_refused() {
    let h = home();
    let id: SessionId = "aaaaaaaa".parse().unwrap();
    let here = SessionImport { cwd: Some(h.cwd.clone()), ..of(&fixture("codex.jsonl"), "aaaaaaaa") };
    h.registry.import(here).unwrap();
    let path = h.registry.shared.paths.log(&id);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen(",{\"type\":\"reasoning\"", ",{\"type\":reasoning\"", 1)).unwrap();
    let info = async || {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let reply: crate::session::Reply<_> = Box::new(move |r| {
            let _ = tx.send(r);
        });
        h.registry.send(&id, Cmd::Info { reply }).await;
        rx.await.unwrap().unwrap()
    };
    info().await;
    let handle = h.registry.get(&id);
    assert_eq!(in_use(&handle), None);
    let ask = SessionCheck { id: Some(id.clone()), repair: true };
    let done = h.registry.check(ask.clone()).await.unwrap();
    assert_eq!((done.problems, done.files[0].problems.len(), done.files[0].kept.len()), (0, 1, 1), "{done:?}");
    // Attached: refused, and says so.
    info().await;
    let (tx, rx) = tokio::sync::oneshot::channel();
    let reply: crate::session::Reply<_> = Box::new(move |r| {
        let _ = tx.send(r);
    });
    let p = serde_json::from_value(serde_json::json!({"id": id.as_str()})).unwrap();
    let who = crate::session::Who { client: 1, by: "t#1".into() };
    h.registry.send(&id, Cmd::Attach { who, p: Box::new(p), wake: Arc::default(), reply }).await;
    let _point = rx.await.unwrap().unwrap();
    let refused = h.registry.check(ask).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy { state: "attached".into() });
}
