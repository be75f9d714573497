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
        Mark,
        item::{PK, SCHEMA, SCHEMA_ATTRIBUTE, SK},
    },
    time::Timestamp,
};

const MARK: &str = "mark";
const REVISION: &str = "revision";
const LEASE_UNTIL: &str = "lease_until";
const PROGRESS: &str = "progress";

impl DynamoDbStore {
    pub(super) async fn read_mark(&self, name: &str) -> Read<Option<Mark>> {
        let Some(item) = self.item(name, MARK).await? else { return Ok(None) };
        let unreadable =
            || StoreError::new(StoreErrorKind::Unreadable, "the item is not a mark of this version");
        from_item(name, item).ok_or_else(unreadable).map(Some)
    }

    pub(super) async fn put_mark(&self, seen: Option<Revision>, mark: &Mark) -> Read<bool> {
        let condition = seen.map_or(Condition::Absent, Condition::Revision);
        Ok(match conditions::put(&self.client, &self.table, condition, to_item(mark)).await? {
            Applied::Yes => true,
            Applied::No(there) => {
                // Ours, if an earlier try was applied and its answer was lost.
                let there = there.and_then(|item| from_item(&mark.name, item));
                there.is_some_and(|there| there.revision == mark.revision)
            }
        })
    }
}

fn to_item(mark: &Mark) -> Attributes {
    let number = |number: String| AttributeValue::N(number);
    let mut item = Attributes::from([
        (PK.to_owned(), AttributeValue::S(mark.name.clone())),
        (SK.to_owned(), AttributeValue::S(MARK.to_owned())),
        (SCHEMA_ATTRIBUTE.to_owned(), number(SCHEMA.to_string())),
        (REVISION.to_owned(), AttributeValue::B(Blob::new(*mark.revision.as_bytes()))),
        (LEASE_UNTIL.to_owned(), number(mark.lease_until.as_millis().to_string())),
    ]);
    if let Some(progress) = &mark.progress {
        item.insert(PROGRESS.to_owned(), AttributeValue::S(progress.clone()));
    }
    item
}

fn from_item(name: &str, mut item: Attributes) -> Option<Mark> {
    let schema: u32 = item.get(SCHEMA_ATTRIBUTE)?.as_n().ok()?.parse().ok()?;
    let revision: [u8; 16] = item.get(REVISION)?.as_b().ok()?.as_ref().try_into().ok()?;
    let lease_until = item.get(LEASE_UNTIL)?.as_n().ok()?.parse().ok()?;
    let progress = match item.remove(PROGRESS) {
        None => None,
        Some(AttributeValue::S(progress)) => Some(progress),
        Some(_) => return None,
    };
    (schema <= SCHEMA).then(|| Mark {
        name: name.to_owned(),
        revision: revision.into(),
        lease_until: Timestamp::from_millis(lease_until),
        progress,
    })
}
