//! Marks: items with the job's name as partition key and `mark` as sort key, without a time to live. No record has such a key,
//! the index does not contain them, and the stream's filters leave them out.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

use super::{
    DynamoDbStore, StoreError, StoreErrorKind,
    conditions::{self, Applied, Attributes, Condition},
    error::Read,
};
use crate::{
    record::Revision,
    store::{
        Checkpoint,
        item::{PK, SCHEMA, SCHEMA_ATTRIBUTE, SK},
    },
    time::Timestamp,
};

const CHECKPOINT: &str = "checkpoint";
const REVISION: &str = "revision";
const LEASE_UNTIL: &str = "lease_until";
const PROGRESS: &str = "progress";

impl DynamoDbStore {
    pub(super) async fn read_checkpoint(&self, name: &str) -> Read<Option<Checkpoint>> {
        let Some(item) = self.item(name, CHECKPOINT).await? else { return Ok(None) };
        let unreadable =
            || StoreError::new(StoreErrorKind::Unreadable, "the item is not a mark of this version");
        from_item(name, item).ok_or_else(unreadable).map(Some)
    }

    pub(super) async fn put_checkpoint(&self, seen: Option<Revision>, checkpoint: &Checkpoint) -> Read<bool> {
        let condition = seen.map_or(Condition::Absent, Condition::Revision);
        Ok(match conditions::put(&self.client, &self.table, condition, to_item(checkpoint)).await? {
            Applied::Yes => true,
            Applied::No(current) => {
                // Ours, if an earlier try was applied and its answer was lost.
                let current = current.and_then(|item| from_item(&checkpoint.name, item));
                current.is_some_and(|current| current.revision == checkpoint.revision)
            }
        })
    }
}

fn to_item(checkpoint: &Checkpoint) -> Attributes {
    let number = |number: String| AttributeValue::N(number);
    let mut item = Attributes::from([
        (PK.to_owned(), AttributeValue::S(checkpoint.name.clone())),
        (SK.to_owned(), AttributeValue::S(CHECKPOINT.to_owned())),
        (SCHEMA_ATTRIBUTE.to_owned(), number(SCHEMA.to_string())),
        (REVISION.to_owned(), AttributeValue::B(Blob::new(*checkpoint.revision.as_bytes()))),
        (LEASE_UNTIL.to_owned(), number(checkpoint.lease_until.as_millis().to_string())),
    ]);
    if let Some(progress) = &checkpoint.progress {
        item.insert(PROGRESS.to_owned(), AttributeValue::S(progress.clone()));
    }
    item
}

fn from_item(name: &str, mut item: Attributes) -> Option<Checkpoint> {
    let schema: u32 = item.get(SCHEMA_ATTRIBUTE)?.as_n().ok()?.parse().ok()?;
    let revision: [u8; 16] = item.get(REVISION)?.as_b().ok()?.as_ref().try_into().ok()?;
    let lease_until = item.get(LEASE_UNTIL)?.as_n().ok()?.parse().ok()?;
    let progress = match item.remove(PROGRESS) {
        None => None,
        Some(AttributeValue::S(progress)) => Some(progress),
        Some(_) => return None,
    };
    (schema == SCHEMA).then(|| Checkpoint {
        name: name.to_owned(),
        revision: revision.into(),
        lease_until: Timestamp::from_millis(lease_until),
        progress,
    })
}
