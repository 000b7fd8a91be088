//! What is known of providers and models without asking anyone.
//!
//! Owns: the built-in providers with their addresses and key variables, and a table of well-known
//! models as of [`DATE`]. Configuration beats it, so does a fetched list (`upstream`), and a model that is
//! in none is still usable. Prices
//! are list prices of the lowest tier; where a price is not certain there is none, so no cost is shown.
//! Must not know keys or do I/O.

use super::Call;
use super::upstream::Listed;
use crate::config::ModelConfig;
use glrs_protocol::types::ModelRow;
use serde::{Deserialize, Serialize};

/// When the table was last checked.
pub const DATE: &str = "2026-11-30";
/// Window of a model nothing is known of.
pub const UNKNOWN_CONTEXT: u64 = 256_000;

/// How a provider is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Messages API.
    Anthropic,
    /// Chat Completions.
    OpenAi,
    /// Responses API.
    Responses,
    /// `generateContent`.
    Gemini,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::Responses, Self::Gemini];

    /// The word in `providers.<id>.dialect`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }
}

/// A built-in provider.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Id, the part of a model's name before the slash.
    pub id: &'static str,
    /// Base URL; empty where only the configuration can know it.
    pub api: &'static str,
    /// How it is spoken to at this address. At another one, `Responses` and `Gemini` are taken for what
    /// everything else imitates, Chat Completions, unless the configuration says otherwise.
    pub dialect: Dialect,
    /// Environment variables that may hold its key, the usual one first; empty for local servers.
    pub key_env: &'static [&'static str],
    /// The model that is taken when nothing is configured; empty where there is no telling.
    pub flagship: &'static str,
}

const fn openai(id: &'static str, api: &'static str, key: &'static [&'static str], flagship: &'static str) -> Provider {
    Provider { id, api, dialect: Dialect::OpenAi, key_env: key, flagship }
}

/// The built-in providers, in the order in which a default is sought.
pub const PROVIDERS: [Provider; 15] = [
    Provider {
        id: "anthropic",
        api: "https://api.anthropic.com/v1",
        dialect: Dialect::Anthropic,
        key_env: &["ANTHROPIC_API_KEY"],
        flagship: "claude-opus-5-5",
    },
    // Its newer models take tools and think only here: Chat Completions refuses both at once, and
    // forgets between the steps of a turn what was thought.
    Provider {
        id: "openai",
        api: "https://api.openai.com/v1",
        dialect: Dialect::Responses,
        key_env: &["OPENAI_API_KEY"],
        flagship: "gpt-5.6-sol",
    },
    // Its OpenAI-compatible address (`…/v1beta/openai`) shows no thoughts and takes fewer files.
    Provider {
        id: "google",
        api: "https://generativelanguage.googleapis.com/v1beta",
        dialect: Dialect::Gemini,
        key_env: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        flagship: "gemini-3.8-flash",
    },
    openai("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], "grok-4.6"),
    openai("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], "anthropic/claude-opus-5.5"),
    openai("deepseek", "https://api.deepseek.com", &["DEEPSEEK_API_KEY"], "deepseek-v4-pro"),
    openai("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], "mistral-large-latest"),
    openai("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], "openai/gpt-oss-120b"),
    openai("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_API_KEY"], "gpt-oss-120b"),
    openai("together", "https://api.together.xyz/v1", &["TOGETHER_API_KEY"], "openai/gpt-oss-120b"),
    openai(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        &["FIREWORKS_API_KEY"],
        "accounts/fireworks/models/gpt-oss-120b",
    ),
    // Chat Completions: deployments have names of their own and only `…/openai/v1` has Responses.
    openai("azure", "", &["AZURE_OPENAI_API_KEY", "AZURE_API_KEY"], ""),
    openai("ollama", "http://127.0.0.1:11434/v1", &[], ""),
    openai("llamacpp", "http://127.0.0.1:8080/v1", &[], ""),
    openai("lmstudio", "http://127.0.0.1:1234/v1", &[], ""),
];

/// The built-in provider of that id.
pub fn provider(id: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|p| p.id == id)
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Input that no cache knows.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input read from the cache.
    pub read: f64,
    /// Input written to the cache.
    pub write: f64,
}

impl Price {
    /// What a call cost.
    pub fn cost(&self, fresh: u64, read: u64, written: u64, output: u64) -> f64 {
        let million = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        million(fresh, self.input)
            + million(read, self.read)
            + million(written, self.write)
            + million(output, self.output)
    }
}

/// A model of the table.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Provider id.
    pub provider: &'static str,
    /// Model id.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// Context window in tokens.
    pub context: u64,
    /// Most output tokens.
    pub output: u64,
    /// Price, if certain.
    pub price: Option<Price>,
    /// Reasoning efforts.
    pub variants: &'static [&'static str],
    /// Whether it takes images.
    pub images: bool,
}

