//! The client of the store.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region, timeout::TimeoutConfig},
};

/// The client has time-outs, as in production: they cost time too, for guarded and for raw calls.
pub fn client(endpoint: &str) -> Client {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(20))
        .operation_timeout(Duration::from_secs(60))
        .build();
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .timeout_config(timeouts)
        .build();
    Client::from_conf(config)
}
