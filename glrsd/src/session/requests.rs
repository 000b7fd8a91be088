//! Requests: what a tool asks and a person answers.
//!
//! Owns turns.md "Tools and permission": a request is session state — durable, shown to every
//! client, waiting as long as it takes, never answered by itself, first valid answer wins, closing
//! the turn withdraws it.

use super::actor::Actor;
use super::live::Record;
use super::trace::Witness;
use super::{Reply, Who};
use crate::config;
use crate::fold::summary::ResolvedEntry;
use crate::policy::{self, Action, Effect, Rules, Verdict};
use crate::tools::{Answer, Ask};
use glrs_protocol::entry::Entry;
use glrs_protocol::event::{Event, RequestEvent, Resolved};
use glrs_protocol::params;
use glrs_protocol::types::{Decision, Phase, Request, RequestKind};
use glrs_protocol::{ErrorKind, RpcError};
use tokio::sync::oneshot;

/// An open request.
pub(super) struct Open {
    pub request: Request,
    /// The call that waits; absent after a restart, until the call asks again.
    pub waiter: Option<oneshot::Sender<Answer>>,
    /// An answer that came before the call asked again.
    pub answered: Option<Answer>,
}

/// Answers of the last so many requests are remembered, to tell late ones who was first.
const REMEMBERED: usize = 64;

/// Who answered what.
#[derive(Default)]
pub(super) struct Answered(std::collections::VecDeque<(String, String)>);

impl Answered {
    pub(super) fn add(&mut self, request: &str, by: &str) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((request.to_owned(), by.to_owned()));
    }

    fn by(&self, request: &str) -> Option<&str> {
        self.0.iter().find(|(r, _)| r == request).map(|(_, by)| by.as_str())
    }
}

impl Actor {
    /// The rules in force.
    pub(super) fn rules(&self) -> Rules {
        let mut allow = self.config.config.allow.clone();
        allow.extend(self.summary.rules.iter().cloned());
        allow.extend(config::allowed(&self.shared.store.allowed(), &self.config.root, &self.cwd));
        allow.extend(self.task_rules().iter().flat_map(|r| r.allow.iter().cloned()));
        Rules { allow, deny: self.forbidden() }
    }

    /// Those of them that forbid.
    pub(super) fn forbidden(&self) -> Vec<String> {
        let mut deny = self.config.config.deny.clone();
        deny.extend(self.task_rules().iter().flat_map(|r| r.deny.iter().cloned()));
        deny
    }

    /// A tool asks: the policy answers, or a person is asked.
    pub(super) async fn asked(&mut self, call: String, tool: String, ask: Ask, answer: oneshot::Sender<Answer>) {
        let request = match ask {
            Ask::Permission { effect, asked, title, body } => {
                let acts = !matches!(effect, Effect::Read(..) | Effect::None);
                let place = self.running.as_ref().map_or_else(|| self.place(), |r| r.place.get());
                let around = place.around();
                let rules = self.rules();
                let asked = asked.as_deref();
                let action = Action { tool: &tool, effect: effect.clone(), asked, around };
                match policy::decide(self.mode, &rules, &action) {
                    Verdict::Run => {
                        let (by, rule) = policy::reason(self.mode, &rules, &action);
                        let rule = rule.as_deref();
                        self.trace(&Witness::Permission { tool: &tool, decision: "allow", by: &by, rule });
                        if acts {
                            self.note(&Record::Ran { call });
                        }
                        let _ = answer.send(Answer { decision: Decision::Allow, words: None, by: None });
                        return;
                    }
                    Verdict::Deny { rule } => {
                        let by = Witness::Permission { tool: &tool, decision: "deny", by: "rule", rule: Some(&rule) };
                        self.trace(&by);
                        let words = Some(format!("the rule {rule} forbids it"));
                        let _ =
                            answer.send(Answer { decision: Decision::Deny, words, by: Some(format!("rule {rule}")) });
                        return;
                    }
                    Verdict::Ask { rule } => Request {
                        request: format!("r{}", self.word()),
                        kind: RequestKind::Permission,
                        tool,
                        title,
                        body,
                        options: Vec::new(),
                        rule,
                        sandbox: matches!(effect, Effect::Exec(_)).then(|| self.sandbox_words()).flatten(),
                        call_id: call,
                        origin: None,
                        at: self.now(),
                    },
                }
            }
            Ask::Question { text, options } => Request {
                request: format!("r{}", self.word()),
                kind: RequestKind::Question,
                tool,
                title: crate::fold::summary::title_line(&text),
                body: text,
                options,
                rule: None,
                sandbox: None,
                call_id: call,
                origin: None,
                at: self.now(),
            },
        };
        self.open_request(request, answer).await;
    }

    async fn open_request(&mut self, request: Request, answer: oneshot::Sender<Answer>) {
        // A call that asks again after a restart meets the request it left.
        if let Some(open) = self.requests.iter_mut().find(|o| o.request.call_id == request.call_id) {
            if let Some(given) = open.answered.take() {
                let id = open.request.request.clone();
                self.requests.retain(|o| o.request.request != id);
                self.deliver(&request.call_id, given, answer);
                return;
            }
            open.waiter = Some(answer);
            return self.phase_now();
        }
        self.trace(&Witness::Asked { tool: &request.tool, request: &request.request });
        self.note(&Record::Request { r: request.clone() });
        // When the disk fails the request is still shown: the turn stops at its next step anyway.
        let _ = self.sync_live().await;
        self.requests.push(Open { request: request.clone(), waiter: Some(answer), answered: None });
        self.publish(&Event::Request(RequestEvent { request }));
        self.phase_now();
    }

