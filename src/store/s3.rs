//! Bodies that are too large for a DynamoDB item, in S3.

use std::sync::Arc;

use aws_sdk_s3::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    primitives::ByteStream,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{StoreError, StoreErrorKind};
use crate::{key::RecordKey, record::BodyId};

/// A bucket for large bodies, in objects `<prefix><SHA-256 of the record's key>/<body id>`.
///
/// Needs `s3:PutObject` and `s3:GetObject` below the prefix. Objects are not deleted by the library: give the prefix a
/// lifecycle rule that expires them a day or more after the longest retention.
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

    fn object(&self, key: &RecordKey, id: BodyId) -> String {
        let digest = Sha256::digest(key.partition_key());
        format!("{}{}/{id}", self.prefix, hex::encode(digest))
    }

    /// Writes the body where nothing is. As beside the record, what is there already is this very body.
    pub(super) async fn keep(&self, key: &RecordKey, id: BodyId, body: Bytes) -> Result<(), StoreError> {
        let put = self.client.put_object().bucket(&*self.bucket).key(self.object(key, id));
        match put.if_none_match("*").body(ByteStream::from(body)).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some("PreconditionFailed") => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    pub(super) async fn load(&self, key: &RecordKey, id: BodyId) -> Result<Option<Bytes>, StoreError> {
        let get = self.client.get_object().bucket(&*self.bucket).key(self.object(key, id));
        let object = match get.send().await {
            Ok(object) => object,
            Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
            Err(error) => return Err(unavailable(error)),
        };
        let body = object.body.collect().await;
        Ok(Some(body.map_err(|e| StoreError::new(StoreErrorKind::Unavailable, e))?.into_bytes()))
    }
}

fn unavailable<E>(error: SdkError<E>) -> StoreError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let kind = match error.code() {
        Some("AccessDenied" | "NoSuchBucket") => StoreErrorKind::Refused,
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new(kind, error)
}
