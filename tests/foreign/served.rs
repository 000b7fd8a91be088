//! A foreign server that runs while a test does.
//!
//! Owns its start (a line `at <address>` on stdout) and its end: it goes when its stdin is closed,
//! which also happens when the test is killed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long one may take to listen.
const START: Duration = Duration::from_secs(60);

/// A running server. Dropping it ends it.
pub struct Served {
    child: Child,
    url: String,
}

impl Served {
    /// Starts it in `dir` and waits until it says where it is.
    pub fn start(mut command: Command, dir: &Path) -> Result<Self, String> {
        let told = dir.join("served.log");
        let log = File::create(&told).map_err(|e| e.to_string())?;
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(|e| format!("it cannot be run: {e}"))?;
        let out = child.stdout.take().ok_or("it has no stdout")?;
        let (tell, address) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("at ") {
                    let _ = tell.send(url.trim().to_owned());
                }
            }
        });
        let url = address.recv_timeout(START);
        let mut served = Self { child, url: String::new() };
        match url {
            Ok(url) if url.starts_with("http://127.0.0.1:") => served.url = url,
            Ok(url) => return Err(format!("it listens elsewhere: {url}")),
            Err(_) => {
                let said = std::fs::read_to_string(&told).unwrap_or_default();
                return Err(format!("it does not come up: {}", said.lines().last().unwrap_or_default()));
            }
        }
        Ok(served)
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
