//! One executable that is client and daemon: `glrsd …` and `glrs daemon run …` are the daemon,
//! everything else is the client.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let is_daemon = args.first().is_some_and(|a| Path::new(a).file_stem().is_some_and(|n| n == "glrsd"));
    if is_daemon {
        return glrsd::main(args.into_iter().skip(1));
    }
    let word = |n: usize| args.get(n).and_then(|a| a.to_str());
    let wants_help = args.iter().skip(3).any(|a| a == "--help" || a == "-h");
    if word(1) == Some("daemon") && word(2) == Some("run") && !wants_help {
        return glrsd::main(args.into_iter().skip(3));
    }
    glrs_client::main(args.into_iter())
}
