//! The local cloud, as a mapping uses it: it invokes the function, and sends what is dropped to a queue.

use std::time::Duration;

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use reqwest::{StatusCode, redirect::Policy};

use crate::{batch::Outcome, errors::chain, mapping::Mapping};

/// Longer than the longest invocation of Lambda.
const LONGEST_INVOCATION: Duration = Duration::from_secs(16 * 60);

/// A client of the local cloud.
pub struct Cloud {
    http: reqwest::Client,
    invocations: String,
    /// The queue of what is dropped.
    dropped: Option<(aws_sdk_sqs::Client, String)>,
}

impl Cloud {
    /// # Errors
    /// If an address is wrong.
    pub fn of(mapping: &Mapping, region: &str) -> Result<Self, String> {
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(LONGEST_INVOCATION);
        let queue = mapping.on_failure.as_deref().map(|queue| {
            let url = reqwest::Url::parse(queue).map_err(|error| format!("the queue {queue}: {error}"))?;
            let config = aws_sdk_sqs::Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new(region.to_owned()))
                .credentials_provider(Credentials::new("local", "local", None, None, "local"))
                .http_client(aws_smithy_http_client::Builder::new().build_http())
                .endpoint_url(url.origin().ascii_serialization());
            Ok::<_, String>((aws_sdk_sqs::Client::from_conf(config.build()), queue.to_owned()))
        });
        let Mapping { cloud, function, .. } = mapping;
        Ok(Self {
            http: http.build().map_err(|error| error.to_string())?,
            invocations: format!(
                "{}/2015-03-31/functions/{function}/invocations",
                cloud.trim_end_matches('/')
            ),
            dropped: queue.transpose()?,
        })
    }

    /// Invokes the function with this event.
    pub async fn invoke(&self, event: String) -> Outcome {
        let answer = match self.http.post(&self.invocations).body(event).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => {
                return Outcome::NotBegun(format!("the local cloud does not listen at {}", self.invocations));
            }
            Err(error) => return Outcome::Failed(format!("no answer: {}", chain(&error))),
        };
        let (status, is_error) = (answer.status(), answer.headers().contains_key("x-amz-function-error"));
        let body = match answer.bytes().await {
            Ok(body) => body,
            Err(error) => return Outcome::Failed(format!("half an answer: {}", chain(&error))),
        };
        match status {
            StatusCode::OK if !is_error => Outcome::Answer(body.to_vec()),
            StatusCode::OK | StatusCode::PAYLOAD_TOO_LARGE => Outcome::Failed(reason(&body)),
            _ => Outcome::NotBegun(format!("the local cloud answers {status}: {}", reason(&body))),
        }
    }

    /// Sends the place of what is dropped to its queue, if there is one.
    ///
    /// # Errors
    /// If it was perhaps not sent.
    pub async fn send(&self, letter: String) -> Result<(), String> {
        let Some((client, queue)) = &self.dropped else { return Ok(()) };
        let sent = client.send_message().queue_url(queue).message_body(letter).send().await;
        sent.map(|_| ()).map_err(|error| format!("the queue of what is dropped: {}", chain(&error)))
    }
}

/// What an error of Lambda says.
fn reason(body: &[u8]) -> String {
    let error: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let said = error["errorMessage"].as_str().or_else(|| error["Message"].as_str());
    said.unwrap_or("no reason given").to_owned()
}
