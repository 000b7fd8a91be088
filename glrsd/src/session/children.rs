//! Sessions that do tasks for this one, and the task that this one does for another.
//!
//! Owns both ends of that tie. The parent records each child when it starts and again with its
//! outcome, whatever ends its turn; shows the child's requests as its own, with their origin; and
//! hands answers on. The child tells how it stands through a watch, which neither waits nor fills
//! up, and stops when the parent's call is gone. Must not know what a task is about.

use super::actor::{Actor, NewSession};
use super::live::Record;
use super::looking;
use super::{Cmd, Handle, Reply, Who};
use crate::host::scratch::SessionTmp;
use crate::policy::Rules;
use crate::tools::task::{Done, Standing, Task};
use crate::turn::Started;
use futures_util::future::{pending, select_all};
use glrs_protocol::entry::{Child, Entry, Parent, Title, TurnStatus};
use glrs_protocol::event::{Event, RequestEvent, Resolved};
use glrs_protocol::params;
use glrs_protocol::types::{Mode, Origin, Request, SendMode, Spent};
use glrs_protocol::{ErrorKind, RpcError, SessionId};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The task that a session was made for.
pub struct TaskLink {
    /// Whose it is.
    parent: SessionId,
    /// The parent's call.
    call: String,
    /// What it is, in one line.
    title: String,
    /// Cancelled when the parent's call is gone.
    cancel: CancellationToken,
    /// Whether that was acted on.
    heard: bool,
    /// What the parent sees.
    up: watch::Sender<Standing>,
    /// Most model calls.
    steps: Option<u32>,
    /// Most minutes, and when they are over.
    minutes: Option<u32>,
    until: Option<Instant>,
    /// What the model said last.
    text: String,
    /// Rules that came from the parent.
    rules: Rules,
    /// The parent's private directory, in which this one's lies.
    pub(super) tmp: Arc<SessionTmp>,
}

/// A child that runs.
struct Run {
    call: String,
    title: String,
    handle: Handle,
    standing: watch::Receiver<Standing>,
    /// Its open requests, as shown here.
    requests: Vec<Request>,
    /// Nothing more comes from it.
    gone: bool,
}

/// The children of a session that run.
#[derive(Default)]
pub(super) struct Children(Vec<Run>);

impl Children {
    /// Resolves when something of a child changed; answers which.
    pub async fn changed(&mut self) -> usize {
        let waits = self.0.iter_mut().enumerate().filter(|(_, run)| !run.gone).map(|(i, run)| {
            Box::pin(async move {
                run.gone = run.standing.changed().await.is_err();
                i
            })
        });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return pending().await;
        }
        select_all(waits).await.0
    }

    /// Their open requests.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.0.iter().flat_map(|run| &run.requests)
    }

    fn asking(&self, request: &str) -> Option<&Run> {
        self.0.iter().find(|run| run.requests.iter().any(|r| r.request == request))
    }
}

/// Resolves when the task that a session does is to be stopped.
pub(super) async fn called_off(task: &Option<Box<TaskLink>>) {
    match task {
        Some(task) if !task.heard => task.cancel.cancelled().await,
        _ => pending().await,
    }
}

fn freedom(mode: Mode) -> u8 {
    match mode {
        Mode::Ask => 0,
        Mode::Edits => 1,
        Mode::All => 2,
    }
}

/// An entry of a child's; what does not serialise is left out, as everywhere.
fn entry(child: &Child, at: &str) -> Option<Entry> {
    Entry::custom("glrs:child", child, at).ok()
}

