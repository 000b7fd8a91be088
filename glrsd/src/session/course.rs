//! What compaction remembers between attempts, so that it neither loops nor gives up too soon.
//!
//! Pure bookkeeping: how long to wait after an attempt, when two in a row freed too little, and
//! whether the history is still the one a brief was cut from.

/// What a compaction's course needs to remember between attempts.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// So many answers of the provider to wait for before anything more is done by itself.
    waits: u32,
    /// How many in a row freed less than a tenth.
    poor: u32,
    /// How many briefs in a row failed.
    failed: u32,
    /// An overflow was answered with a compaction, and the provider took nothing since.
    pub overflowed: bool,
    /// Counts clears, rewinds and compactions.
    pub generation: u64,
    /// Something was done since the session came into memory: merely looking at one costs nothing.
    pub awake: bool,
    /// That the summariser's window is a small one was said.
    pub small_told: bool,
}

impl Course {
    /// A person did something about it: try again when it is due.
    pub fn refresh(&mut self) {
        (self.poor, self.failed, self.waits) = (0, 0, 0);
    }

    /// An attempt begins: no second one before the provider answers again.
    pub fn began(&mut self) {
        self.waits = self.waits.max(1);
    }

    /// The provider answered.
    pub fn reported(&mut self) {
        self.waits = self.waits.saturating_sub(1);
        self.overflowed = false;
    }

    /// A brief failed: each further failure in a row doubles the wait, up to sixteen answers.
    pub fn failed(&mut self) {
        self.waits = self.waits.max(1 << self.failed.min(4));
        self.failed = self.failed.saturating_add(1);
    }

    /// An attempt ended that shrank the context from `before` to `after`. Answers whether this is
    /// where it gives up.
    pub fn judge(&mut self, before: u64, after: u64) -> bool {
        self.failed = 0;
        let poor = after.saturating_mul(10) > before.saturating_mul(9);
        self.poor = if poor { self.poor + 1 } else { 0 };
        self.poor == 2
    }

    /// Whether it gave up by itself.
    pub fn stuck(&self) -> bool {
        self.poor >= 2
    }

    /// Whether another attempt may be made by itself.
    pub fn ready(&self) -> bool {
        self.waits == 0 && !self.stuck()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_wait_longer_each_time_and_a_person_resets_that() {
        let mut c = Course::default();
        for wait in [1, 2, 4, 8, 16, 16] {
            assert!(c.ready());
            c.began();
            c.failed();
            for _ in 0..wait {
                assert!(!c.ready());
                c.reported();
            }
        }
        c.began();
        c.failed();
        c.refresh();
        assert!(c.ready());
    }

    #[test]
    fn two_poor_ones_in_a_row_are_enough() {
        let mut c = Course::default();
        assert!(!c.judge(100, 95));
        assert!(!c.judge(100, 50));
        assert!(!c.judge(100, 95) && !c.stuck());
        assert!(c.judge(100, 120) && c.stuck() && !c.ready());
        c.refresh();
        assert!(!c.stuck());
    }
}
