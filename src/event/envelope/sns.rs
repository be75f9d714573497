//! Notifications of SNS, and what else SNS writes to a queue
//! ([formats](https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html)).

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use crate::event::Message;

const NOTIFICATION: &str = "Notification";

const NO_NOTIFICATION: &str = "the body is not a notification of SNS";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification {
    #[serde(rename = "Type")]
    kind: String,
    message_id: String,
    message: String,
    #[serde(default)]
    message_attributes: Option<HashMap<String, Attribute>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    #[serde(rename = "Type")]
    kind: Option<String>,
    value: Option<String>,
}

/// A message about a subscription.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Confirmation<'a> {
    #[serde(rename = "Type", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "Token")]
    _token: String,
    #[serde(rename = "TopicArn")]
    _topic: String,
}

/// What SNS invokes a function with, without a queue between.
#[derive(Deserialize)]
struct Direct {
    #[serde(rename = "Records")]
    records: Vec<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    #[serde(rename = "Sns")]
    sns: Notification,
}

/// The notification, as a queue or as a function gets it.
fn notification(body: &str) -> Result<Notification, &'static str> {
    if let Ok(notification) = serde_json::from_str(body) {
        return Ok(notification);
    }
    let Ok(Direct { mut records }) = serde_json::from_str(body) else { return Err(NO_NOTIFICATION) };
    // SNS sends one record in each. Several would be several effects under one message.
    if records.len() > 1 {
        return Err("the event of SNS has several records");
    }
    records.pop().map(|Delivery { sns }| sns).ok_or(NO_NOTIFICATION)
}

/// The message in a notification.
pub(super) fn open(message: &Message) -> Result<Message, &'static str> {
    let Notification { message_id, kind, message: body, message_attributes } = notification(&message.body)?;
    if kind != NOTIFICATION {
        return Err(confirmation(&message.body).unwrap_or(NO_NOTIFICATION));
    }
    let mut published = message.holding(body, vec![message_id]);
    for (name, attribute) in message_attributes.unwrap_or_default() {
        let Attribute { kind, value: Some(value) } = attribute else { continue };
        if kind.is_some_and(|kind| kind.starts_with("Binary")) {
            let bytes = BASE64_STANDARD.decode(value);
            let bytes = bytes.map_err(|_| "a binary attribute of the notification is not base64")?;
            published.binary_attributes.insert(name, bytes);
        } else {
            published.attributes.insert(name, value);
        }
    }
    Ok(published)
}

/// What to do about a body in which SNS says that a subscription begins or has ended. SNS wraps it so with raw message delivery too, and it has
/// an id and a message as a notification has.
pub(in crate::event) fn confirmation(body: &str) -> Option<&'static str> {
    // Most bodies need no parser.
    if !body.contains("Confirmation\"") {
        return None;
    }
    let Confirmation { kind, .. } = serde_json::from_str(body).ok()?;
    match &*kind {
        "SubscriptionConfirmation" => Some(
            "it is SNS's SubscriptionConfirmation, and no message: confirm the subscription by its Token or its SubscribeURL, then delete it",
        ),
        "UnsubscribeConfirmation" => Some(
            "it is SNS's UnsubscribeConfirmation, and no message: a subscription has ended. If that is a mistake, its Token or its SubscribeURL restores it; then delete it",
        ),
        _ => None,
    }
}