impl Actor {
    /// What the log of a session begins with that does a task.
    pub(super) fn task_entries(&self, at: &str) -> Vec<Entry> {
        let Some(task) = &self.task else { return Vec::new() };
        let parent = Parent { parent: task.parent.to_string(), call_id: task.call.clone() };
        let title = Title { text: task.title.clone(), by: "model".to_owned() };
        [Entry::custom("glrs:parent", &parent, at), Entry::custom("glrs:title", &title, at)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Whether it was made to do a task: then it gives none away.
    pub(super) fn is_child(&self) -> bool {
        self.task.is_some() || self.summary.child
    }

    /// The session it was forked from, or whose task it does.
    pub(super) fn parent(&self) -> Option<String> {
        self.summary.parent.clone().or_else(|| self.task.as_ref().map(|t| t.parent.to_string()))
    }

    /// A call gives a task away.
    pub(super) async fn delegate(
        &mut self,
        call: String,
        task: Task,
        cancel: CancellationToken,
    ) -> Result<Started, String> {
        if self.running.is_none() || cancel.is_cancelled() {
            return Err("Interrupted.".to_owned());
        }
        if self.stopping.is_some() {
            return Err("The daemon is stopping: nothing new is begun.".to_owned());
        }
        if self.is_child() {
            return Err("This session does a task itself, and cannot give one away.".to_owned());
        }
        let mode = task.mode.unwrap_or(self.mode);
        if freedom(mode) > freedom(self.mode) {
            let (asked, own) = (mode.as_str(), self.mode.as_str());
            return Err(format!("The mode {asked} allows more than this session's, {own}: leave it out."));
        }
        let cwd = match &task.cwd {
            None => self.cwd.clone(),
            Some(given) => match looking::directory(&self.cwd, given).await {
                Ok(dir) if dir.starts_with(&self.cwd) => dir,
                _ => return Err(format!("{} is no directory inside {}.", given.display(), self.cwd.display())),
            },
        };
        // What people allowed is allowed for this place only; what is forbidden is so everywhere.
        let allow = if cwd == self.cwd { self.summary.rules.clone() } else { Vec::new() };
        let rules = Rules { allow, deny: self.config.config.deny.clone() };
        let (up, standing) = watch::channel(Standing::default());
        let new = NewSession {
            cwd,
            variant: if task.model.is_none() { self.variant.clone() } else { None },
            model: Some(task.model.unwrap_or_else(|| self.model.clone())),
            mode: Some(mode),
            env: (*self.env).clone(),
            task: Some(Box::new(TaskLink {
                parent: self.id.clone(),
                call: call.clone(),
                title: task.title.clone(),
                cancel,
                heard: false,
                up: up.clone(),
                steps: task.steps,
                minutes: task.minutes,
                until: task.minutes.map(|m| Instant::now() + Duration::from_secs(u64::from(m) * 60)),
                text: String::new(),
                rules,
                tmp: self.tmp.clone(),
            })),
        };
        let Some(handle) = (self.shared.make_child)(new) else {
            return Err("The daemon is stopping: nothing new is begun.".to_owned());
        };
        // It is on record before it does anything: after a crash its end is recorded as well.
        let child = Child {
            child: handle.id.to_string(),
            call_id: call.clone(),
            title: task.title.clone(),
            outcome: None,
            usage: None,
        };
        self.trace_task(&child);
        self.note(&Record::Ran { call: call.clone() });
        let recorded = self.record(&entry(&child, &self.now()).into_iter().collect::<Vec<_>>());
        let synced = self.sync().await;
        self.publish_entries(recorded);
        let id = handle.id.clone();
        let run = Run {
            call,
            title: task.title,
            handle: handle.clone(),
            standing: standing.clone(),
            requests: Vec::new(),
            gone: false,
        };
        self.children.0.push(run);
        synced.map_err(|e| e.message)?;
        let p = params::Send {
            id: id.clone(),
            text: task.prompt,
            mode: SendMode::Queue,
            key: None,
            attachments: Vec::new(),
        };
        let reply: Reply<params::SendResult> = Box::new(move |r| {
            if let Err(e) = r {
                up.send_modify(|s| s.done = Some(Done::failed(e.message)));
            }
        });
        let who = Who { client: 0, by: "task".to_owned() };
        // Its mailbox is new: there is room.
        if let Err(e) = handle.tx.try_send(Box::new(Cmd::Send { who, p, reply })) {
            e.into_inner().fail(RpcError::internal("its session did not start"));
        }
        Ok(Started { id, standing })
    }

    /// Something of a child changed: its requests are shown as they are now.
    pub(super) fn child_changed(&mut self, i: usize) {
        let Some(run) = self.children.0.get_mut(i) else { return };
        let origin = Origin { session: run.handle.id.clone(), title: run.title.clone() };
        let (mut now, over) = {
            let s = run.standing.borrow_and_update();
            let open = if run.gone || s.done.is_some() { Vec::new() } else { s.requests.clone() };
            let was = run.requests.iter().filter(|r| !open.iter().any(|o| o.request == r.request));
            let over: Vec<Resolved> = was.map(|r| s.resolved(&r.request)).collect();
            (open, over)
        };
        now.iter_mut().for_each(|r| r.origin = Some(origin.clone()));
        let new: Vec<Request> =
            now.iter().filter(|r| !run.requests.iter().any(|o| o.request == r.request)).cloned().collect();
        if new.is_empty() && over.is_empty() {
            return;
        }
        run.requests = now;
        self.touch();
        for resolved in over {
            if let Some(by) = &resolved.by {
                self.answered.add(&resolved.request, by);
            }
            self.publish(&Event::Resolved(resolved));
        }
        for request in new {
            self.publish(&Event::Request(RequestEvent { request }));
        }
        self.phase_now();
    }

    /// The call that gave a task away has ended. Answers what is recorded of the outcome.
    pub(super) fn child_over(&mut self, call: &str) -> Option<Entry> {
        let i = self.children.0.iter().position(|run| run.call == call)?;
        self.child_changed(i);
        let run = self.children.0.remove(i);
        self.withdraw_mirrored(&run);
        let over = run.over();
        self.trace_task(&over);
        entry(&over, &self.now())
    }

    /// The turn ends with children that run: each has an outcome all the same.
    pub(super) fn children_over(&mut self) -> Vec<Entry> {
        let at = self.now();
        let runs = std::mem::take(&mut self.children.0);
        runs.iter().for_each(|run| self.withdraw_mirrored(run));
        let over: Vec<Child> = runs.iter().map(Run::over).collect();
        over.iter().for_each(|child| self.trace_task(child));
        over.iter().filter_map(|child| entry(child, &at)).collect()
    }

    fn withdraw_mirrored(&self, run: &Run) {
        for r in &run.requests {
            let request = r.request.clone();
            self.publish(&Event::Resolved(Resolved { request, decision: "withdrawn".to_owned(), by: None }));
        }
    }

    /// Outcomes of children that a daemon that died left without.
    pub(super) fn children_lost(&self, at: &str) -> Vec<Entry> {
        let lost = |c: &Child| Child { outcome: Some(TurnStatus::Interrupted), ..c.clone() };
        self.summary.children.iter().filter_map(|c| entry(&lost(c), at)).collect()
    }

    /// Hands an answer on to the child that asked. Gives the reply back when none did.
    pub(super) fn answer_of_child(
        &self,
        who: &Who,
        p: &params::Answer,
        reply: Reply<params::Done>,
    ) -> Option<Reply<params::Done>> {
        let Some(run) = self.children.asking(&p.request) else { return Some(reply) };
        let p = params::Answer { id: run.handle.id.clone(), ..p.clone() };
        if let Err(e) = run.handle.tx.try_send(Box::new(Cmd::Answer { who: who.clone(), p, reply })) {
            // Never waited for: a session does not wait for another one.
            let state = ErrorKind::Busy { state: "running".to_owned() };
            e.into_inner().fail(RpcError::new(state, "the session that asks is busy: answer again in a moment"));
        }
        None
    }

    /// The parent's call is gone: what is done for it stops.
    pub(super) async fn task_called_off(&mut self) {
        if let Some(task) = &mut self.task {
            task.heard = true;
        }
        if self.running.is_some() {
            return self.cancel_turn(true, None).await;
        }
        self.task_over(TurnStatus::Interrupted, String::new(), 0);
    }

    /// Why a message is refused that comes too late for its task.
    pub(super) fn too_late(&self, who: &Who) -> Option<RpcError> {
        let late = who.client == 0 && self.task.as_ref().is_none_or(|t| t.cancel.is_cancelled());
        late.then(|| RpcError::new(ErrorKind::Conflict, "the task was called off before it began"))
    }

    /// Most steps of a turn.
    pub(super) fn max_steps(&self) -> u32 {
        let own = self.task.as_ref().and_then(|t| t.steps).unwrap_or(u32::MAX);
        self.config.config.max_steps.min(own).max(1)
    }

    /// Minutes a turn may take, for the model.
    pub(super) fn deadline_minutes(&self) -> Option<u64> {
        let own = self.task.as_ref().and_then(|t| t.minutes).map(u64::from);
        [self.config.config.deadline_minutes, own].into_iter().flatten().min()
    }

    /// When the task's time is over.
    pub(super) fn task_until(&self) -> Option<Instant> {
        self.task.as_ref().and_then(|t| t.until)
    }

    /// Stops the task when its time is over.
    pub(super) async fn task_timer(&mut self, now: Instant) {
        let Some(task) = self.task.as_mut().filter(|t| t.until.is_some_and(|u| u <= now)) else { return };
        task.until = None;
        let minutes = task.minutes.unwrap_or_default();
        self.cancel_turn(true, Some(format!("its time of {minutes} min is up"))).await;
    }

    /// Rules that hold while a task is done.
    pub(super) fn task_rules(&self) -> Option<&Rules> {
        self.task.as_ref().map(|t| &t.rules)
    }

    /// Tells the parent what is done.
    pub(super) fn task_line(&self, what: &str) {
        if let Some(task) = &self.task {
            let step = self.running.as_ref().map_or(1, |r| r.step.max(1));
            task.up.send_modify(|s| s.line(format!("step {step} · {what}")));
        }
    }

    /// Keeps what the model said last.
    pub(super) fn task_text(&mut self, text: &str) {
        if let Some(task) = &mut self.task
            && !text.trim().is_empty()
        {
            text.clone_into(&mut task.text);
        }
    }

    /// Tells the parent what it has used.
    pub(super) fn task_spent(&self) {
        let Some(task) = &self.task else { return };
        let u = &self.summary.usage;
        let spent = Spent { calls: u.calls, input: u.input, output: u.output, cached: u.cached, cost: u.cost };
        task.up.send_if_modified(|s| {
            s.spent = spent;
            // Nobody waits for it: it is looked at when the task is over.
            false
        });
    }

    /// Tells the parent which requests are open.
    pub(super) fn task_requests(&self) {
        let Some(task) = &self.task else { return };
        let open: Vec<Request> = self.open_requests().cloned().collect();
        task.up.send_if_modified(|s| {
            let changed = s.requests != open;
            s.requests = open;
            changed
        });
    }

    /// Tells the parent how a request was answered.
    pub(super) fn task_resolved(&self, resolved: &Resolved) {
        if let Some(task) = &self.task {
            task.up.send_modify(|s| s.resolve(resolved.clone()));
        }
    }

    /// The task is over. What it left running in the background ends with it: nobody looks after it.
    pub(super) fn task_over(&mut self, status: TurnStatus, words: String, steps: u32) {
        self.task_spent();
        let Some(task) = self.task.take() else { return };
        self.jobs = super::jobs::Jobs::new(self.tmp.clone());
        let text = task.text;
        task.up.send_modify(|s| {
            s.requests.clear();
            s.done = Some(Done { status, text, words, steps });
        });
    }
}

impl Run {
    /// Its outcome: its own words for it where it came that far.
    fn over(&self) -> Child {
        let standing = self.standing.borrow();
        let status = standing.done.as_ref().map(|d| d.status);
        Child {
            child: self.handle.id.to_string(),
            call_id: self.call.clone(),
            title: self.title.clone(),
            outcome: Some(status.unwrap_or(TurnStatus::Interrupted)),
            usage: Some(standing.spent).filter(|s| *s != Spent::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Paths;
    use crate::model::ModelSets;
    use crate::registry::Registry;
    use crate::store::Store;
    use glrs_protocol::params::Send;

    /// The clock goes on by itself while nothing else happens: a minute costs none.
    #[tokio::test(start_paused = true)]
    async fn a_task_whose_time_is_up_is_stopped_with_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::scratch(dir.path());
        let store = Store::open(paths.clone()).unwrap();
        let registry = Registry::new(store.clone(), paths.clone(), ModelSets::default());
        let parent: SessionId = "cafe0001".parse().unwrap();
        let (up, mut standing) = watch::channel(Standing::default());
        let task = TaskLink {
            parent: parent.clone(),
            call: "c".to_owned(),
            title: "t".to_owned(),
            cancel: CancellationToken::new(),
            heard: false,
            up,
            steps: None,
            minutes: Some(1),
            until: Some(Instant::now() + Duration::from_secs(60)),
            text: String::new(),
            rules: Rules::default(),
            tmp: Arc::new(SessionTmp::new(registry.shared.scratch.clone(), parent)),
        };
        let new = NewSession {
            cwd: dir.path().canonicalize().unwrap(),
            model: Some("builtin/rehearsal".to_owned()),
            variant: None,
            mode: None,
            env: crate::host::Env::default(),
            task: Some(Box::new(task)),
        };
        let started = Instant::now();
        let handle = (registry.shared.make_child)(new).unwrap();
        let text = "slow 1000000 words".to_owned();
        let p = Send { id: handle.id.clone(), text, mode: SendMode::Queue, key: None, attachments: Vec::new() };
        let who = Who { client: 0, by: "task".to_owned() };
        handle.tx.send(Box::new(Cmd::Send { who, p, reply: Box::new(|r| drop(r.unwrap())) })).await.unwrap();
        let over = standing.wait_for(|s| s.done.is_some()).await.unwrap().clone();
        let done = over.done.unwrap();
        assert_eq!((done.status, done.words.as_str()), (TurnStatus::Interrupted, "its time of 1 min is up"));
        assert!(done.text.starts_with("word1 word2"), "{}", done.text);
        let took = started.elapsed().as_secs();
        assert!((60..70).contains(&took), "{took} s");
        // It is on record in its own log as well, which is there once it has said so.
        let log = store.load(&handle.id).unwrap();
        let kept: Vec<String> = (1..=log.len()).filter_map(|n| Some(log.entry(n).ok()??.get().to_owned())).collect();
        assert!(kept.iter().any(|e| e.contains("its time of 1 min is up")), "{kept:?}");
        assert!(kept.last().is_some_and(|e| e.contains("interrupted")), "{kept:?}");
        let run = Run {
            call: "c".to_owned(),
            title: "t".to_owned(),
            handle,
            standing: standing.clone(),
            requests: Vec::new(),
            gone: false,
        };
        assert_eq!(run.over().outcome, Some(TurnStatus::Interrupted));
    }
}
