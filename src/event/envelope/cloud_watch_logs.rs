//! Batches of log events
//! ([format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/SubscriptionFilters.html)).

use std::borrow::Cow;

use serde::Deserialize;

use crate::event::{Message, disposition::Disposition, feed::compressed};

/// As the function itself gets it. In a stream it is unpacked already.
#[derive(Deserialize)]
struct Packed<'a> {
    #[serde(borrow)]
    awslogs: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

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

/// The batch; `None` if CloudWatch Logs only tests whether it may send any.
pub(super) fn open(message: &Message) -> Result<Option<Message>, String> {
    let never = "the body is no batch of CloudWatch Logs";
    let body = match serde_json::from_str::<Packed<'_>>(&message.body) {
        Ok(packed) => match compressed(&packed.awslogs.data) {
            Ok(text) => text,
            Err(Disposition::Dead(reason)) => return Err(reason),
            Err(_) => return Err(never.to_owned()),
        },
        Err(_) => message.body.clone(),
    };
    let Ok(batch) = serde_json::from_str::<Batch>(&body) else { return Err(never.to_owned()) };
    let Batch { message_type, owner, log_group, log_stream, subscription_filters, log_events } = batch;
    match (&*message_type, &*log_events) {
        ("CONTROL_MESSAGE", _) => Ok(None),
        ("DATA_MESSAGE", [first, .., last] | [first @ last]) => {
            let filters = subscription_filters.join(",");
            let id = [&owner, &log_group, &log_stream, &filters, &first.id, &last.id];
            // With a dot, because a part of a key is never empty.
            Ok(Some(message.holding(body, id.map(|part| format!("{part}.")).into())))
        }
        _ => Err(never.to_owned()),
    }
}
