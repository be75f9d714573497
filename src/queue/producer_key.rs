//! The key that a producer gives to a message.

use aws_sdk_sqs::types::MessageAttributeValue;
use protocol::key::{IdempotencyKey, KeyError};

use crate::world::World;

/// The longest key, in characters: a
/// [deduplication id](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html) of SQS has no more.
const MAX_CHARS: usize = 128;

/// The idempotency key of one intended effect, as its producer sends it with a message.
///
/// Mint it once for each effect, and keep it with what is to be sent, before the first send. A send whose answer is lost is repeated with
/// the same key: the queue then has the message twice, and its consumer acts once.
///
/// | the message | its key is in | a consumer reads it by |
/// | --- | --- | --- |
/// | of SQS | the message attribute [`NAME`](Self::NAME), by [`attribute`](Self::attribute) | `KeyFrom::attribute(ProducerKey::NAME)` |
/// | of a FIFO queue | the same, and the deduplication id, by [`as_str`](Self::as_str) | the same |
/// | of EventBridge | a member of `detail`, by `detail` | `Envelope::EventBridge`, and `KeyFrom::body("/idempotency-key")` |
///
/// A FIFO queue drops a second message with one deduplication id for 5 minutes, whatever it says. Within that time no consumer sees that a key
/// was used for something else.
///
/// ```no_run
/// use aws_sdk_sqs::{Client, error::BoxError};
/// use lambda_idempotency::queue::ProducerKey;
///
/// async fn send(client: &Client, url: &str, order: &str, key: &ProducerKey) -> Result<(), BoxError> {
///     let message = client.send_message().queue_url(url).message_body(order);
///     let message = message.message_attributes(ProducerKey::NAME, key.attribute());
///     if message.clone().send().await.is_err() {
///         // SQS may have taken it: the same message again, with the same key.
///         message.send().await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProducerKey(IdempotencyKey);

impl ProducerKey {
    /// The name of the message attribute, and of the member of `detail`.
    pub const NAME: &str = "idempotency-key";

    /// A key that no other call returns: a UUID of version 7.
    pub fn mint(world: &dyn World) -> Self {
        // Without the bytes of the nonce that have fixed bits.
        let [a, b, c, d, e, f, .., w, x, y, z] = world.nonce();
        let random = [a, b, c, d, e, f, w, x, y, z];
        let uuid = uuid::Builder::from_unix_timestamp_millis(world.now().as_millis(), &random).into_uuid();
        Self(IdempotencyKey::parse(&uuid.to_string()).expect("a UUID is a key"))
    }

    /// A key of your own, such as an order's id: 1 to 128 letters, digits and punctuation marks of ASCII, as a deduplication id has.
    ///
    /// # Errors
    /// If it is empty, longer, or has another character.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let key = IdempotencyKey::parse(text)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::Character);
        }
        if text.len() > MAX_CHARS {
            return Err(KeyError::TooLong { limit: MAX_CHARS, unit: "characters" });
        }
        Ok(Self(key))
    }

    /// The key: what you keep, and the deduplication id in a FIFO queue. Not for logs.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The value of the message attribute [`NAME`](Self::NAME).
    pub fn attribute(&self) -> MessageAttributeValue {
        let value = MessageAttributeValue::builder().data_type("String").string_value(self.as_str());
        value.build().expect("it has a type")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{time::Timestamp, world::ManualWorld};

    #[test]
    fn a_minted_key_is_a_new_uuid_of_version_7() {
        let world = ManualWorld::at(Timestamp::from_millis(1_645_557_742_000));
        let [one, other] = [ProducerKey::mint(&world), ProducerKey::mint(&world)];
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("017f22e2-79b0-7"), "{}", one.as_str());
        assert_eq!(ProducerKey::parse(one.as_str()), Ok(one));
    }

    #[test]
    fn a_key_that_no_queue_takes_is_refused() {
        let longest = "k".repeat(128);
        for key in ["order-1", "a", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", &longest] {
            assert_eq!(ProducerKey::parse(key).unwrap().as_str(), key);
        }
        assert_eq!(ProducerKey::parse(""), Err(KeyError::Empty));
        for long in ["k".repeat(129), "k".repeat(256)] {
            assert!(matches!(ProducerKey::parse(&long), Err(KeyError::TooLong { .. })));
        }
        for other in ["order 1", "order\n", "\0", "\u{7f}", "bestellung-ß", "\u{FFFF}"] {
            assert_eq!(ProducerKey::parse(other), Err(KeyError::Character), "{other:?}");
        }
    }

    #[test]
    fn a_key_is_not_in_logs() {
        let key = ProducerKey::parse("order-4242").unwrap();
        assert!(!format!("{key:?}").contains("4242"));
    }
}
