//! The daemon as a program of its own. `glrs daemon run` is the same.

fn main() -> std::process::ExitCode {
    let args = std::env::args_os().skip(1).skip_while(|a| a == "run");
    glrsd::main(args)
}
