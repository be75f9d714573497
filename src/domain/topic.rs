//! What a message is about.

use std::sync::Arc;

/// The longest name, which is also EventBridge's limit for a `detail-type`.
const MAX_NAME: usize = 128;

/// The name of what happened, such as `order.placed`. Only the list of topics makes one:
/// [`Topics::topic`](crate::outbox::Topics::topic). So a topic without a target fails at start-up, and not when it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic(Arc<str>);

impl Topic {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether this can be a topic's name: 1 to 128 letters, digits, `-`, `_`, `.` or `/`.
    pub(crate) fn is_name(name: &str) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_valid)
    }
}
