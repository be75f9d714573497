//! Keeps bodies that are too large for a DynamoDB item in S3.
//!
//! 1. Each body is an object under a fresh id, and is written only if there is no such object.
//! 2. If an object is missing, the replay omits the body.
//! 3. [`S3Bodies::check`] finds a missing bucket or permission at start-up.
//!
//! It does not delete objects: give the prefix a lifecycle rule.

use std::sync::Arc;

use aws_sdk_s3::{Client, error::ProvideErrorMetadata, primitives::ByteStream};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{Result, StoreError, StoreErrorKind};
use crate::{config::ConfigError, key::RecordKey, record::BodyId};

const NO_SUCH_KEY: &str = "NoSuchKey";

/// A bucket for large bodies, in objects `<prefix><SHA-256 of the record's key>/<body id>`.
///
/// Needs `s3:PutObject` and `s3:GetObject` below the prefix, and `s3:ListBucket` on the bucket. Without the last, S3 answers
/// 403 for a missing object
/// ([GetObject](https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html)), and a missing body would look like a missing
/// permission. [`check`](Self::check) finds that out at start-up. The library does not delete objects: give the prefix a lifecycle
/// rule that expires them a day or more after the longest retention.
#[derive(Clone, Debug)]
pub struct S3Bodies {
    client: Client,
    bucket: Arc<str>,
    prefix: Arc<str>,
}

impl S3Bodies {
    /// Keeps bodies in `bucket`, below `prefix` (such as `idempotency/`). Give the client time-outs.
    pub fn new(client: Client, bucket: impl Into<Arc<str>>, prefix: impl Into<Arc<str>>) -> Self {
        Self { client, bucket: bucket.into(), prefix: prefix.into() }
    }

    /// Reads an object that does not exist, to find mistakes at start-up that would fail requests later.
    ///
    /// # Errors
    /// If there is no such bucket, or `s3:GetObject` or `s3:ListBucket` is missing. It does not fail if the bucket is only slow or
    /// unavailable. A missing `s3:PutObject` shows only with the first large body, which is then left out.
    pub async fn check(&self) -> Result<(), ConfigError> {
        let object = format!("{}start-up check", self.prefix);
        let refused = |reason: &str| {
            Err(ConfigError::BucketRefused { bucket: self.bucket.to_string(), reason: reason.to_owned() })
        };
        let Err(error) = self.client.get_object().bucket(&*self.bucket).key(object).send().await else {
            return Ok(());
        };
        match error.code() {
            Some(NO_SUCH_KEY) => Ok(()),
            Some("AccessDenied") => {
                refused("s3:GetObject below the prefix or s3:ListBucket on the bucket is missing")
            }
            Some("NoSuchBucket") => refused("there is no such bucket"),
            code => {
                tracing::warn!(bucket = %self.bucket, code, "the bucket did not answer at start-up");
                Ok(())
            }
        }
    }

    fn object(&self, key: &RecordKey, id: BodyId) -> String {
        let digest = Sha256::digest(key.partition_key());
        format!("{}{}/{id}", self.prefix, hex::encode(digest))
    }

    /// Writes the body if there is none. An existing object is the same body, as for body items.
    pub(super) async fn keep(&self, key: &RecordKey, id: BodyId, body: Bytes) -> Result<()> {
        let put = self.client.put_object().bucket(&*self.bucket).key(self.object(key, id));
        match put.if_none_match("*").body(ByteStream::from(body)).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some("PreconditionFailed") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn load(&self, key: &RecordKey, id: BodyId) -> Result<Option<Bytes>> {
        let get = self.client.get_object().bucket(&*self.bucket).key(self.object(key, id));
        let object = match get.send().await {
            Ok(object) => object,
            Err(error) if error.code() == Some(NO_SUCH_KEY) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let body = object.body.collect().await;
        Ok(Some(body.map_err(|e| StoreError::new(StoreErrorKind::Unavailable, e))?.into_bytes()))
    }
}
