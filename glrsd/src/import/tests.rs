//! What each program's files become, and that whatever they hold, what a model would be sent is
//! legal.

use super::*;
use crate::fold;
use crate::host::Paths;
use glrs_protocol::entry::Entry;
use glrs_protocol::message::{Message, Part, Role};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/import").join(name)).unwrap()
}

fn nowhere() -> Store {
    let root = Path::new("/nonexistent/glrs").to_owned();
    let (config, socket, legacy) = (root.join("config.json"), root.join("s"), root.join("legacy"));
    let tmp = root.join("tmp");
    Store::open_read_only(Paths { root, config, socket, legacy, tmp })
}

fn import(bytes: &[u8]) -> Result<Imported, ImportError> {
    read(bytes, None, &"aaaaaaaa".parse().unwrap(), &nowhere())
}

/// Entries in a form that shows what matters.
fn outline(i: &Imported) -> Vec<String> {
    let line = |raw: &RawValue| match Entry::parse(raw.get()).unwrap() {
        Entry::User(u) => format!("user {} +{}", u.text, u.attachments.len()),
        Entry::Assistant(a) => format!("assistant {}", a.text),
        Entry::Tool(t) => format!("tool {} [{}] {} {}", t.name, t.detail, t.ok, t.result.unwrap_or_default()),
        Entry::Reasoning(r) => format!("reasoning {}", r.text),
        Entry::Usage(u) => format!("usage {} {} {}", u.tokens, u.cached, u.model.unwrap_or_default()),
        Entry::Turn(t) => format!("turn {} {}", t.messages.len(), t.status.as_str()),
        Entry::Error(e) => format!("error {}", e.text),
        Entry::Compacted(c) => format!("compacted {} {}", c.dropped, c.summary),
        Entry::Custom(c) => format!("{} {}", c.custom, c.data.get()),
        other => other.kind().to_owned(),
    };
    i.entries.iter().map(|r| line(r)).collect()
}

/// What a model would be sent.
fn context(i: &Imported) -> Vec<Arc<Message>> {
    fold::context::fold(i.entries.iter().enumerate().map(|(n, r)| (n as u64 + 1, r.get()))).messages()
}

/// Every call has exactly one result directly behind it, and no message is empty.
fn assert_legal(messages: &[Arc<Message>]) {
    let mut open: Vec<String> = Vec::new();
    for m in messages {
        assert!(!m.parts.is_empty());
        if m.role == Role::Tool {
            for p in &m.parts {
                let Part::ToolResult { id, .. } = p else { panic!("{p:?}") };
                let at = open.iter().position(|o| o == id).expect("a result of a call just before");
                open.remove(at);
            }
        }
        assert!(open.is_empty(), "calls without results: {open:?}");
        open.extend(m.call_ids().map(str::to_owned));
    }
    assert!(open.is_empty(), "calls without results: {open:?}");
}

