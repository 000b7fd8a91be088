//! What each OpenAI-compatible server does differently, in one table.
//!
//! Everything else is the same for all. A provider that is not listed gets [`DEFAULT`], which is what
//! vLLM, LM Studio and most gateways take. The system prompt is `system` everywhere: OpenAI reads it as
//! `developer`, and the others do not know that word. Azure's `api-version` stands in its address and
//! stays there. Reasoning is read under every name that is in use, whoever sends it.

use crate::model::convert::IdStyle;

/// How reasoning effort is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// `reasoning_effort: "high"`.
    Plain,
    /// `reasoning: {"effort": "high"}`.
    Object,
    /// Not at all.
    No,
}

/// One provider's ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quirks {
    /// Field with the output limit.
    pub max_field: &'static str,
    /// Whether `stream_options` is understood.
    pub stream_options: bool,
    /// Which call ids it takes.
    pub ids: IdStyle,
    /// How reasoning effort is asked for.
    pub effort: Effort,
    /// Field in which its own reasoning goes back inside a tool loop, where it does.
    pub echo: Option<&'static str>,
    /// Whether that field stands in every message of the model, with [`NO_THOUGHT`] where it has none.
    pub echo_always: bool,
    /// Whether reasoning comes and goes back as `reasoning_details` too (signatures are in there).
    pub details: bool,
    /// Whether a user message may stand directly behind tool results.
    pub user_after_tool: bool,
    /// Whether calls carry a signature (`extra_content`) that has to come back.
    pub signed_calls: bool,
    /// Whether several calls at once come only when asked for (`parallel_tool_calls`).
    pub ask_parallel: bool,
    /// Whether the conversation is named for the cache (`prompt_cache_key`).
    pub cache_key: bool,
    /// Whether files that are no images are taken.
    pub files: bool,
    /// Header with the key, if it is not `authorization: Bearer`.
    pub key_header: Option<&'static str>,
    /// Header that names the conversation for the cache.
    pub cache_header: Option<&'static str>,
}

/// What an unlisted provider gets.
pub(crate) const DEFAULT: Quirks = Quirks {
    max_field: "max_tokens",
    stream_options: true,
    ids: IdStyle::Plain(40),
    effort: Effort::Plain,
    echo: None,
    echo_always: false,
    details: false,
    user_after_tool: true,
    signed_calls: false,
    ask_parallel: false,
    cache_key: false,
    files: false,
    key_header: None,
    cache_header: None,
};

/// The newer name of the output limit.
const COMPLETION: &str = "max_completion_tokens";

const TABLE: [(&str, Quirks); 11] = [
    ("openai", Quirks { max_field: COMPLETION, cache_key: true, files: true, ..DEFAULT }),
    ("azure", Quirks { max_field: COMPLETION, key_header: Some("api-key"), ..DEFAULT }),
    ("xai", Quirks { max_field: COMPLETION, cache_header: Some("x-grok-conv-id"), ..DEFAULT }),
    ("groq", Quirks { max_field: COMPLETION, ..DEFAULT }),
    ("cerebras", Quirks { max_field: COMPLETION, ..DEFAULT }),
    ("openrouter", Quirks { effort: Effort::Object, details: true, files: true, ..DEFAULT }),
    // Refuses fields it does not know, ids of any other form, and a user behind a tool.
    (
        "mistral",
        Quirks { stream_options: false, ids: IdStyle::Nine, effort: Effort::No, user_after_tool: false, ..DEFAULT },
    ),
    // Once tools were used it refuses a conversation in which any message of the model lacks its reasoning,
    // whoever wrote it. Always, and not from the first call on: what was sent before stays the same.
    ("deepseek", Quirks { echo: Some("reasoning_content"), echo_always: true, ..DEFAULT }),
    // Its OpenAI-compatible address.
    ("google", Quirks { signed_calls: true, ..DEFAULT }),
    ("ollama", Quirks { echo: Some("reasoning"), ..DEFAULT }),
    // Its templates know no effort, and the field would be an error in older builds.
    ("llamacpp", Quirks { effort: Effort::No, echo: Some("reasoning_content"), ask_parallel: true, ..DEFAULT }),
];

/// The reasoning of a message that has none of its own: an empty text counts as missing.
pub(crate) const NO_THOUGHT: &str = " ";

/// Least output limit that the Responses API takes.
pub(crate) const RESPONSES_OUTPUT_MIN: u64 = 16;

/// Whether a model can be asked to reason in the Responses API: the older ones refuse its fields, and
/// reasoning in the conversation too. A name nothing is known of is taken for a newer one.
pub(crate) fn thinks(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let older = ["gpt-3", "gpt-4", "chatgpt-", "gpt-5-chat"];
    !older.iter().any(|o| name.starts_with(o))
}

/// The ways of a provider.
pub(crate) fn of(provider: &str) -> Quirks {
    TABLE.iter().find(|(id, _)| *id == provider).map_or(DEFAULT, |(_, q)| *q)
}

/// The name under which what a model attached to its reasoning is kept. A router hands on what others
/// signed, and one vendor refuses what another did: there it is the vendor's. No vendor is called like a
/// dialect (see `convert::own_key`).
pub(crate) fn own_key(provider: &str, model: &str) -> String {
    match model.split_once('/') {
        Some((vendor, _)) if provider == "openrouter" => format!("{provider}/{}", vendor.to_ascii_lowercase()),
        _ => provider.to_owned(),
    }
}

/// Whether blocks are marked for the cache: Claude caches nothing by itself, behind a router neither.
pub(crate) fn marks(provider: &str, model: &str) -> bool {
    provider == "openrouter" && model.starts_with("anthropic/")
}

/// The effort that is sent. OpenAI's models from 5.2 on refuse tools in Chat Completions unless the
/// effort is `none`, even when none is given.
pub(crate) fn effort<'a>(provider: &str, model: &str, asked: Option<&'a str>, tools: bool) -> Option<&'a str> {
    if tools && matches!(provider, "openai" | "azure") && newer_gpt(model) {
        return Some("none");
    }
    asked
}

/// `gpt-5.2` and later; not `gpt-5`, `gpt-5.1`, `gpt-5-mini`, `gpt-4.1`.
fn newer_gpt(model: &str) -> bool {
    let Some(rest) = model.strip_prefix("gpt-") else { return false };
    let version = rest.split('-').next().unwrap_or("");
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    match (major.parse::<u32>(), minor.parse::<u32>()) {
        (Ok(major), Ok(minor)) => major > 5 || (major == 5 && minor >= 2),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_models_get_no_effort_beside_tools() {
        for (model, is) in [
            ("gpt-5", false),
            ("gpt-5-mini", false),
            ("gpt-5.1", false),
            ("gpt-5.4", true),
            ("gpt-5.6-sol", true),
            ("gpt-6-luna", true),
            ("gpt-4.1", false),
            ("o3", false),
        ] {
            assert_eq!(newer_gpt(model), is, "{model}");
        }
        assert_eq!(effort("openai", "gpt-5.6", Some("high"), true), Some("none"));
        assert_eq!(effort("openai", "gpt-5.6", Some("high"), false), Some("high"));
        assert_eq!(effort("openrouter", "gpt-5.6", Some("high"), true), Some("high"));
    }
}
