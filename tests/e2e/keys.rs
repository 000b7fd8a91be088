//! Keys that come from a command or a file.

use crate::home;
use glrs_tests::{Dialect, Fake, Home, Reply, View, Wire, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// A home with a fake whose key comes from that setting and from nowhere else.
fn keyed(dialect: Dialect, setting: &str, value: &str) -> (Home, Fake) {
    let (home, fake) = (home(), Fake::start(dialect));
    let mut config = fake.config();
    config["providers"]["fake"].as_object_mut().unwrap().remove("keyEnv");
    config["providers"]["fake"][setting] = json!(value);
    home.config(&config);
    (home, fake)
}

fn failure(view: &View) -> String {
    view.texts("error").last().map(|e| (*e).to_owned()).unwrap_or_default()
}

fn session(home: &Home) -> (Wire, String) {
    let wire = home.wire("ann");
    let id = wire.new_session(home, json!({}));
    (wire, id)
}

#[test]
fn a_key_of_a_command_that_expired_is_fetched_again_and_the_request_sent_once_more() {
    for dialect in Dialect::ALL {
        let count = home().file("count");
        let command = format!("echo x >> {0}; echo key-$(wc -l < {0} | tr -d ' ')", count.display());
        fs::create_dir_all(count.parent().unwrap()).unwrap();
        let (home, fake) = keyed(dialect, "keyCommand", &command);
        let _daemon = home.daemon();
        let (wire, id) = session(&home);
        let ran = || fs::read_to_string(&count).unwrap().lines().count();
        let expired = || Reply::error(dialect, 401, "authentication_error", "the token has expired");
        fake.reply(Reply::say("one"));
        wire.turn(&id, "go");
        fake.reply(expired());
        fake.reply(Reply::say("two"));
        let view = wire.turn(&id, "and again");
        assert_eq!((view.texts("assistant"), view.last_status()), (vec!["one", "two"], "done"));
        let keys: Vec<String> = fake.requests().into_iter().filter_map(|r| r.key).collect();
        assert_eq!((keys.join(" ").as_str(), ran()), ("key-1 key-1 key-2", 2));
        assert_eq!(fake.requests()[1].raw, fake.requests()[2].raw, "the same request");
        // One that is refused again is the end of it; the next turn starts afresh.
        fake.reply(expired());
        fake.reply(expired());
        let view = wire.turn(&id, "once more");
        assert!(failure(&view).contains("keyCommand") && !failure(&view).contains("key-"), "{}", failure(&view));
        assert_eq!((fake.count(), ran()), (5, 3));
        fake.reply(Reply::say("three"));
        assert_eq!(wire.turn(&id, "now?").last_status(), "done");
        assert_eq!((fake.requests()[5].key.as_deref(), ran()), (Some("key-4"), 4));
        fake.assert_clean();
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_what_to_do() {
    let path = home().file("key");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (home, fake) = keyed(Dialect::Anthropic, "keyFile", &path.display().to_string());
    fs::write(&path, "sk-of-the-file\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let _daemon = home.daemon();
    let (wire, id) = session(&home);
    let view = wire.turn(&id, "go");
    assert!(failure(&view).contains(&format!("chmod 600 {}", path.display())), "{}", failure(&view));
    assert_eq!(fake.count(), 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fake.reply(Reply::say("thanks"));
    assert_eq!(wire.turn(&id, "and now?").last_status(), "done");
    assert_eq!(fake.requests()[0].key.as_deref(), Some("sk-of-the-file"));
    fake.assert_clean();
}
