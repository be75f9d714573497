//! Test cards that make this function abort or panic on purpose: for the local cloud, behind a feature that no deployment has.
//!
//! They do it in the first execution alone, so that a retry shows what it resumes.

use lambda_idempotency::engine::Execution;

/// The card of an execution.
pub(crate) struct Card<'a> {
    pub(crate) execution: &'a Execution,
    pub(crate) source: &'a str,
}

impl Card<'_> {
    /// `tok_crash_<point>`, `tok_panic_<point>`: `before` or `after` the charge, after the `refund`, or once the n-th phase is kept (`phase_<n>`).
    pub(crate) fn at(&self, point: &str) {
        match self.source.strip_suffix(point) {
            Some("tok_crash_") if self.is_first() => std::process::abort(),
            Some("tok_panic_") if self.is_first() => panic!("test card: panic"),
            _ => {}
        }
    }

    /// `tok_error`: the handler answers 500.
    pub(crate) fn is_error(&self) -> bool {
        self.source == "tok_error" && self.is_first()
    }

    /// `tok_crash_outbox`: the local cloud kills the deliverer of the order's message, once the event bus has it.
    pub(crate) fn test(&self) -> Option<&'static str> {
        (cfg!(feature = "test-cards") && self.source == "tok_crash_outbox").then_some("crash_outbox")
    }

    fn is_first(&self) -> bool {
        cfg!(feature = "test-cards") && self.execution.attempts() == 1
    }
}