const NONE: &[&str] = &[];
const THREE: &[&str] = &["low", "medium", "high"];
const MINIMAL: &[&str] = &["minimal", "low", "medium", "high"];
const MAX: &[&str] = &["low", "medium", "high", "max"];
const XHIGH: &[&str] = &["low", "medium", "high", "xhigh"];
const ALL: &[&str] = &["low", "medium", "high", "xhigh", "max"];
const DEEP: &[&str] = &["low", "high", "max"];

/// Anthropic: reads cost a tenth, writes a quarter more.
const fn claude(input: f64, output: f64) -> Option<Price> {
    Some(Price { input, output, read: input * 0.1, write: input * 1.25 })
}

/// Elsewhere writing to the cache costs nothing extra.
const fn usd(input: f64, read: f64, output: f64) -> Option<Price> {
    Some(Price { input, output, read, write: input })
}

type Row = (&'static str, &'static str, &'static str, u64, u64, Option<Price>, &'static [&'static str], bool);

const TABLE: [Row; 45] = [
    ("anthropic", "claude-opus-5-5", "Claude Opus 5.5", 1_000_000, 128_000, claude(4.0, 20.0), ALL, true),
    ("anthropic", "claude-sonnet-5-5", "Claude Sonnet 5.5", 1_000_000, 128_000, claude(2.0, 10.0), ALL, true),
    ("anthropic", "claude-haiku-5-5", "Claude Haiku 5.5", 1_000_000, 128_000, None, THREE, true),
    ("anthropic", "claude-fable-5-2", "Claude Fable 5.2", 1_000_000, 128_000, claude(8.0, 40.0), ALL, true),
    ("anthropic", "claude-fable-5-1", "Claude Fable 5.1", 1_000_000, 128_000, claude(10.0, 50.0), ALL, true),
    ("anthropic", "claude-opus-5", "Claude Opus 5", 1_000_000, 128_000, claude(5.0, 25.0), ALL, true),
    ("anthropic", "claude-sonnet-5", "Claude Sonnet 5", 1_000_000, 128_000, claude(2.0, 10.0), ALL, true),
    ("anthropic", "claude-opus-4-8", "Claude Opus 4.8", 1_000_000, 128_000, claude(5.0, 25.0), ALL, true),
    ("anthropic", "claude-opus-4-7", "Claude Opus 4.7", 1_000_000, 128_000, claude(5.0, 25.0), ALL, true),
    ("anthropic", "claude-opus-4-6", "Claude Opus 4.6", 1_000_000, 128_000, claude(5.0, 25.0), MAX, true),
    ("anthropic", "claude-sonnet-4-6", "Claude Sonnet 4.6", 1_000_000, 64_000, claude(3.0, 15.0), THREE, true),
    ("anthropic", "claude-opus-4-5", "Claude Opus 4.5", 200_000, 64_000, claude(5.0, 25.0), THREE, true),
    ("anthropic", "claude-sonnet-4-5", "Claude Sonnet 4.5", 200_000, 64_000, claude(3.0, 15.0), THREE, true),
    ("anthropic", "claude-haiku-4-5", "Claude Haiku 4.5", 200_000, 64_000, claude(1.0, 5.0), THREE, true),
    ("openai", "gpt-5.6-sol", "GPT-5.6 Sol", 1_050_000, 128_000, usd(4.0, 0.4, 20.0), ALL, true),
    ("openai", "gpt-5.6-terra", "GPT-5.6 Terra", 1_050_000, 128_000, usd(2.0, 0.2, 12.0), ALL, true),
    ("openai", "gpt-5.6-luna", "GPT-5.6 Luna", 1_050_000, 128_000, usd(0.2, 0.02, 1.2), ALL, true),
    ("openai", "gpt-6-sol", "GPT-6 Sol", 1_050_000, 128_000, usd(2.0, 0.2, 10.0), XHIGH, true),
    ("openai", "gpt-6-luna", "GPT-6 Luna", 1_050_000, 128_000, usd(0.1, 0.01, 0.5), XHIGH, true),
    ("openai", "gpt-5.1", "GPT-5.1", 400_000, 128_000, usd(1.25, 0.125, 10.0), THREE, true),
    ("openai", "gpt-5", "GPT-5", 400_000, 128_000, usd(1.25, 0.125, 10.0), MINIMAL, true),
    ("openai", "gpt-5-mini", "GPT-5 mini", 400_000, 128_000, usd(0.25, 0.025, 2.0), MINIMAL, true),
    ("openai", "gpt-5-nano", "GPT-5 nano", 400_000, 128_000, usd(0.05, 0.005, 0.4), MINIMAL, true),
    ("openai", "gpt-4.1", "GPT-4.1", 1_047_576, 32_768, usd(2.0, 0.5, 8.0), NONE, true),
    ("google", "gemini-3.8-flash", "Gemini 3.8 Flash", 1_000_000, 65_535, usd(0.75, 0.75, 3.75), THREE, true),
    ("google", "gemini-3.1-pro-preview", "Gemini 3.1 Pro", 1_048_576, 65_536, usd(2.0, 0.2, 12.0), THREE, true),
    ("google", "gemini-2.5-pro", "Gemini 2.5 Pro", 1_048_576, 65_536, usd(1.25, 0.125, 10.0), THREE, true),
    ("google", "gemini-2.5-flash", "Gemini 2.5 Flash", 1_048_576, 65_536, usd(0.3, 0.03, 2.5), THREE, true),
    ("xai", "grok-4.6", "Grok 4.6", 500_000, 64_000, usd(2.0, 0.5, 6.0), THREE, true),
    ("xai", "grok-4.5", "Grok 4.5", 500_000, 64_000, usd(2.0, 0.5, 6.0), THREE, true),
    ("xai", "grok-4.3", "Grok 4.3", 1_000_000, 64_000, usd(1.25, 1.25, 2.5), NONE, true),
    ("openrouter", "anthropic/claude-opus-5.5", "Claude Opus 5.5", 1_000_000, 128_000, None, THREE, true),
    ("openrouter", "anthropic/claude-sonnet-5.5", "Claude Sonnet 5.5", 1_000_000, 128_000, None, THREE, true),
    ("openrouter", "openai/gpt-5.6-terra", "GPT-5.6 Terra", 1_050_000, 128_000, None, XHIGH, true),
    ("deepseek", "deepseek-v4-pro", "DeepSeek V4 Pro", 1_000_000, 384_000, None, DEEP, false),
    ("deepseek", "deepseek-flash", "DeepSeek V4.1 Flash", 1_000_000, 384_000, None, DEEP, true),
    ("mistral", "mistral-large-latest", "Mistral Large", 256_000, 32_000, None, NONE, true),
    ("mistral", "mistral-medium-latest", "Mistral Medium", 128_000, 32_000, None, NONE, true),
    ("mistral", "devstral-medium-latest", "Devstral Medium", 128_000, 32_000, None, NONE, false),
    ("mistral", "codestral-latest", "Codestral", 256_000, 4_096, None, NONE, false),
    ("groq", "openai/gpt-oss-120b", "gpt-oss 120B", 131_072, 65_536, usd(0.15, 0.075, 0.6), THREE, false),
    ("groq", "openai/gpt-oss-20b", "gpt-oss 20B", 131_072, 65_536, usd(0.075, 0.0375, 0.3), THREE, false),
    ("cerebras", "gpt-oss-120b", "gpt-oss 120B", 131_072, 40_960, None, THREE, false),
    ("together", "openai/gpt-oss-120b", "gpt-oss 120B", 131_072, 65_536, usd(0.15, 0.15, 0.6), THREE, false),
    (
        "fireworks",
        "accounts/fireworks/models/gpt-oss-120b",
        "gpt-oss 120B",
        131_072,
        65_536,
        usd(0.15, 0.15, 0.6),
        THREE,
        false,
    ),
];

/// The models of the table.
pub fn models() -> impl Iterator<Item = Known> {
    TABLE.iter().map(|&(provider, id, name, context, output, price, variants, images)| Known {
        provider,
        id,
        name,
        context,
        output,
        price,
        variants,
        images,
    })
}

/// A model of the table; a dated snapshot (`-20250929`) counts as its model.
pub fn find(provider: &str, id: &str) -> Option<Known> {
    let is_date = |s: &str| s.len() == 8 && s.bytes().all(|b| b.is_ascii_digit());
    let base = id.rsplit_once('-').filter(|(_, d)| is_date(d)).map_or(id, |(b, _)| b);
    models().find(|m| m.provider == provider && (m.id == id || m.id == base))
}

/// What is known of a model: the configuration's word, else the fetched list's, else the table's, else
/// the defaults.
pub(crate) fn describe(
    provider: &str,
    id: &str,
    config: Option<&ModelConfig>,
    listed: Option<&Listed>,
) -> (ModelRow, Option<Price>) {
    let known = find(provider, id);
    let said = config.map(|c| c.metadata.clone()).unwrap_or_default();
    let price = match (said.input_cost, said.output_cost, listed.and_then(|l| l.price).or(known.and_then(|k| k.price)))
    {
        (None, None, price) => price,
        (input, output, price) => Some(priced(input, output, price)),
    };
    let variants = if said.variants.is_empty() {
        known.map_or(NONE, |k| k.variants).iter().map(|v| (*v).to_owned()).collect()
    } else {
        said.variants
    };
    let context = said.context.or(listed.map(|l| l.context)).or(known.map(|k| k.context)).unwrap_or(UNKNOWN_CONTEXT);
    let output = said.output.or(listed.and_then(|l| l.output)).or(known.map(|k| k.output));
    let name = said.name.or_else(|| listed.map(|l| l.name.clone())).or(known.map(|k| k.name.to_owned()));
    let row = ModelRow {
        model: format!("{provider}/{id}"),
        name: name.unwrap_or_else(|| id.to_owned()),
        context,
        output,
        input_cost: price.map(|p| p.input),
        output_cost: price.map(|p| p.output),
        variants,
        images: said.images.or(listed.and_then(|l| l.images)).or(known.map(|k| k.images)),
        ready: true,
        missing: None,
    };
    (row, price)
}

/// A price of which the configuration says a part. What the cache costs goes with the input: as it is
/// where that stays, in the same proportion where it changes, and like it where nothing is known.
fn priced(input: Option<f64>, output: Option<f64>, known: Option<Price>) -> Price {
    let said = input.or(known.map(|k| k.input)).unwrap_or(0.0);
    let cache = |of: fn(&Price) -> f64| match known {
        Some(k) if input.is_none() => of(&k),
        Some(k) if k.input > 0.0 => said * of(&k) / k.input,
        _ => said,
    };
    let output = output.or(known.map(|k| k.output)).unwrap_or(0.0);
    Price { input: said, output, read: cache(|k| k.read), write: cache(|k| k.write) }
}

/// Why a model does not take a reasoning effort: it is known to have others. For people.
pub(crate) fn not_among(row: &ModelRow, variant: &str) -> Option<String> {
    let known = row.variants.is_empty() || row.variants.iter().any(|v| v == variant);
    (!known).then(|| format!("{} has no effort {variant:?}, but {}", row.model, row.variants.join(", ")))
}

/// The effort that a word names: `none` and nothing are the model's own.
pub(crate) fn named(variant: &str) -> Option<String> {
    (!variant.is_empty() && variant != "none").then(|| variant.to_owned())
}

/// The reasoning effort to send: the one asked for, unless the model is known to have others.
pub(crate) fn variant(row: &ModelRow, call: &Call) -> Option<String> {
    let asked = call.variant.clone()?;
    (row.variants.is_empty() || row.variants.contains(&asked)).then_some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelMetadata;

    #[test]
    fn the_table_is_sound() {
        for m in models() {
            assert!(provider(m.provider).is_some(), "{}", m.provider);
            assert!(m.output < m.context && m.context >= 100_000, "{}", m.id);
            assert_eq!(models().filter(|o| (o.provider, o.id) == (m.provider, m.id)).count(), 1, "{}", m.id);
        }
        for p in PROVIDERS.iter().filter(|p| !p.flagship.is_empty()) {
            assert!(find(p.id, p.flagship).is_some(), "{}", p.flagship);
        }
        assert_eq!(find("anthropic", "claude-haiku-4-5-20251001").map(|m| m.context), Some(200_000));
    }

    #[test]
    fn configuration_beats_the_table_and_the_unknown_has_defaults() {
        let (row, price) = describe("acme", "zeta", None, None);
        assert_eq!((row.context, row.output, price), (256_000, None, None));
        assert_eq!((row.images, describe("deepseek", "deepseek-v4-pro", None, None).0.images), (None, Some(false)));
        let metadata = ModelMetadata { context: Some(9_000), input_cost: Some(1.0), ..Default::default() };
        let (row, price) = describe("openai", "gpt-5", Some(&ModelConfig { metadata, ..Default::default() }), None);
        assert_eq!((row.context, row.output), (9_000, Some(128_000)));
        assert_eq!(price.map(|p| (p.input, p.output)), Some((1.0, 10.0)));
    }

    #[test]
    fn a_price_that_is_half_configured_keeps_what_the_cache_costs() {
        let said = |input, output| {
            let metadata = ModelMetadata { input_cost: input, output_cost: output, ..Default::default() };
            describe("anthropic", "claude-opus-5", Some(&ModelConfig { metadata, ..Default::default() }), None)
                .1
                .unwrap()
        };
        let near = |p: Price, want: [f64; 4]| {
            let got = [p.input, p.output, p.read, p.write];
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-9), "{p:?}");
        };
        near(said(None, Some(30.0)), [5.0, 30.0, 0.5, 6.25]);
        near(said(Some(10.0), None), [10.0, 25.0, 1.0, 12.5]);
        let metadata = ModelMetadata { input_cost: Some(2.0), ..Default::default() };
        let new = describe("acme", "zeta", Some(&ModelConfig { metadata, ..Default::default() }), None).1.unwrap();
        near(new, [2.0, 0.0, 2.0, 2.0]);
    }

    #[test]
    fn efforts_are_those_that_exist() {
        let of = |provider: &str, id: &str| describe(provider, id, None, None).0;
        for (provider, id, takes, refuses) in [
            ("anthropic", "claude-opus-5-5", "xhigh", "minimal"),
            ("anthropic", "claude-opus-4-7", "xhigh", "ultra"),
            ("anthropic", "claude-opus-4-6", "max", "xhigh"),
            ("openai", "gpt-5", "minimal", "xhigh"),
            ("openai", "gpt-5.1", "high", "minimal"),
            ("openai", "gpt-5.6-terra", "max", "minimal"),
            ("openai", "gpt-6-sol", "xhigh", "minimal"),
            ("deepseek", "deepseek-v4-pro", "low", "medium"),
        ] {
            assert!(not_among(&of(provider, id), takes).is_none(), "{id} {takes}");
            let words = not_among(&of(provider, id), refuses).unwrap();
            assert!(words.contains(id) && words.contains(refuses) && words.contains("high"), "{words}");
        }
        assert!(not_among(&of("acme", "zeta"), "anything").is_none(), "nothing is known of it");
        assert_eq!((named("none"), named(""), named("low")), (None, None, Some("low".to_owned())));
    }

    #[test]
    fn cost_counts_each_kind() {
        let p = claude(5.0, 25.0).unwrap();
        let cost = p.cost(1_000_000, 1_000_000, 1_000_000, 1_000_000);
        assert!((cost - (5.0 + 0.5 + 6.25 + 25.0)).abs() < 1e-9);
    }
}
