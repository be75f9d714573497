//! What other services wrap around a message that reaches its queue through them.

mod cloud_watch_logs;
mod event_bridge;
mod s3;
mod sns;

use super::Message;
use crate::function::RunError;

pub(super) use sns::confirmation;

/// What one service has put around a message. The id that it gives to the message is the key by
/// [`KeyFrom::envelope`](super::KeyFrom::envelope); of several envelopes the innermost one gives it.
///
/// Ids differ in what they identify. S3's is of the event, whoever delivers it, however often. Those of SNS and EventBridge are of one
/// publication: each delivery of it has the same, but a publisher that repeats a call whose answer was lost publishes anew, under another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelope {
    /// A notification of SNS; with raw message delivery there is none. Its body is the published message. Its id is SNS's `MessageId`, another
    /// one for each publication.
    ///
    /// What SNS itself writes to a queue, that a subscription begins or has ended and is to be confirmed, goes to the dead letters, whatever
    /// envelopes are opened.
    Sns,
    /// An event of EventBridge. Its body is `detail`. Its id is `source` and `id`, another one for each publication.
    ///
    /// An event of S3 has S3's own id instead, the same in each publication: `detail-type`, the bucket, the object's key, version and
    /// `sequencer`; without a sequencer its `etag`, the `time` and the `request-id`. Without these too, it has the publication's.
    EventBridge,
    /// An event notification of S3, the innermost envelope. Its body is the one record in it. Its id is the event's name, the bucket, the
    /// object's key, version and `sequencer`. Only events of objects that are created or deleted have a sequencer. The id of another event has
    /// in its place the object's `eTag`, the `eventTime` and the id of the request that caused it; without a time it has none, and is not run.
    ///
    /// The test event that S3 sends when a notification is set up is acknowledged.
    S3,
    /// What a subscription filter of CloudWatch Logs sends, the innermost envelope: to the function itself, or to a stream of Kinesis. Its body is
    /// the batch of log events, unpacked. Its id is of that batch: its account, log group, log stream and filters, and its first and last event.
    ///
    /// The control message that CloudWatch Logs sends when a subscription is set up is acknowledged.
    CloudWatchLogs,
}

impl Envelope {
    /// Opens this envelope of a message; `None` if there is nothing to do.
    ///
    /// # Errors
    /// If it is not such an envelope.
    pub(super) fn open(self, message: &Message) -> Result<Option<Message>, RunError> {
        let opened = match self {
            Self::Sns => sns::open(message).map(Some),
            Self::EventBridge => event_bridge::open(message).map(Some),
            Self::S3 => s3::open(message),
            Self::CloudWatchLogs => cloud_watch_logs::open(message),
        };
        opened.map_err(|reason| RunError::Refused(reason.to_owned()))
    }

    /// Panics if no message can be in these envelopes, from outside in: a mistake in the program, found at start-up.
    pub(super) fn assert_nested(envelopes: &[Self]) {
        let innermost = envelopes.split_last();
        if let Some((_, around)) = innermost {
            for innermost in [Self::S3, Self::CloudWatchLogs] {
                let is_around = around.contains(&innermost);
                assert!(!is_around, "nothing is in Envelope::{innermost:?}: it is the innermost one");
            }
        }
        assert!(
            !envelopes.ends_with(&[Self::EventBridge, Self::S3]),
            "an event of S3 by EventBridge is no notification of S3: Envelope::EventBridge alone opens it"
        );
    }

    /// Whether a message in it has attributes.
    pub(super) fn has_attributes(self) -> bool {
        self == Self::Sns
    }
}
