//! The time of DynamoDB, by which leases and waits are judged: the clock of an operator's machine may be wrong.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        Builder, ConfigBag, Intercept, RuntimeComponents,
        interceptors::BeforeDeserializationInterceptorContextRef,
    },
    error::BoxError,
    types::AttributeValue,
};
use futures_util::future::BoxFuture;
use jiff::fmt::rfc2822::DateTimeParser;
use lambda_idempotency::{
    time::Timestamp,
    world::{SystemWorld, World},
};

use crate::output::span;

/// How far both clocks may be apart and still agree: the header `Date` has whole seconds, and its server may be a second behind.
const TOLERANCE: Duration = Duration::from_secs(2);

/// This machine's world, with the wall clock of the store.
#[derive(Clone, Copy, Debug)]
pub struct ServersClock {
    /// By how much this machine's clock is behind, and by how much it is ahead. One of them is zero.
    behind: Duration,
    ahead: Duration,
}

impl ServersClock {
    /// Reads the time from the header of an answer, whatever the answer is. If there is none, this machine's clock counts.
    pub async fn of(config: Builder, table: &str) -> Self {
        let date = Date::default();
        let config = config.interceptor(date.clone()).build();
        let key = |text: &str| AttributeValue::S(text.to_owned());
        let before = SystemWorld.now();
        let read = Client::from_conf(config)
            .get_item()
            .table_name(table)
            .key("pk", key("clock"))
            .key("sk", key("record"));
        let _ = read.send().await;
        Self::between(before, date.read(), SystemWorld.now())
    }

    /// The clock, if the store's was at `server` between two moments of this machine's.
    fn between(before: Timestamp, server: Option<Timestamp>, after: Timestamp) -> Self {
        let apart = |server: Timestamp| (server.since(after), before.since(server));
        let (behind, ahead) = server.map(apart).unwrap_or_default();
        let beyond = |apart: Duration| if apart > TOLERANCE { apart } else { Duration::ZERO };
        Self { behind: beyond(behind), ahead: beyond(ahead) }
    }

    /// How this machine's clock differs, if it does.
    pub fn differs(&self) -> Option<String> {
        match (self.behind, self.ahead) {
            (Duration::ZERO, Duration::ZERO) => None,
            (Duration::ZERO, ahead) => Some(format!("{} ahead", span(ahead))),
            (behind, _) => Some(format!("{} behind", span(behind))),
        }
    }
}

impl World for ServersClock {
    fn now(&self) -> Timestamp {
        SystemWorld.now().plus(self.behind).minus(self.ahead)
    }

    fn running(&self) -> Duration {
        SystemWorld.running()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemWorld.sleep(duration)
    }

    fn nonce(&self) -> [u8; 16] {
        SystemWorld.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        SystemWorld.spawn(task);
    }
}

/// The header `Date` of the last answer.
#[derive(Clone, Debug, Default)]
struct Date(Arc<Mutex<Option<String>>>);

impl Date {
    fn read(&self) -> Option<Timestamp> {
        let text = self.0.lock().ok()?.take()?;
        let at = DateTimeParser::new().parse_timestamp(&text).ok()?;
        u64::try_from(at.as_millisecond()).ok().map(Timestamp::from_millis)
    }
}

impl Intercept for Date {
    fn name(&self) -> &'static str {
        "date"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let (Some(date), Ok(mut last)) = (context.response().headers().get("date"), self.0.lock()) {
            *last = Some(date.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stores_clock_counts_if_the_machines_differs_by_seconds() {
        const SECOND: Duration = Duration::from_secs(1);
        let (before, after) = (Timestamp::from_secs(10_000), Timestamp::from_secs(10_001));
        let differs = |server| ServersClock::between(before, server, after).differs();
        for agrees in [before.minus(2 * SECOND), before, after.plus(2 * SECOND)] {
            assert_eq!(differs(Some(agrees)), None, "{agrees:?}");
        }
        assert_eq!(differs(None), None, "it says no time");
        assert_eq!(differs(Some(before.minus(90 * SECOND))).as_deref(), Some("1m 30s ahead"));
        assert_eq!(differs(Some(after.plus(3600 * SECOND))).as_deref(), Some("1h 0m behind"));
    }

    #[test]
    fn the_date_of_an_answer_is_read() {
        let date = Date::default();
        let read = |text: &str| {
            *date.0.lock().unwrap() = Some(text.to_owned());
            date.read()
        };
        assert_eq!(read("Sat, 21 Nov 2026 12:26:55 GMT"), Some(Timestamp::from_secs(1_795_264_015)));
        assert_eq!((read("yesterday"), date.read()), (None, None));
    }
}
