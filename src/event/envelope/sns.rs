//! Notifications of SNS, and what else SNS writes to a queue
//! ([formats](https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html)).

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use crate::event::Message;

const NOTIFICATION: &str = "Notification";

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

/// The message in a notification.
pub(super) fn open(message: &Message) -> Result<Message, &'static str> {
    let Ok(Notification { message_id, kind, message: body, message_attributes }) =
        serde_json::from_str(&message.body)
    else {
        return Err("the body is not a notification of SNS");
    };
    if kind != NOTIFICATION {
        return Err(confirmation(&message.body).unwrap_or("the body is not a notification of SNS"));
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
