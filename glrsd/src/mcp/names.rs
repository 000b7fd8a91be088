//! What the tools of servers are called: `mcp__server__tool`.
//!
//! Owns: names that every provider takes (at most 64 of `[a-zA-Z0-9_-]`), that are unique, and of
//! which no server's are covered by a rule for another server. Pure.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Longest name that providers take.
const MAX: usize = 64;
/// Longest part that names the server: the rest is for the tool.
const SERVER_MAX: usize = 24;

/// The names of tools, given as (server, tool), in the same order. One pair has one name as long
/// as those before it stay the same.
pub fn names<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut servers: Vec<(&str, String)> = Vec::new();
    let mut taken = BTreeSet::new();
    let mut out = Vec::new();
    for (server, tool) in tools {
        let prefix = match servers.iter().find(|(s, _)| *s == server) {
            Some((_, prefix)) => prefix.clone(),
            None => {
                let known: Vec<&str> = servers.iter().map(|(_, p)| p.as_str()).collect();
                let prefix = server_part(server, &known);
                servers.push((server, prefix.clone()));
                prefix
            }
        };
        let head = format!("mcp__{prefix}__");
        let clean = cleaned(tool);
        let plain = format!("{head}{clean}");
        let name = if plain.len() <= MAX && !clean.is_empty() && !taken.contains(&plain) {
            plain
        } else {
            format!("{head}{}", marked(&clean, MAX - head.len(), &format!("{server}\n{tool}")))
        };
        taken.insert(name.clone());
        out.push(name);
    }
    out
}

/// A server's part. `__` in it would let a rule for `a` cover the server `a__b`, so it has none,
/// and no `_` at its ends.
fn server_part(server: &str, taken: &[&str]) -> String {
    let clean = cleaned(server);
    let mut part = clean.split('_').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("_");
    if part.is_empty() {
        part.push_str("server");
    }
    if part.len() <= SERVER_MAX && !taken.contains(&part.as_str()) { part } else { marked(&part, SERVER_MAX, server) }
}

fn cleaned(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}

/// A name cut to make room for a mark that tells it from its like. The text is ASCII.
fn marked(text: &str, max: usize, whole: &str) -> String {
    let mark: String = Sha256::digest(whole.as_bytes()).iter().take(4).map(|b| format!("{b:02x}")).collect();
    let room = max - mark.len() - 1;
    let kept = text.get(..room.min(text.len())).unwrap_or_default().trim_end_matches('_');
    if kept.is_empty() { mark } else { format!("{kept}_{mark}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_names_stay_plain() {
        let names = names([("git", "log"), ("my.server", "a/b"), ("a__b", "c"), ("a", "b__c"), ("日本", "")]);
        assert_eq!(names[..4], ["mcp__git__log", "mcp__my_server__a_b", "mcp__a_b__c", "mcp__a__b__c"]);
        assert!(names[4].starts_with("mcp__server_"), "{}", names[4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_name_is_taken_by_providers_and_there_is_one_of_each(
            pairs in prop::collection::btree_set(("[ab_.é]{0,40}", "[ab_./é]{0,80}"), 0..30)
        ) {
            let pairs: Vec<(String, String)> = pairs.into_iter().collect();
            let of = |n: usize| names(pairs[..n].iter().map(|(s, t)| (s.as_str(), t.as_str())));
            let all = of(pairs.len());
            for name in &all {
                prop_assert!(name.len() <= MAX && name.starts_with("mcp__"), "{name}");
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
            }
            prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            prop_assert_eq!(&of(pairs.len() / 2)[..], &all[..pairs.len() / 2]);
            let server = |n: &str| n["mcp__".len()..].split("__").next().unwrap().to_owned();
            for (i, a) in all.iter().enumerate() {
                for (j, b) in all.iter().enumerate() {
                    prop_assert_eq!(pairs[i].0 == pairs[j].0, server(a) == server(b), "{} {}", a, b);
                }
            }
        }
    }
}
