//! One turn as `--print` sees it: from the message's entry to the turn's end.
//!
//! Owns which entries belong to our turn, when it is over and what the result object says. Pure:
//! entries and states go in, the result comes out.

use super::failure::Exit;
use glrs_protocol::entry::{Child, Entry, TurnStatus};
use glrs_protocol::types::{Request, Spent};
use serde_json::{Value, json};

/// A request that was denied because nobody was there to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Denied {
    /// The tool that asked.
    pub tool: String,
    /// What it was about.
    pub title: String,
    /// The rule that would have allowed it.
    pub rule: Option<String>,
    /// The model's id of the call.
    pub call_id: String,
}

impl Denied {
    /// The request that is denied.
    pub fn of(r: &Request) -> Self {
        Self { tool: r.tool.clone(), title: r.title.clone(), rule: r.rule.clone(), call_id: r.call_id.clone() }
    }

    /// What to tell whoever ran us.
    pub fn words(&self) -> String {
        let how = match &self.rule {
            Some(rule) => {
                format!("allow it with the rule {rule:?} in \"allow\" of your own config.json, or --mode all")
            }
            None => "--mode all allows it".to_owned(),
        };
        format!("denied {}: {} ({how})", self.tool, self.title)
    }
}

/// How the wait ended when it was not the turn that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// `--timeout` ran out.
    Timeout,
    /// ctrl+c.
    Signal,
    /// Somebody took the message back before it ran.
    Removed,
}

/// A turn that is waited for.
#[derive(Debug, Default)]
pub struct Watch {
    key: String,
    text: String,
    started: bool,
    status: Option<TurnStatus>,
    over: bool,
    answer: String,
    error: Option<String>,
    steps: u64,
    input: u64,
    output: u64,
    cached: u64,
    cost: f64,
    /// What the sessions used that did tasks for it.
    children: Spent,
    /// What was denied.
    pub denied: Vec<Denied>,
    /// What ended the wait early.
    pub cut: Option<Cut>,
}

impl Watch {
    /// Waits for the turn of the message `text`, sent with `key`.
    pub fn new(key: &str, text: &str) -> Self {
        Self { key: key.to_owned(), text: text.trim().to_owned(), ..Self::default() }
    }

    /// Whether our turn has begun.
    pub fn started(&self) -> bool {
        self.started
    }

    /// Whether our turn runs now.
    pub fn ours(&self) -> bool {
        self.started && self.status.is_none()
    }

    /// Whether everything of our turn is here.
    pub fn over(&self) -> bool {
        self.over
    }

    /// Takes an entry; true when it belongs to our turn.
    pub fn entry(&mut self, entry: &Entry) -> bool {
        if !self.started {
            // Several messages may be joined into one turn; then the text tells.
            if let Entry::User(u) = entry
                && (u.key.as_deref() == Some(&self.key) || (!self.text.is_empty() && u.text.contains(&self.text)))
            {
                self.started = true;
            }
            return self.started;
        }
        if self.over {
            return false;
        }
        match entry {
            Entry::User(u) if self.status.is_some() && !u.steer => {
                self.over = true;
                return false;
            }
            Entry::Assistant(a) if !a.text.trim().is_empty() => self.answer.clone_from(&a.text),
            Entry::Error(e) => self.error = Some(e.text.clone()),
            Entry::Usage(u) => {
                self.steps += 1;
                let output = u.output.unwrap_or(0);
                self.output += output;
                self.input += u.input.unwrap_or_else(|| u.tokens.saturating_sub(output));
                self.cached += u.cached;
                self.cost += u.cost.unwrap_or(0.0);
            }
            Entry::Custom(c) if c.custom == "glrs:child" => {
                if let Ok(Child { usage: Some(spent), .. }) = serde_json::from_str(c.data.get()) {
                    self.children += spent;
                }
            }
            Entry::Turn(t) if t.status.closes() => self.status = Some(t.status),
            _ => {}
        }
        true
    }

    /// Takes the session's state: whether a turn runs, and whether our row still waits (`None`: it
    /// never did). True when our message is nowhere to be seen: it is about to start, or somebody
    /// took it back, and only the daemon can tell.
    pub fn state(&mut self, running: bool, row_waits: Option<bool>) -> bool {
        if self.status.is_some() && !running {
            self.over = true;
        }
        !self.started && !running && row_waits == Some(false)
    }

