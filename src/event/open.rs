//! Opens what is around a message: envelopes, and a payload that is kept elsewhere.

use super::{Consumer, Message, envelope::confirmation, payload::PayloadPointer};
use crate::{function::RunError, time::Instant};

impl Consumer {
    /// What is in a message's envelopes, from outside in; `None` if there is nothing to do.
    ///
    /// # Errors
    /// Why it cannot be run: it is not in such envelopes, or its payload cannot be loaded.
    pub(super) async fn open(
        &self,
        mut message: Message,
        until: Instant,
    ) -> Result<Option<Message>, RunError> {
        if let Some(reason) = confirmation(&message.body) {
            return Err(refused(reason));
        }
        // A producer may leave its payload in S3 before any of these services, or after.
        for envelope in &*self.envelopes {
            match envelope.open(&self.loaded(message, until).await?)? {
                Some(opened) => message = opened,
                None => return Ok(None),
            }
        }
        self.loaded(message, until).await.map(Some)
    }

    /// The message with its payload, if its body only points to it.
    async fn loaded(&self, message: Message, until: Instant) -> Result<Message, RunError> {
        let Some(pointer) = PayloadPointer::read(&message.body) else { return Ok(message) };
        let pointer = pointer.map_err(refused)?;
        let body = self.payload(&pointer, until).await?;
        match PayloadPointer::read(&body) {
            None => Ok(Message { body, ..message }),
            Some(_) => Err(refused("the payload in S3 is itself a pointer to a payload in S3")),
        }
    }

    #[cfg(feature = "s3")]
    async fn payload(&self, pointer: &PayloadPointer, until: Instant) -> Result<String, RunError> {
        let Some(payloads) = &self.payloads else { return Err(refused(NOT_LOADED)) };
        let left = until.since(self.world.instant());
        payloads.load(pointer, &*self.world, left).await
    }

    #[cfg(not(feature = "s3"))]
    async fn payload(&self, _: &PayloadPointer, _: Instant) -> Result<String, RunError> {
        Err(refused(NOT_LOADED))
    }
}

const NOT_LOADED: &str = "the body is a pointer of Amazon's extended client to a payload in S3. Consumer::payloads_in, of the feature s3, loads it";

fn refused(reason: &str) -> RunError {
    RunError::Refused(reason.to_owned())
}
