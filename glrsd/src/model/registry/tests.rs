//! Names, defaults, keys and local servers.

use super::Models;
use crate::config::{Config, ModelConfig, ProviderConfig};
use crate::host::Env;
use crate::model::testing::{Answer, Kept, Server, ask};
use crate::model::{FailureKind, Model};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn config(json: serde_json::Value) -> Config {
    serde_json::from_value(json).unwrap()
}

fn refused(models: &Models, name: &str, env: &Env) -> (FailureKind, String) {
    let f = models.resolve(name, env).err().unwrap_or_else(|| panic!("{name} is refused"));
    (f.kind, f.message)
}

#[test]
fn names_that_lead_nowhere_say_what_to_do() {
    let models = Models::new(&config(json!({"providers": {
        "odd": {"api": "http://h/v1", "dialect": "klingon"},
        "bare": {},
        "broken": {"api": "not an address"}
    }})));
    let env = Env::default();
    let (kind, words) = refused(&models, "acme/x", &env);
    assert!(kind == FailureKind::NotFound && words.contains("anthropic") && words.contains("builtin"), "{words}");
    assert_eq!(refused(&models, "gpt-5", &env).0, FailureKind::NotFound);
    assert_eq!(refused(&models, "builtin/other", &env).0, FailureKind::NotFound);
    let (kind, words) = refused(&models, "groq/anything", &env);
    assert!(kind == FailureKind::Auth && words.contains("GROQ_API_KEY"), "{words}");
    assert!(refused(&models, "azure/x", &env).1.contains("providers.azure.api"));
    assert!(refused(&models, "odd/x", &env).1.contains("anthropic, openai, responses, gemini"));
    assert!(refused(&models, "bare/x", &env).1.contains("providers.bare.api"));
    assert!(refused(&models, "broken/x", &env).1.contains("providers.broken.api"));
}

#[test]
fn any_model_of_a_known_provider_resolves() {
    let models = Models::new(&config(json!({"providers": {
        "mine": {"api": "http://127.0.0.1:9/v1", "models": {"tiny": {"metadata": {"context": 4096}}}}
    }})));
    let e = env(&[("OPENROUTER_API_KEY", "k")]);
    let row = |name: &str| models.resolve(name, &e).unwrap().row().clone();
    assert_eq!(row("openrouter/some/new-model").model, "openrouter/some/new-model");
    assert_eq!(row("openrouter/some/new-model").context, 256_000);
    assert_eq!(row("mine/tiny").context, 4_096);
    assert_eq!(row("ollama/qwen3").context, 256_000);
    assert_eq!(row("builtin/rehearsal").model, "builtin/rehearsal");
}

#[test]
fn the_default_follows_configuration_environment_and_keys() {
    let plain = Models::new(&Config::default());
    assert_eq!(plain.default_model(&Env::default()), "builtin/rehearsal");
    assert_eq!(plain.default_model(&env(&[("XAI_API_KEY", "k")])), "xai/grok-4.6");
    assert_eq!(
        plain.default_model(&env(&[("XAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")])),
        "anthropic/claude-opus-5-5"
    );
    assert_eq!(plain.default_model(&env(&[("XAI_API_KEY", "k"), ("GLRS_MODEL", "a/b")])), "a/b");
    let set = Models::new(&Config { model: Some("c/d".into()), ..Config::default() });
    assert_eq!(set.default_model(&env(&[("GLRS_MODEL", "a/b")])), "c/d");
    let own = Models::new(&config(json!({"providers": {"mine": {"api": "http://h/v1", "models": {"one": {}}}}})));
    assert_eq!(own.default_model(&Env::default()), "mine/one");
}

#[test]
fn ready_models_come_first_and_the_others_say_what_is_missing() {
    let models = Models::new(&Config::default());
    let rows = models.list(&env(&[("DEEPSEEK_API_KEY", "k")]));
    let ready: Vec<&str> = rows.iter().take_while(|r| r.ready).map(|r| r.model.as_str()).collect();
    assert_eq!(ready, ["deepseek/deepseek-v4-pro", "deepseek/deepseek-flash", "builtin/rehearsal"]);
    assert!(rows.iter().skip(3).all(|r| !r.ready && r.missing.is_some()));
    let claude = rows.iter().find(|r| r.model == "anthropic/claude-opus-5-5").unwrap();
    assert!(claude.missing.as_ref().unwrap().contains("ANTHROPIC_API_KEY"));
}

#[tokio::test]
async fn a_local_server_is_found_and_used() {
    let listing = r#"{"object":"list","data":[{"id":"nomic-embed-text"},{"id":"qwen3:8b"}]}"#;
    let done = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\n";
    let server = Server::start(vec![Answer::typed(200, "application/json", listing), Answer::stream(done)]).await;
    let mut config = Config::default();
    for (id, api) in [
        ("ollama", server.api()),
        ("llamacpp", "http://127.0.0.1:1/v1".into()),
        ("lmstudio", "http://127.0.0.1:1/v1".into()),
    ] {
        config.providers.insert(id.into(), ProviderConfig { api: Some(api), ..Default::default() });
    }
    let models = Models::new(&config);
    models.discover().await;
    models.discover().await;
    assert_eq!(models.default_model(&Env::default()), "ollama/qwen3:8b");
    assert!(models.list(&Env::default()).iter().any(|r| r.model == "ollama/qwen3:8b" && r.ready));
    let model = models.resolve("ollama/qwen3:8b", &Env::default()).unwrap();
    let reply = model.call(&ask("hi"), &mut Kept::default(), &CancellationToken::new()).await.unwrap();
    assert_eq!(reply.message.joined_text(), "ok");
    let heads: Vec<String> = server.requests().into_iter().map(|r| r.0).collect();
    assert_eq!(heads.len(), 2, "the second look asks nobody");
    assert!(heads[0].starts_with("GET /v1/models ") && !heads[1].contains("authorization"), "{heads:?}");
}