    /// The answer: the last words of the model in our turn.
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match (self.cut, self.status) {
            (Some(Cut::Timeout), _) => Exit::Timeout,
            (Some(Cut::Signal), _) => Exit::Interrupted,
            (Some(Cut::Removed), _) => Exit::Error,
            (None, Some(TurnStatus::Done)) if self.denied.is_empty() => Exit::Done,
            (None, Some(TurnStatus::Done)) => Exit::Denied,
            (None, Some(TurnStatus::Interrupted)) => Exit::Interrupted,
            (None, _) => Exit::Error,
        }
    }

    fn subtype(&self) -> &'static str {
        match (self.cut, self.status) {
            (Some(Cut::Timeout), _) => "error_timeout",
            (Some(Cut::Signal), _) | (None, Some(TurnStatus::Interrupted)) => "error_interrupted",
            (Some(Cut::Removed), _) => "error_removed",
            (None, Some(TurnStatus::Done)) => "success",
            (None, Some(TurnStatus::Limit)) => "error_max_turns",
            (None, Some(TurnStatus::Context)) => "error_context",
            (None, _) => "error_during_execution",
        }
    }

    /// What went wrong, for stderr; `None` when nothing did.
    pub fn trouble(&self) -> Option<String> {
        let words = match (self.cut, self.status) {
            (Some(Cut::Timeout), _) => "the time given with --timeout ran out; the turn was interrupted",
            (Some(Cut::Signal), _) => "interrupted",
            (Some(Cut::Removed), _) => "somebody took the message back before it ran",
            (None, Some(TurnStatus::Done)) => return None,
            (None, Some(TurnStatus::Interrupted)) => "somebody interrupted the turn",
            (None, Some(TurnStatus::Limit)) => "the step limit was reached: send \"continue\" to resume",
            (None, Some(TurnStatus::Context)) => "stopped to make room in the context: send \"continue\" to resume",
            (None, _) => return Some(self.error.clone().unwrap_or_else(|| "the turn failed".to_owned())),
        };
        Some(words.to_owned())
    }

    /// The result object that scripts know.
    pub fn result(&self, session: &str, duration_ms: u64) -> Value {
        let is_error = self.subtype() != "success";
        let result = if self.answer.is_empty() { self.trouble().unwrap_or_default() } else { self.answer.clone() };
        let denials: Vec<Value> = self
            .denied
            .iter()
            .map(|d| json!({"tool_name": d.tool, "tool_use_id": d.call_id, "title": d.title, "rule": d.rule}))
            .collect();
        let mut value = json!({
            "type": "result",
            "subtype": self.subtype(),
            "is_error": is_error,
            "result": result,
            "session_id": session,
            "sessionId": session,
            "num_turns": self.steps,
            "duration_ms": duration_ms,
            "total_cost_usd": self.cost,
            "usage": {
                "input_tokens": self.input,
                "output_tokens": self.output,
                "cache_read_input_tokens": self.cached,
            },
            "permission_denials": denials,
        });
        if let (true, Some(words), Some(map)) = (is_error, self.trouble(), value.as_object_mut()) {
            map.insert("error".to_owned(), Value::String(words));
        }
        let c = &self.children;
        if let (true, Some(map)) = (c.calls > 0, value.as_object_mut()) {
            let children = json!({
                "cost_usd": c.cost, "input_tokens": c.input, "output_tokens": c.output,
                "cache_read_input_tokens": c.cached,
            });
            map.insert("children".to_owned(), children);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(w: &mut Watch, lines: &[&str]) {
        for l in lines {
            w.entry(&Entry::parse(l).unwrap());
        }
    }

    const USER: &str = r#"{"type":"user","text":"hi","key":"k1"}"#;
    const DONE: &str = r#"{"type":"turn","messages":[],"status":"done"}"#;

    #[test]
    fn a_turn_is_over_with_its_turn_entry_and_the_state() {
        let mut w = Watch::new("k1", "hi");
        feed(
            &mut w,
            &[r#"{"type":"user","text":"other","key":"k0"}"#, r#"{"type":"assistant","text":"not ours"}"#, DONE],
        );
        w.state(false, None);
        assert!(!w.started() && !w.over());
        feed(
            &mut w,
            &[
                USER,
                r#"{"type":"assistant","text":"let me look"}"#,
                r#"{"type":"usage","tokens":100,"cached":40,"input":90,"output":10,"cost":0.5}"#,
                r#"{"type":"custom","custom":"glrs:child","data":{"child":"k","callId":"c","title":"t"}}"#,
                r#"{"type":"custom","custom":"glrs:child","data":{"child":"k","callId":"c","title":"t","outcome":"done","usage":{"calls":3,"input":7,"output":2,"cost":0.25}}}"#,
                r#"{"type":"turn","messages":[],"status":"step"}"#,
                r#"{"type":"assistant","text":"it is green"}"#,
                r#"{"type":"usage","tokens":120,"cached":60,"output":20}"#,
                DONE,
            ],
        );
        assert!(!w.over(), "errors may still follow");
        w.state(false, None);
        assert!(w.over());
        assert_eq!((w.answer(), w.exit()), ("it is green", Exit::Done));
        let r = w.result("3f9a1c2b", 12);
        assert_eq!(r["subtype"], "success");
        assert_eq!(r["is_error"], false);
        assert_eq!(r["num_turns"], 2);
        assert_eq!((&r["children"]["input_tokens"], &r["children"]["cost_usd"]), (&json!(7), &json!(0.25)));
        assert_eq!(r["usage"]["input_tokens"], 190);
        assert_eq!(r["usage"]["output_tokens"], 30);
        assert_eq!(r["usage"]["cache_read_input_tokens"], 100);
        assert_eq!((r["session_id"].as_str(), r["sessionId"].as_str()), (Some("3f9a1c2b"), Some("3f9a1c2b")));
    }

    #[test]
    fn the_next_turn_ends_ours_even_when_no_idle_state_is_between() {
        let mut w = Watch::new("k1", "hi");
        feed(&mut w, &[USER, DONE]);
        w.state(true, None);
        assert!(!w.over());
        feed(&mut w, &[r#"{"type":"user","text":"next"}"#, r#"{"type":"assistant","text":"not ours"}"#]);
        assert!(w.over() && w.answer().is_empty());
    }

    #[test]
    fn failures_say_why_and_have_their_exit_codes() {
        let mut w = Watch::new("k1", "hi");
        feed(&mut w, &[USER, r#"{"type":"error","text":"401 from the provider"}"#]);
        feed(&mut w, &[r#"{"type":"turn","messages":[],"status":"failed"}"#]);
        assert_eq!((w.exit(), w.trouble().as_deref()), (Exit::Error, Some("401 from the provider")));
        assert_eq!(w.result("x", 1)["error"], "401 from the provider");
        for (status, exit) in [("interrupted", Exit::Interrupted), ("limit", Exit::Error), ("context", Exit::Error)] {
            let mut w = Watch::new("k1", "hi");
            feed(&mut w, &[USER, &format!(r#"{{"type":"turn","messages":[],"status":"{status}"}}"#)]);
            assert_eq!(w.exit(), exit);
            assert!(w.trouble().is_some());
        }
    }

    #[test]
    fn denials_timeouts_and_removed_messages_show_in_the_exit_code() {
        let mut w = Watch::new("k1", "hi");
        feed(&mut w, &[USER, DONE]);
        w.denied.push(Denied {
            tool: "bash".into(),
            title: "git push".into(),
            rule: Some("bash(git push*)".into()),
            call_id: "c".into(),
        });
        assert_eq!(w.exit(), Exit::Denied);
        assert!(w.denied[0].words().contains("bash(git push*)"));
        w.cut = Some(Cut::Timeout);
        assert_eq!(w.exit(), Exit::Timeout);
        let mut w = Watch::new("k1", "hi");
        assert!(!w.state(true, Some(false)), "it may be starting");
        assert!(!w.state(false, Some(true)) && !w.state(false, None));
        assert!(w.state(false, Some(false)) && !w.over(), "only the daemon can tell");
        w.cut = Some(Cut::Removed);
        assert_eq!((w.cut, w.exit()), (Some(Cut::Removed), Exit::Error));
    }

    #[test]
    fn joined_messages_are_found_by_their_text() {
        let mut w = Watch::new("k1", "mine");
        feed(&mut w, &[r#"{"type":"user","text":"theirs\n\nmine","key":"k0"}"#]);
        assert!(w.started());
    }
}
