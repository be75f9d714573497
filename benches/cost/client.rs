//! Clients of the store.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials, SharedCredentialsProvider},
};

/// What a function has from its environment.
pub fn config(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::new("bench", "bench", None, None, "bench");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("eu-central-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build()
}

/// A client with the time-outs that `DynamoDbStore::new` sets: they cost time too.
pub fn with_time_outs(config: &SdkConfig) -> Client {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(1))
        .operation_attempt_timeout(Duration::from_millis(1500))
        .operation_timeout(Duration::from_secs(4))
        .build();
    Client::from_conf(Builder::from(config).timeout_config(timeouts).build())
}
