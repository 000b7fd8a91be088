//! The example client in Python does what its first lines say, with the real daemon.

use crate::program::{run, there};
use crate::{exe, source};
use glrs_tests::{Home, json};

#[test]
fn the_python_example_streams_asks_and_joins() {
    exe();
    let home = Home::new();
    if !there(&home, "python3", "--version") {
        eprintln!("skipped: there is no python3 to run protocol/examples/attach.py with");
        return;
    }
    home.config(&json!({"model": "builtin/rehearsal"}));
    let _daemon = home.daemon();
    let script = source("protocol/examples/attach.py").display().to_string();

    let ran = run(&home, "python3", &[&script, "say 5 words"], "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "word1 word2 word3 word4 word5\n"), "{}", ran.stderr);
    let id = ran.stderr.trim().strip_prefix("glrs attach ").expect("how to attach to it").to_owned();

    let ran = run(&home, "python3", &[&script, "--id", &id, "run echo from-a-command"], "y\n");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.stdout.contains("bash asks: echo from-a-command"), "{ran:#?}");
    assert!(ran.stdout.contains("bash gave: from-a-command"), "{ran:#?}");

    let ran = run(&home, "python3", &[&script, "--id", &id, "write notes.txt hello"], "n\n");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.stdout.contains("write asks:") && !home.file("notes.txt").exists(), "{ran:#?}");

    let ran = run(&home, "python3", &[&script, "--id", "0badcafe", "say 1 words"], "");
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(ran.stderr.contains("no session 0badcafe"), "{ran:#?}");
}
