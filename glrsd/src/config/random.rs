//! Properties: any JSON loads, and what the check lets through fits the types.

use super::check::check;
use super::keys::ROOT;
use super::tests::Place;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Names worth trying, separated by white space.
const NAMES: &str = "model compactAt keepTurns maxSteps shrinkAt micro bytes mode followUpMode allow deny sandbox
    vitals tools extensions disable settings mcpServers command args env url type hooks retention days providers openai
    local api dialect keyEnv keyFile headers requestOptions models metadata context inputCost variants images $schema deadlineMinutes
    a/b tools.disable compact_at";
/// Places inside a file worth filling, as JSON pointers.
const PLACES: &str = "/providers/openai /providers/openai/models/m /providers/openai/models/m/metadata /mcpServers/s
    /tools /extensions /retention /micro";
/// Texts that fit somewhere, or nearly.
const TEXTS: [&str; 11] =
    ["a/b", "all", "ask", "http://h/v1", "openai", "stdio", "KEY", "x y", "", " ", "\u{1b}[m\u{202e}"];

fn word(of: &'static str) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(of.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

fn object(pairs: Vec<(String, Value)>) -> Value {
    Value::Object(pairs.into_iter().collect())
}

/// JSON as people might write it: known names in likely and unlikely places, any values.
pub(super) fn likely_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![-1.0, 0.0, 0.5, 1.0, 2.0, 1e15, 1e300]).prop_map(|n: f64| json!(n)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(&TEXTS[..]).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(5, 64, 6, |inner| {
        let name = prop_oneof![4 => word(NAMES), 1 => ".{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name, inner), 0..6).prop_map(object),
        ]
    });
    // Mostly an object, or one where the table expects it: else nearly all would end at the top.
    let top = prop::collection::vec((word(NAMES), value.clone()), 0..4).prop_map(object);
    let placed = (word(PLACES), top.clone()).prop_map(|(place, inner)| {
        place.rsplit('/').filter(|part| !part.is_empty()).fold(inner, |inner, part| json!({ part: inner }))
    });
    prop_oneof![4 => top, 4 => placed, 1 => value]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_json_loads_and_what_the_check_lets_through_fits(user in likely_json(), project in likely_json(), trusted: bool) {
        let place = Place::new();
        place.user(&user).project(&project);
        let loaded = place.load(trusted);
        prop_assert!(!loaded.notices.iter().any(|n| n.starts_with("the configuration is ignored")), "{:?}", loaded.notices);
        let shown = loaded.notices.iter().all(|n| !n.contains(|c: char| c.is_control() || c == '\u{202e}'));
        prop_assert!(shown);
        // What is let through is let through again: the check is a projection.
        if let Value::Object(map) = user {
            let once = check("f", true, &ROOT, Value::Object(map), &Map::new()).values;
            let twice = check("f", true, &ROOT, Value::Object(once.clone()), &Map::new());
            prop_assert!(twice.notices.is_empty());
            prop_assert_eq!(once, twice.values);
        }
    }

    #[test]
    fn any_bytes_load(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let place = Place::new();
        std::fs::write(place.user_file(), bytes).unwrap();
        prop_assert!(place.load(false).notices.len() <= 51);
    }
}
