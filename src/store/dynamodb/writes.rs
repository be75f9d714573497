//! The client of the writes that the engine retries.
//!
//! It has no retries, no time-outs and no stalled-stream protection: each is a timer of its own in every call, and wakes the runtime. It
//! shares connections and credentials with the client of the reads, so that the first write needs no second handshake.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::{
    Client,
    config::{
        AsyncSleep, Builder, ConfigBag, Intercept, RuntimeComponents, SharedHttpClient, SharedIdentityCache,
        Sleep, StalledStreamProtectionConfig, interceptors::BeforeSerializationInterceptorContextRef,
        retry::RetryConfig, timeout::TimeoutConfig,
    },
    error::BoxError,
};
use futures_util::FutureExt;

/// The client `client`, for writes.
pub(super) fn client_of_writes(client: &Client) -> Client {
    let (mut config, set) = (client.config().to_builder(), client.config().timeout_config().cloned());
    let timeouts = match used_by(client) {
        Some(Used { http_client, identity_cache, timeouts }) => {
            config.set_http_client(http_client);
            config.set_identity_cache(identity_cache);
            timeouts
        }
        // One of its interceptors lets no call begin.
        None => set,
    };
    // An HTTP client keeps other connections for each connect time-out and each read time-out, so both stay. The first needs no timer on
    // an open connection.
    let timeouts = timeouts.unwrap_or_else(TimeoutConfig::disabled).into_builder();
    let config = config
        .timeout_config(timeouts.disable_operation_timeout().disable_operation_attempt_timeout().build())
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Client::from_conf(config.build())
}

/// What the calls of a client use. Its settings do not say it: for what they leave out, the SDK makes a default of each client's own.
#[derive(Debug)]
struct Used {
    http_client: Option<SharedHttpClient>,
    identity_cache: SharedIdentityCache,
    timeouts: Option<TimeoutConfig>,
}

/// Learns it by a call that ends before it is sent.
fn used_by(client: &Client) -> Option<Used> {
    let asking = Asking::default();
    // A time-out would need a runtime.
    let without_timer = Builder::new().sleep_impl(Never);
    let call = client.list_tables().customize().config_override(without_timer).interceptor(asking.clone());
    let _ended = call.send().now_or_never();
    asking.0.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Takes down what a call uses, and ends it.
#[derive(Clone, Debug, Default)]
struct Asking(Arc<Mutex<Option<Used>>>);

impl Intercept for Asking {
    fn name(&self) -> &'static str {
        "Asking"
    }

    fn read_before_serialization(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Used {
            http_client: components.http_client(),
            identity_cache: components.identity_cache(),
            timeouts: config.load::<TimeoutConfig>().cloned(),
        });
        Err("nothing is sent".into())
    }
}

/// A timer that never ends.
#[derive(Debug)]
struct Never;

impl AsyncSleep for Never {
    fn sleep(&self, _: std::time::Duration) -> Sleep {
        Sleep::new(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_dynamodb::config::{BehaviorVersion, Region};

    use super::*;

    fn client(timeouts: Option<TimeoutConfig>) -> Client {
        let config = Builder::new().behavior_version(BehaviorVersion::latest());
        let mut config = config.region(Region::new("eu-central-1"));
        config.set_timeout_config(timeouts);
        Client::from_conf(config.build())
    }

    // Outside of a runtime, as a store may be opened.
    #[test]
    fn writes_use_the_http_client_and_the_connect_time_out_of_reads() {
        let seconds = Duration::from_secs;
        let own =
            TimeoutConfig::builder().operation_timeout(seconds(9)).operation_attempt_timeout(seconds(3));
        let read = TimeoutConfig::builder().read_timeout(seconds(2)).connect_timeout(seconds(1));
        for timeouts in [None, Some(own.build()), Some(read.build()), Some(TimeoutConfig::disabled())] {
            let reads = client(timeouts);
            let writes = client_of_writes(&reads);
            let [reads, writes] = [&reads, &writes].map(|client| used_by(client).expect("what it uses"));
            let address = |used: &Used| format!("{:?}", used.http_client);
            assert_eq!(address(&reads), address(&writes));
            let [reads, writes] = [reads, writes].map(|used| used.timeouts.expect("its time-outs"));
            assert_eq!(writes.connect_timeout(), reads.connect_timeout());
            assert_eq!(writes.read_timeout(), reads.read_timeout());
            assert_eq!((writes.operation_timeout(), writes.operation_attempt_timeout()), (None, None));
        }
    }
}
