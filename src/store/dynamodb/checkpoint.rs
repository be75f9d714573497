//! Checkpoints: items with the job's name as partition key and `checkpoint` as sort key, without a time to live. No record has such
//! a key, the index does not contain them, and the stream's filters leave them out.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::{Result, StoreError, attributes::form, conditions::Attributes};
use crate::{
    record::Revision,
    store::{
        Checkpoint,
        item::{SCHEMA, check_version},
    },
    time::Timestamp,
};

/// The sort key of every checkpoint.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// A checkpoint as an item.
#[derive(Serialize, Deserialize)]
struct CheckpointItem {
    pk: String,
    sk: String,
    schema: u32,
    revision: ByteArray<16>,
    lease_until: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
}

pub(super) fn to_item(checkpoint: &Checkpoint) -> Result<Attributes> {
    form(&CheckpointItem {
        pk: checkpoint.name.clone(),
        sk: CHECKPOINT.to_owned(),
        schema: SCHEMA,
        revision: ByteArray::new(*checkpoint.revision.as_bytes()),
        lease_until: checkpoint.lease_until,
        progress: checkpoint.progress.clone(),
    })
}

pub(super) fn from_item(item: Attributes) -> Result<Checkpoint> {
    let item: CheckpointItem = serde_dynamo::from_item(item).map_err(StoreError::unreadable)?;
    check_version(item.schema)?;
    Ok(Checkpoint {
        name: item.pk,
        revision: Revision::from(*item.revision),
        lease_until: item.lease_until,
        progress: item.progress,
    })
}
