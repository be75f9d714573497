//! Batches of log events
//! ([format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/SubscriptionFilters.html)).

use serde::Deserialize;

use crate::event::Message;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Batch {
    message_type: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    log_group: String,
    #[serde(default)]
    log_stream: String,
    #[serde(default)]
    subscription_filters: Vec<String>,
    #[serde(default)]
    log_events: Vec<LogEvent>,
}

#[derive(Deserialize)]
struct LogEvent {
    id: String,
}

/// The batch, which its source has unpacked; `None` if CloudWatch Logs only tests whether it may send any.
pub(super) fn open(message: &Message) -> Result<Option<Message>, &'static str> {
    let never = "the body is no batch of CloudWatch Logs";
    let batch: Batch = serde_json::from_str(&message.body).map_err(|_| never)?;
    let Batch { message_type, owner, log_group, log_stream, subscription_filters, log_events } = batch;
    match (&*message_type, &*log_events) {
        ("CONTROL_MESSAGE", _) => Ok(None),
        ("DATA_MESSAGE", [first, .., last] | [first @ last]) => {
            let filters = subscription_filters.join(",");
            let id = [&owner, &log_group, &log_stream, &filters, &first.id, &last.id];
            // With a dot, because a part of a key is never empty.
            let id = id.map(|part| format!("{part}.")).into();
            Ok(Some(message.holding(message.body.clone(), id)))
        }
        _ => Err(never),
    }
}
