//! Loads payloads from S3.

use std::{collections::HashSet, sync::Arc, time::Duration};

use aws_sdk_s3::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::get_object::GetObjectError,
};

use super::PayloadPointer;
use crate::{error_chain::error_chain, function::RunError, time_budget::PAYLOAD_TIMEOUT, world::World};

/// The longest payload. All those of a batch are in memory at once.
const MAX_PAYLOAD: usize = 8 * 1024 * 1024;

/// Where payloads may be.
#[derive(Clone, Debug)]
pub(in crate::event) struct Payloads {
    client: Client,
    buckets: Arc<HashSet<String>>,
}

impl Payloads {
    /// Those of these buckets.
    pub(in crate::event) fn new(
        client: Client,
        buckets: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let buckets: HashSet<_> = buckets.into_iter().map(Into::into).collect();
        assert!(!buckets.is_empty(), "payloads_in without a bucket would open no payload");
        Self { client, buckets: Arc::new(buckets) }
    }

    /// The payload, within this time.
    ///
    /// # Errors
    /// If it is not text of that length in one of the buckets: no delivery can help. Or S3 does not answer: any delivery may help. What S3
    /// refuses may be a missing permission, so that is tried some times.
    pub(in crate::event) async fn load(
        &self,
        pointer: &PayloadPointer,
        world: &dyn World,
        left: Duration,
    ) -> Result<String, RunError> {
        if !self.buckets.contains(&pointer.bucket) {
            return Err(refused("the payload is in a bucket that this consumer does not name"));
        }
        let loaded = world.within(left.min(PAYLOAD_TIMEOUT), self.get(pointer)).await;
        loaded.unwrap_or_else(|| Err(unavailable("S3 takes too long")))
    }

    async fn get(&self, PayloadPointer { bucket, key }: &PayloadPointer) -> Result<String, RunError> {
        let object = self.client.get_object().bucket(bucket).key(key).send().await;
        let mut object = object.map_err(|error| not_loaded(&error))?;
        let mut payload = Vec::new();
        let is_too_long = |length: usize| length > MAX_PAYLOAD;
        let length = object.content_length().and_then(|length| usize::try_from(length).ok());
        if length.is_some_and(is_too_long) {
            return Err(too_long());
        }
        while let Some(chunk) = object.body.next().await {
            let chunk = chunk.map_err(|error| unavailable(&error_chain(&error)))?;
            // Whatever length was announced.
            if is_too_long(payload.len() + chunk.len()) {
                return Err(too_long());
            }
            payload.extend_from_slice(&chunk);
        }
        String::from_utf8(payload).map_err(|_| refused("the payload is not text in UTF-8"))
    }
}

fn not_loaded(error: &SdkError<GetObjectError>) -> RunError {
    if error.as_service_error().is_some_and(GetObjectError::is_no_such_key) {
        return refused("there is no payload where the message says");
    }
    match error.raw_response().map(|response| response.status().as_u16()) {
        Some(status @ 300..500) if ![408, 429].contains(&status) => {
            // Its text would name the object.
            let code = error.code().unwrap_or("no code");
            tracing::error!(status, code, "S3 refuses the payload of a message");
            RunError::NotExecuted(Some(format!("S3 refuses its payload: {code} ({status})").into()))
        }
        _ => unavailable(&error_chain(error)),
    }
}

fn unavailable(why: &str) -> RunError {
    tracing::warn!(error = why, "the payload of a message could not be loaded");
    RunError::Unavailable
}

fn too_long() -> RunError {
    refused(&format!("the payload is longer than {} MiB", MAX_PAYLOAD >> 20))
}

fn refused(reason: &str) -> RunError {
    RunError::Refused(reason.to_owned())
}
