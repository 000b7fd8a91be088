//! Whatever a history looks like, every dialect's request is legal.

use super::catalogue::Dialect;
use super::testing::call;
use super::{Call, anthropic, gemini, openai, remote, responses};
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
        Just(Some(r#"{"openai/responses":{"type":"reasoning","id":"rs","encrypted_content":"e","summary":[]}}"#)),
        Just(Some(r#"{"openai/responses":{"type":"reasoning","id":"rs","encrypted_content":""}}"#)),
        Just(Some(r#"{"google/gemini":{"thoughtSignature":"t","id":"g"}}"#)),
        Just(Some(r#"{"openai/responses":7,"google/gemini":{"id":7}}"#)),
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
        prop_oneof![
            Just(r#"{"type":"hologram"}"#),
            Just(r#"{"type":"provider-block","provider":"openai/responses","block":{"phase":"commentary"}}"#),
            Just(r#"{"type":"provider-block","provider":"openai/responses","block":{"type":"web_search_call"}}"#),
            Just(r#"{"type":"provider-block","provider":"google/gemini","block":{"thoughtSignature":"x"}}"#),
            Just(r#"{"type":"provider-block","provider":"google/gemini","block":{"executableCode":{}}}"#),
        ]
        .prop_map(|raw| Part::Other(RawValue::from_string(raw.to_owned()).unwrap())),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::Tool), Just(Role::System)];
    (role, prop::collection::vec(part(), 0..4)).prop_map(|(role, parts)| Message { role, parts })
}

/// Which models of a dialect have ways of their own, with their provider.
fn models(dialect: Dialect) -> &'static [(&'static str, &'static str)] {
    match dialect {
        Dialect::Anthropic => &[("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-5-5")],
        Dialect::OpenAi => &[
            ("openai", "m"),
            ("mistral", "m"),
            ("deepseek", "m"),
            ("google", "m"),
            ("openrouter", "m"),
            ("openrouter", "anthropic/claude"),
            ("ollama", "m"),
            ("llamacpp", "m"),
        ],
        Dialect::Responses => &[("openai", "gpt-5.6-sol"), ("openai", "gpt-4.1"), ("other", "m")],
        Dialect::Gemini => &[("google", "gemini-3.8-flash"), ("google", "gemini-2.5-pro"), ("other", "gemma-3")],
    }
}

/// The request of a call is legal in every dialect, whoever serves it.
pub(crate) fn check_everywhere(call: &Call) {
    for dialect in Dialect::ALL {
        for (provider, model) in models(dialect) {
            let body = remote::build(dialect, provider, model, call, &[]);
            let body = serde_json::from_slice(&body).unwrap();
            match dialect {
                Dialect::Anthropic => anthropic::tests::check(&body),
                Dialect::OpenAi => openai::tests::check(provider, &body),
                Dialect::Responses => responses::tests::check(&body),
                Dialect::Gemini => gemini::tests::check(model, &body),
            }
        }
    }
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
        check_everywhere(&call);
    }
}
