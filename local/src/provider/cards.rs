//! Test cards.

use std::time::Duration;

const SLOWEST: Duration = Duration::from_secs(600);

/// What a test card makes the provider do.
pub enum Card {
    Good,
    Declined,
    Slow(Duration),
    SilentCharged,
    SilentNotCharged,
}

impl Card {
    pub fn parse(source: &str) -> Option<Self> {
        Some(match source {
            "tok_ok" => Self::Good,
            // These make the function fail, not the provider.
            "tok_error" => Self::Good,
            _ if source.starts_with("tok_crash_") || source.starts_with("tok_panic_") => Self::Good,
            "tok_declined" => Self::Declined,
            "tok_timeout_charged" => Self::SilentCharged,
            "tok_timeout_not_charged" => Self::SilentNotCharged,
            _ => {
                let delay = Duration::from_millis(source.strip_prefix("tok_slow_")?.parse().ok()?);
                (delay <= SLOWEST).then_some(Self::Slow(delay))?
            }
        })
    }
}
