//! SDK clients for a store on this machine.

use super::meter::Meter;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Builder, Credentials, Region, SharedCredentialsProvider, SharedHttpClient,
};
use aws_smithy_runtime_api::client::http::HttpClient;
use std::time::Duration;
use uuid::Uuid;

/// Generous: a healthy store on this machine never takes as long, even if the machine is busy.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Short backoff, because tests wait for it.
const INITIAL_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_millis(20);

/// A client of the store at `endpoint`, with the defaults.
pub fn client(endpoint: &str) -> Client {
    connect(endpoint).client()
}

/// A client of the store at `endpoint`, to be configured.
pub fn connect(endpoint: &str) -> Connect {
    Connect {
        endpoint: endpoint.to_owned(),
        http_client: plain_http(),
        meter: None,
        timeouts: TimeoutConfig::builder()
            // The SDK's own is 3.1 s, which a hundred clients at once may need on a slow machine.
            .connect_timeout(ATTEMPT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build(),
        retries: RetryConfig::standard().with_initial_backoff(INITIAL_BACKOFF).with_max_backoff(MAX_BACKOFF),
    }
}

/// The SDK's own HTTP client without TLS, which is not needed here and slow to set up. Tests must not share it, because its connections
/// live on the runtime of the test that opened them.
pub fn plain_http() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_http()
}

/// The options of a client.
#[derive(Clone, Debug)]
pub struct Connect {
    endpoint: String,
    http_client: SharedHttpClient,
    meter: Option<Meter>,
    timeouts: TimeoutConfig,
    retries: RetryConfig,
}

impl Connect {
    /// Sends through `http_client`, for example [`Faults`](super::faults::Faults).
    pub fn http_client(mut self, http_client: impl HttpClient + 'static) -> Self {
        self.http_client = SharedHttpClient::new(http_client);
        self
    }

    /// Counts with `meter`; only for [`client`](Self::client), because an `SdkConfig` has no interceptors.
    pub fn meter(mut self, meter: &Meter) -> Self {
        self.meter = Some(meter.clone());
        self
    }

    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts = self.timeouts.to_builder().operation_attempt_timeout(timeout).build();
        self
    }

    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts = self.timeouts.to_builder().operation_timeout(timeout).build();
        self
    }

    /// How often a request is sent at most. 1 means no retries.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.retries = self.retries.with_max_attempts(attempts);
        self
    }

    pub fn sdk_config(&self) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(&self.endpoint)
            .region(Region::new("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
                "tests", "tests", None, None, "tests",
            )))
            .http_client(self.http_client.clone())
            .timeout_config(self.timeouts.clone())
            .retry_config(self.retries.clone())
            .build()
    }

    /// The client, with a separate retry quota. The SDK shares one quota between all clients of a process, so tests that inject faults
    /// would use up that of the others.
    pub fn client(&self) -> Client {
        let mut config = Builder::from(&self.sdk_config())
            .retry_partition(RetryPartition::new(Uuid::new_v4().to_string()));
        if let Some(meter) = &self.meter {
            config = config.interceptor(meter.clone());
        }
        Client::from_conf(config.build())
    }
}
