//! The key `sandbox`: off, on, or on with settings.
//!
//! Owns how it is written: `true`, `false` or an object, which means on. Must not know what keeps a
//! command to it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the agent's commands are kept to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Whether they run in a sandbox at all.
    pub on: bool,
    /// Whether they may use TCP in it.
    pub network: bool,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self { on: false, network: true }
    }
}

#[derive(Serialize, Deserialize)]
struct Settings {
    #[serde(default = "yes")]
    network: bool,
}

fn yes() -> bool {
    true
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Flag(bool),
    Settings(Settings),
}

impl Serialize for Sandbox {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self { on: true, network: false } => Written::Settings(Settings { network: false }),
            Self { on, .. } => Written::Flag(*on),
        }
        .serialize(to)
    }
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(from)? {
            Written::Flag(on) => Self { on, network: true },
            Written::Settings(s) => Self { on: true, network: s.network },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_people_write_it() {
        for (text, on, network) in [("false", false, true), ("true", true, true), (r#"{"network":false}"#, true, false)]
        {
            let sandbox: Sandbox = serde_json::from_str(text).unwrap();
            assert_eq!((sandbox.on, sandbox.network), (on, network));
            assert_eq!(serde_json::to_string(&sandbox).unwrap(), text);
        }
        assert!(serde_json::from_str::<Sandbox>("{}").unwrap() == Sandbox { on: true, network: true });
    }

    #[test]
    fn a_project_that_is_not_trusted_can_only_tighten_it() {
        use crate::config::check::check;
        use crate::config::keys::ROOT;
        use serde_json::json;
        let waits = |lower: serde_json::Value, own: serde_json::Value| {
            let lower = json!({ "sandbox": lower });
            let checked = check("f", false, &ROOT, json!({ "sandbox": own }), lower.as_object().unwrap());
            !checked.untrusted.is_empty()
        };
        assert!(waits(json!(true), json!(false)) && waits(json!(true), json!(null)));
        assert!(waits(json!({"network": false}), json!(true)) && waits(json!({"network": false}), json!(false)));
        assert!(waits(json!({"network": false}), json!({"network": true})));
        assert!(waits(json!({"network": false}), json!({"network": null})));
        assert!(!waits(json!(false), json!(true)) && !waits(json!(true), json!({"network": false})));
        assert!(!waits(json!({"network": false}), json!({})));
    }
}
