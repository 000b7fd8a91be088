//! Measuring: medians, and a line that names what was measured, its floor and its gate.
//!
//! Owns no threshold. A bench prints; whoever reads it decides. With `GLRS_BENCH_GATE=1` a missed
//! gate ends the bench with exit code 1.

use std::fs;
use std::time::{Duration, Instant};

/// Collects what a bench measured.
#[derive(Debug, Default)]
pub struct Table {
    missed: Vec<String>,
}

impl Table {
    /// An empty table, with its heading printed.
    pub fn new(title: &str) -> Self {
        println!("{title}");
        println!("{:<58} {:>12} {:>12} {:>12}", "what", "measured", "floor", "gate");
        Self::default()
    }

    /// Adds a time. `floor` is what the machine needs for the same without glrs, in the same run.
    pub fn time(&mut self, what: &str, measured: Duration, floor: Option<Duration>, gate: Option<Duration>) {
        let show = |d: Duration| format!("{:.3} ms", d.as_secs_f64() * 1e3);
        self.row(what, &show(measured), floor.map(show), gate.map(show), gate.is_some_and(|g| measured > g));
    }

    /// Adds a figure that is to stay below its gate.
    pub fn at_most(&mut self, what: &str, measured: f64, unit: &str, gate: Option<f64>) {
        let show = |v: f64| format!("{v:.3} {unit}");
        self.row(what, &show(measured), None, gate.map(show), gate.is_some_and(|g| measured > g));
    }

    /// Adds a figure that is to stay above its gate.
    pub fn at_least(&mut self, what: &str, measured: f64, unit: &str, floor: Option<f64>, gate: Option<f64>) {
        let show = |v: f64| format!("{v:.0} {unit}");
        self.row(what, &show(measured), floor.map(show), gate.map(show), gate.is_some_and(|g| measured < g));
    }

    fn row(&mut self, what: &str, measured: &str, floor: Option<String>, gate: Option<String>, missed: bool) {
        let (floor, gate) = (floor.unwrap_or_default(), gate.unwrap_or_default());
        let mark = if missed { "  missed" } else { "" };
        println!("{what:<58} {measured:>12} {floor:>12} {gate:>12}{mark}");
        if missed {
            self.missed.push(what.to_owned());
        }
    }

    /// Ends the bench: exit code 1 when a gate was missed and gates count.
    pub fn finish(self) {
        if !self.missed.is_empty() && std::env::var("GLRS_BENCH_GATE").is_ok_and(|v| v == "1") {
            eprintln!("missed: {}", self.missed.join(", "));
            std::process::exit(1);
        }
    }
}

/// Whether a part of a bench is to run: all are, unless the command line names some
/// (`cargo bench --bench fanout -- alone`).
pub fn wanted(part: &str) -> bool {
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    named.is_empty() || named.iter().any(|n| n == part)
}

/// The median of `n` runs; each run says how long it took.
///
/// # Panics
/// When `n` is 0.
pub fn median(n: usize, mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..n).map(|_| run()).collect();
    times.sort_unstable();
    times[n / 2]
}

/// How long `run` takes.
pub fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Processor time the living threads of a process have used, in microseconds.
pub fn cpu_of(pid: u32) -> Option<u64> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        nanos += stat.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(nanos / 1000)
}

/// How often the threads of a process have been switched to and away from.
pub fn switches_of(pid: u32) -> Option<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let counts = status.lines().filter(|l| l.contains("ctxt_switches"));
        sum += counts.filter_map(|l| l.rsplit(':').next()?.trim().parse::<u64>().ok()).sum::<u64>();
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_own_figures() {
        let mut n = 0;
        assert_eq!(
            median(5, || {
                n += 1;
                Duration::from_millis(n)
            }),
            Duration::from_millis(3)
        );
        let own = std::process::id();
        assert!(cpu_of(own).is_some() && switches_of(own).is_some_and(|s| s > 0));
        assert!(timed(|| ()) < Duration::from_secs(1));
    }
}