#[test]
fn a_claude_transcript_keeps_its_last_branch_and_says_what_is_missing() {
    let i = import(&fixture("claude.jsonl")).unwrap();
    assert_eq!(i.format, Some(Format::Claude));
    assert_eq!((i.cwd.as_deref(), i.created_at.as_deref()), (Some("/srv/app"), Some("2026-03-01T10:00:00.000Z")));
    let no_result = fold::legal::NO_RESULT;
    let none = format!("tool Bash [file picture.png] false {no_result}");
    assert_eq!(
        outline(&i),
        [
            "user read the two files +0",
            "reasoning Two reads at once.",
            "assistant I will read both.",
            "tool Read [/srv/app/a.ts] true export const a = 1;",
            "tool Read [/srv/app/b.ts] false File does not exist.",
            "usage 1190 1000 anthropic/some-model",
            "assistant b.ts is not there.",
            "usage 1212 1180 anthropic/some-model",
            "turn 5 done",
            "user what is in this picture? +1",
            &none,
            "turn 3 interrupted",
            "user never mind, thanks +0",
            "error API Error: 529 overloaded",
            "assistant You are welcome.",
            "turn 2 done",
            "glrs:title {\"text\":\"Reading two files\",\"by\":\"model\"}",
        ]
    );
    assert_eq!(i.context_tokens, Some(1212));
    let notes = i.notes.join("\n");
    for said in ["2 lines of branches", "2 lines of subagents", "1 lines that are no JSON", "1 pieces of reasoning"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    let messages = context(&i);
    assert_legal(&messages);
    assert!(messages[0].joined_text().contains("Caveat"), "what the model was sent stays");
    assert!(matches!(messages[5].parts[1], Part::File { kind: "image", .. }));
}

#[test]
fn a_compacted_claude_transcript_is_compacted_here_too() {
    let i = import(&fixture("claude-compacted.jsonl")).unwrap();
    assert_eq!(
        outline(&i),
        [
            "user first +0",
            "assistant one",
            "turn 2 done",
            "compacted 2 The brief of it.",
            "user second +0",
            "assistant two",
            "turn 2 done"
        ]
    );
    let messages = context(&i);
    assert_eq!(messages.len(), 3);
    assert!(messages[0].joined_text().contains("The brief of it."));
}

#[test]
fn a_codex_rollout_is_told_from_its_items() {
    let i = import(&fixture("codex.jsonl")).unwrap();
    assert_eq!((i.format, i.cwd.as_deref()), (Some(Format::Codex), Some("/srv/lib")));
    let none = format!("tool shell [bash -lc cat t.rs] false {}", fold::legal::NO_RESULT);
    assert_eq!(
        outline(&i),
        [
            "user run the tests +0",
            "reasoning **Planning**",
            "assistant Running them.",
            "tool shell [cargo test] false 1 failed",
            "tool apply_patch [] true Exit code: 0\nWall time: 0.1 seconds\nOutput:\nDone!",
            "usage 5060 4000 openai/some-model",
            "assistant One test fails.",
            "turn 4 done",
            "user show it +1",
            &none,
            "turn 3 interrupted",
        ]
    );
    let notes = i.notes.join("\n");
    for said in ["1 tool results without", "1 instructions of", "1 messages that the program", "1 pieces of sealed"] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
    assert_legal(&context(&i));
    let old = import(&fixture("codex-old.jsonl")).unwrap();
    assert_eq!(outline(&old), ["user hello +0", "assistant hi there", "turn 2 done"]);
}

#[test]
fn sessions_of_ours_keep_their_entries() {
    let i = import(&fixture("schema2.json")).unwrap();
    assert_eq!((i.entries.len(), i.context_tokens), (5, Some(77)));
    assert_eq!(i.entries[1].get(), r#"{"type":"banana","peel":true}"#);
    assert_eq!(i.notes.len(), 1, "{:?}", i.notes);
    let old = import(&fixture("schema1.json")).unwrap();
    assert_eq!(outline(&old), ["user hello +0", "assistant hi", "turn 2 done"]);
    let newer = br#"{"schema":3,"id":"aaaaaaaa","events":[]}"#;
    assert_eq!(import(newer).unwrap_err(), ImportError::Newer(3));
    assert_eq!(import(b"").unwrap_err(), ImportError::Unknown);
    assert_eq!(import(b"just text\nof two lines").unwrap_err(), ImportError::Unknown);
    assert_eq!(import(br#"{"type":"summary","summary":"s","leafUuid":"x"}"#).unwrap_err(), ImportError::Empty);
    assert_eq!(import(br#"{"schema":2,"events":[]}"#).unwrap_err(), ImportError::Empty);
    assert_eq!(Format::parse(Some("word")), Err(ImportError::NoSuchFormat));
}

#[test]
fn a_long_result_is_cut_and_kept_whole_beside() {
    let long = "x".repeat(40_000);
    let text = format!(
        "{}\n{}\n{}\n",
        r#"{"type":"user","uuid":"1","message":{"content":"go"}}"#,
        r#"{"type":"assistant","uuid":"2","message":{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}"#,
        serde_json::json!({"type":"user","uuid":"3","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":long}]}}),
    );
    let i = import(text.as_bytes()).unwrap();
    assert_eq!(i.blobs, [long.into_bytes()]);
    let Entry::Tool(t) = Entry::parse(i.entries[1].get()).unwrap() else { panic!() };
    assert!(t.result.unwrap().chars().count() <= 30_000);
    assert_eq!(t.blob, Some(crate::store::blob_name(&i.blobs[0])));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    /// Lines left out, doubled, in another order, cut: never a panic, always a legal context.
    #[test]
    fn whatever_lines_there_are_the_context_is_legal(
        which in any::<bool>(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0..12u8), 1..40),
        keep_order in any::<bool>(),
    ) {
        let bytes = fixture(if which { "claude.jsonl" } else { "codex.jsonl" });
        let all: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
        let mut chosen: Vec<(usize, u8)> = picks.iter().map(|(i, cut)| (i.index(all.len()), *cut)).collect();
        if keep_order {
            chosen.sort_unstable();
        }
        let text: Vec<&[u8]> = chosen
            .iter()
            .map(|(i, cut)| if *cut == 0 { &all[*i][..all[*i].len() / 2] } else { all[*i] })
            .collect();
        let format = Some(if which { Format::Claude } else { Format::Codex });
        if let Ok(i) = read(&text.join(&b'\n'), format, &"aaaaaaaa".parse().unwrap(), &nowhere()) {
            prop_assert!(!i.entries.is_empty());
            // Whole imports are made legal turn by turn; ids that come twice are told apart when sent.
            assert_legal(&fold::legalize(&context(&i)));
        }
    }
}