    /// Lets a call go on. That it takes effect now is noted first: after a crash it is not run again.
    fn deliver(&mut self, call: &str, given: Answer, answer: oneshot::Sender<Answer>) {
        if matches!(given.decision, Decision::Allow | Decision::Always) {
            self.note(&Record::Ran { call: call.to_owned() });
        }
        let _ = answer.send(given);
    }

    pub(super) async fn answer(&mut self, who: &Who, p: params::Answer, reply: Reply<params::Done>) {
        let Some(reply) = self.answer_of_child(who, &p, reply) else { return };
        let Some(i) = self.requests.iter().position(|o| o.request.request == p.request && o.answered.is_none()) else {
            return reply(Err(match self.answered.by(&p.request) {
                Some(by) => {
                    RpcError::new(ErrorKind::AlreadyResolved { by: by.to_owned() }, format!("already answered by {by}"))
                }
                None => RpcError::new(ErrorKind::NotFound, format!("no request {} waits in this session", p.request)),
            }));
        };
        let request = self.requests[i].request.clone();
        let fits = match (request.kind, p.decision) {
            (RequestKind::Question, Decision::Answer) => p.words.as_ref().is_some_and(|w| !w.trim().is_empty()),
            (RequestKind::Question, Decision::Deny) => true,
            (RequestKind::Permission, Decision::Allow | Decision::Always | Decision::Deny) => true,
            _ => false,
        };
        if !fits {
            let wanted = match request.kind {
                RequestKind::Question => "a question takes decision \"answer\" with words, or \"deny\"",
                _ => "a permission takes decision \"allow\", \"always\" or \"deny\"",
            };
            return reply(Err(RpcError::params(wanted)));
        }
        let data = ResolvedEntry {
            request: request.request.clone(),
            call_id: request.call_id.clone(),
            decision: p.decision.as_str().to_owned(),
            by: Some(who.by.clone()),
            words: p.words.clone(),
            rule: (p.decision == Decision::Always).then(|| request.rule.clone()).flatten(),
        };
        let recorded = match Entry::custom("glrs:resolved", &data, &self.now()) {
            Ok(e) => self.record(&[e]),
            Err(_) => Vec::new(),
        };
        if let Err(e) = self.sync().await {
            return reply(Err(e));
        }
        if let Some(rule) = data.rule.clone() {
            self.remember_rule(rule).await;
        }
        self.note(&Record::Resolved { id: request.request.clone() });
        self.answered.add(&request.request, &who.by);
        let (tool, rule) = (&request.tool, data.rule.as_deref());
        self.trace(&Witness::Permission { tool, decision: p.decision.as_str(), by: &who.by, rule });
        reply(Ok(params::Done {}));
        self.publish_entries(recorded);
        let resolved = Resolved {
            request: request.request.clone(),
            decision: p.decision.as_str().to_owned(),
            by: Some(who.by.clone()),
        };
        self.task_resolved(&resolved);
        self.publish(&Event::Resolved(resolved));
        let given = Answer { decision: p.decision, words: p.words, by: Some(who.by.clone()) };
        match self.requests[i].waiter.take() {
            Some(waiter) => {
                self.requests.remove(i);
                self.deliver(&request.call_id, given, waiter);
            }
            None => {
                self.requests[i].answered = Some(given);
                self.toolbox.answer_came();
            }
        }
        self.phase_now();
    }

    /// Keeps a rule for the other sessions of the project. Where the disk does not take it, it holds
    /// for this one, whose log has it.
    async fn remember_rule(&mut self, rule: String) {
        let (store, root, cwd) = (self.shared.store.clone(), self.config.root.clone(), self.cwd.clone());
        let kept = tokio::task::spawn_blocking(move || {
            store.change_allowed(|text| config::with_allowed(text, &root, &cwd, &rule)).map_err(|e| e.to_string())
        });
        if let Err(e) = kept.await.unwrap_or_else(|e| Err(e.to_string())) {
            tracing::warn!(session = %self.id, error = e, "a rule could not be remembered for its project");
        }
    }

    /// Withdraws every open request: its turn is over.
    pub(super) fn withdraw_all(&mut self) {
        for open in std::mem::take(&mut self.requests) {
            self.trace(&Witness::Withdrawn { tool: &open.request.tool, request: &open.request.request });
            self.note(&Record::Resolved { id: open.request.request.clone() });
            self.publish(&Event::Resolved(Resolved {
                request: open.request.request,
                decision: "withdrawn".into(),
                by: None,
            }));
        }
    }

    /// Recomputes what the turn is doing after a request came or went.
    pub(super) fn phase_now(&mut self) {
        let asking = self.shown_requests().next().is_some();
        self.task_requests();
        if let Some(r) = &mut self.running {
            let phase = if asking { Phase::Asking } else { Phase::Tool };
            if r.phase != phase {
                r.phase = phase;
            }
        }
        self.publish_state();
    }
}