#[tokio::test]
async fn keys_options_and_headers_reach_the_request() {
    let done = r#"{"type":"message","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let server = Server::start(vec![Answer::typed(200, "application/json", done)]).await;
    let provider = ProviderConfig {
        api: Some(server.api()),
        dialect: Some("anthropic".into()),
        key_command: Some("echo from-command".into()),
        headers: [("x-team".to_owned(), "blue".to_owned())].into(),
        request_options: json!({"metadata": {"user_id": "u"}}).as_object().unwrap().clone(),
        models: [(
            "m".to_owned(),
            ModelConfig { request_options: json!({"top_k": 3}).as_object().unwrap().clone(), ..Default::default() },
        )]
        .into(),
        ..Default::default()
    };
    let mut config = Config::default();
    config.providers.insert("proxy".into(), provider);
    let env = env(&[("PATH", "/usr/bin:/bin")]);
    let mut call = ask("hi");
    call.env = Arc::new(env.clone());
    let model: Arc<dyn Model> = Models::new(&config).resolve("proxy/m", &env).unwrap();
    let reply = model.call(&call, &mut Kept::default(), &CancellationToken::new()).await.unwrap();
    assert_eq!(reply.message.joined_text(), "ok");
    let (head, body) = server.requests().remove(0);
    assert!(head.starts_with("POST /v1/messages "), "{head}");
    for line in ["x-api-key: from-command", "anthropic-version: 2023-06-01", "x-team: blue"] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert_eq!((&body["metadata"]["user_id"], &body["top_k"], &body["model"]), (&json!("u"), &json!(3), &json!("m")));
}

#[test]
fn each_provider_is_spoken_to_in_the_dialect_of_its_address() {
    let e = env(&[("OPENAI_API_KEY", "k"), ("GEMINI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]);
    let url = |providers: serde_json::Value, model: &str| {
        let models = Models::new(&config(json!({ "providers": providers })));
        models.url(model, &e).unwrap()
    };
    let none = || json!({});
    assert_eq!(url(none(), "openai/gpt-5"), "https://api.openai.com/v1/responses");
    assert_eq!(
        url(none(), "google/gemini-3.8-flash"),
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    );
    assert!(url(none(), "google/tunedModels/mine").contains("/v1beta/tunedModels/mine:streamGenerateContent?"));
    assert_eq!(url(none(), "anthropic/claude-opus-5-5"), "https://api.anthropic.com/v1/messages");
    for (id, api, dialect, want) in [
        ("openai", "https://eu.api.openai.com/v1", json!(null), "https://eu.api.openai.com/v1/responses"),
        ("openai", "http://127.0.0.1:9/v1", json!(null), "http://127.0.0.1:9/v1/chat/completions"),
        ("openai", "http://127.0.0.1:9/v1", json!("responses"), "http://127.0.0.1:9/v1/responses"),
        ("openai", "https://api.openai.com/v1", json!("openai"), "https://api.openai.com/v1/chat/completions"),
        (
            "google",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            json!(null),
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("mine", "http://h/v1?v=2", json!("gemini"), "http://h/v1/models/m:streamGenerateContent?v=2&alt=sse"),
        (
            "azure",
            "https://r.openai.azure.com/openai/v1",
            json!("responses"),
            "https://r.openai.azure.com/openai/v1/responses",
        ),
    ] {
        let said = json!({ id: {"api": api, "dialect": dialect, "keyEnv": "OPENAI_API_KEY"} });
        assert_eq!(url(said, &format!("{id}/m")), want);
    }
}

#[tokio::test]
async fn keys_go_where_each_dialect_looks_for_them() {
    for (provider, dialect, line) in [
        ("p", "gemini", "x-goog-api-key: k-1"),
        ("p", "responses", "authorization: Bearer k-1"),
        ("azure", "responses", "api-key: k-1"),
        ("azure", "openai", "api-key: k-1"),
    ] {
        let server = Server::start(vec![Answer::typed(500, "text/plain", "no")]).await;
        let said = json!({"api": server.api(), "dialect": dialect, "keyEnv": "P_KEY"});
        let models = Models::new(&config(json!({"providers": { provider: said }})));
        let mut call = ask("hi");
        call.env = Arc::new(env(&[("P_KEY", "k-1")]));
        let model = models.resolve(&format!("{provider}/m"), &call.env).unwrap();
        model.call(&call, &mut Kept::default(), &CancellationToken::new()).await.unwrap_err();
        let (head, _) = server.requests().remove(0);
        assert!(head.contains(line), "{dialect}: {head}");
        assert_eq!(head.matches("k-1").count(), 1, "{head}");
    }
}
