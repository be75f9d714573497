//! Checkpoints: items with the job's name as partition key and `checkpoint` as sort key, without a time to live. No record has such
//! a key, the index does not contain them, and the stream's filters leave them out.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::{self, Applied, Attributes, Condition},
    error::Read,
    form,
};
use crate::{
    record::Revision,
    store::{Checkpoint, item::SCHEMA},
    time::Timestamp,
};

const CHECKPOINT: &str = "checkpoint";

/// A checkpoint as an item.
#[derive(Serialize, Deserialize)]
struct CheckpointItem {
    pk: String,
    sk: String,
    schema: u32,
    revision: ByteArray<16>,
    lease_until: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
}

impl DynamoDbStore {
    pub(super) async fn read_checkpoint(&self, name: &str) -> Read<Option<Checkpoint>> {
        let Some(item) = self.item(name, CHECKPOINT).await? else { return Ok(None) };
        let unreadable =
            || StoreError::new(StoreErrorKind::Unreadable, "the item is not a checkpoint of this version");
        from_item(item).ok_or_else(unreadable).map(Some)
    }

    pub(super) async fn put_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Read<bool> {
        let condition = seen.map_or(Condition::Absent, Condition::Revision);
        Ok(match conditions::put(&self.client, &self.table, condition, to_item(checkpoint)?).await? {
            Applied::Yes => true,
            // It is ours if an earlier try was applied and its answer was lost.
            Applied::No(current) => {
                current.and_then(from_item).is_some_and(|current| current.revision == checkpoint.revision)
            }
        })
    }
}

fn to_item(checkpoint: &Checkpoint) -> Read<Attributes> {
    form(&CheckpointItem {
        pk: checkpoint.name.clone(),
        sk: CHECKPOINT.to_owned(),
        schema: SCHEMA,
        revision: ByteArray::new(*checkpoint.revision.as_bytes()),
        lease_until: checkpoint.lease_until.as_millis(),
        progress: checkpoint.progress.clone(),
    })
}

fn from_item(item: Attributes) -> Option<Checkpoint> {
    let item: CheckpointItem = serde_dynamo::from_item(item).ok()?;
    (item.schema == SCHEMA).then(|| Checkpoint {
        name: item.pk,
        revision: Revision::from(*item.revision),
        lease_until: Timestamp::from_millis(item.lease_until),
        progress: item.progress,
    })
}
