//! The form of a refusal's answer in a queue's message.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::record::{Answer, Head};

#[derive(Serialize, Deserialize)]
struct Text {
    /// None if the answer is a function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    /// Whether it is a function's refusal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    refusal: bool,
    body: String,
}

pub(super) fn serialize<S: Serializer>(answer: &Answer, serializer: S) -> Result<S::Ok, S::Error> {
    let text = Text {
        status: answer.head.status(),
        headers: answer.head.headers().to_vec(),
        refusal: answer.head == Head::Refusal,
        body: BASE64_STANDARD.encode(&answer.body),
    };
    text.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Answer, D::Error> {
    let Text { status, headers, refusal, body } = Text::deserialize(deserializer)?;
    let head = match status {
        Some(status) => Head::Http { status, headers: headers.into() },
        None if refusal => Head::Refusal,
        None => Head::Payload,
    };
    let body = BASE64_STANDARD.decode(body).map_err(|_| D::Error::custom("the body is not base64"))?;
    Ok(Answer { head, body: body.into() })
}
