//! A turn's events as the actor takes them.
//!
//! Owns joining: what streamed faster than the session took it comes as one piece, so that a fast
//! stream costs by its bytes and not by its tokens. Order is kept. Must not know what events mean
//! beyond that.

use crate::model::JOINED;
use crate::turn::{EVENTS, Event};
use tokio::sync::mpsc;

/// The receiving end of a running turn.
pub(super) struct Events {
    rx: mpsc::Receiver<Event>,
    tx: mpsc::WeakSender<Event>,
    /// Taken from `rx` while looking for more to join.
    next: Option<Event>,
}

impl Events {
    /// A channel for a turn that begins.
    pub(super) fn new() -> (mpsc::Sender<Event>, Self) {
        let (tx, rx) = mpsc::channel(EVENTS);
        let weak = tx.downgrade();
        (tx, Self { rx, tx: weak, next: None })
    }

    /// A further sending end; none once the turn's task is gone.
    pub(super) fn sender(&self) -> Option<mpsc::Sender<Event>> {
        self.tx.upgrade()
    }

    /// The next event; `None` when the turn's task is gone. Dropped midway it has taken nothing.
    pub(super) async fn recv(&mut self) -> Option<Event> {
        let first = match self.next.take() {
            Some(event) => event,
            None => self.rx.recv().await?,
        };
        Some(self.joined(first))
    }

    /// The next event, if there is one already.
    pub(super) fn try_recv(&mut self) -> Option<Event> {
        let first = self.next.take().or_else(|| self.rx.try_recv().ok())?;
        Some(self.joined(first))
    }

    /// The event, with what follows it directly and is more of the same.
    fn joined(&mut self, mut event: Event) -> Event {
        while let Ok(next) = self.rx.try_recv() {
            if let Some(next) = join(&mut event, next) {
                self.next = Some(next);
                break;
            }
        }
        event
    }
}

/// Appends `next` to `event` where both are of one stream; else gives it back.
fn join(event: &mut Event, next: Event) -> Option<Event> {
    match (event, next) {
        (Event::Chunk(a), Event::Chunk(b)) => a.join(b).map(Event::Chunk),
        (Event::Output { call: x, text: a }, Event::Output { call: y, text: b })
            if *x == y && a.len() + b.len() <= JOINED =>
        {
            a.push_str(&b);
            None
        }
        (_, next) => Some(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Chunk;

    fn show(event: Event) -> String {
        match event {
            Event::Chunk(Chunk::Text(t)) => format!("text {t}"),
            Event::Chunk(Chunk::Reasoning(t)) => format!("reasoning {t}"),
            Event::Output { call, text } => format!("{call} {text}"),
            Event::StepDone => "done".to_owned(),
            _ => "other".to_owned(),
        }
    }

    #[tokio::test]
    async fn neighbours_are_joined_and_nothing_changes_place() {
        let (tx, mut events) = Events::new();
        let text = |t: &str| Event::Chunk(Chunk::Text(t.to_owned()));
        let output = |c: &str, t: &str| Event::Output { call: c.to_owned(), text: t.to_owned() };
        let long = "x".repeat(JOINED - 1);
        let sent = [
            text("a"),
            text("b"),
            Event::Chunk(Chunk::Reasoning("c".to_owned())),
            text("d"),
            output("1", "e"),
            output("1", "f"),
            output("2", "g"),
            Event::StepDone,
            Event::StepDone,
            text(&long),
            text("h"),
            text("i"),
        ];
        for event in sent {
            tx.send(event).await.unwrap();
        }
        let mut seen = vec![show(events.recv().await.unwrap())];
        seen.extend(std::iter::from_fn(|| events.try_recv()).map(show));
        let long = format!("text {long}h");
        assert_eq!(seen, ["text ab", "reasoning c", "text d", "1 ef", "2 g", "done", "done", &long, "text i"]);
        drop(tx);
        assert!(events.recv().await.is_none());
    }
}
