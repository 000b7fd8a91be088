//! Whatever a history looks like, every dialect's request is legal.

use super::testing::call;
use super::{anthropic, openai};
use glrs_protocol::message::{Message, Output, Part, Role, empty_object};
use proptest::prelude::*;
use serde_json::value::RawValue;

fn opts() -> impl Strategy<Value = Option<Box<RawValue>>> {
    prop_oneof![
        Just(None),
        Just(Some(r#"{"anthropic":{"signature":"s"}}"#)),
        Just(Some(r#"{"anthropic":{"redactedData":"d"}}"#)),
        Just(Some(r#"{"deepseek":{},"anthropic":{}}"#)),
        Just(Some(r#"{"google":{"extra_content":{"google":{"thought_signature":"t"}}}}"#)),
        Just(Some("[]")),
    ]
    .prop_map(|o| o.map(|o| RawValue::from_string(o.to_owned()).unwrap()))
}

/// Few ids and short texts, so that they meet: missing, doubled, orphaned and late results all occur.
fn part() -> impl Strategy<Value = Part> {
    let id = prop_oneof![Just("a"), Just("b"), Just("a b"), Just("a_b"), Just(""), Just("ünï")].prop_map(str::to_owned);
    let text = prop_oneof![Just(""), Just(" \n"), Just("x"), Just("[vitals] y"), Just("漢")].prop_map(str::to_owned);
    prop_oneof![
        text.clone().prop_map(Part::Text),
        (text.clone(), opts()).prop_map(|(text, opts)| Part::Reasoning { text, opts }),
        (id.clone(), text.clone(), opts()).prop_map(|(id, name, opts)| Part::ToolCall {
            id,
            name,
            input: empty_object(),
            opts
        }),
        (id, text.clone(), any::<bool>()).prop_map(|(id, text, bad)| Part::ToolResult {
            id,
            name: "read".into(),
            output: if bad { Output::Error(text) } else { Output::Text(text) }
        }),
        prop_oneof![Just("image/png"), Just("application/pdf"), Just("text/plain")].prop_map(|m| Part::File {
            kind: "file",
            media_type: m.into(),
            data: "QUJD".into()
        }),
        Just(Part::Other(RawValue::from_string(r#"{"type":"hologram"}"#.into()).unwrap())),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::Tool), Just(Role::System)];
    (role, prop::collection::vec(part(), 0..4)).prop_map(|(role, parts)| Message { role, parts })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_legal_everywhere(messages in prop::collection::vec(message(), 1..10), tools: bool, think: bool) {
        let mut call = call(&messages);
        if !tools {
            call.tools = Vec::new().into();
        }
        call.variant = think.then(|| "high".to_owned());
        for model in ["claude-sonnet-4-5", "claude-opus-5-5"] {
            let body = anthropic::request::build("anthropic", model, &call, &[]);
            anthropic::tests::check(&serde_json::from_slice(&body).unwrap());
        }
        for provider in ["openai", "mistral", "deepseek", "google", "openrouter"] {
            let body = openai::request::build(provider, "m", &call, &[]);
            openai::tests::check(provider, &serde_json::from_slice(&body).unwrap());
        }
    }
}
