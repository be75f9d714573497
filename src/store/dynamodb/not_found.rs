//! The switch of "not found": an item with its name as partition key and `switch` as sort key, without a time to live. No record has such
//! a key, the index does not contain it, and the stream's filters leave it out. Its audit lines lie beside it.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use super::{DynamoDbStore, Result, StoreError, attributes::form, audit, conditions::Attributes};
use crate::{
    record::Revision,
    store::{
        AuditLine, NotFoundSwitch,
        item::{SCHEMA, check_version},
        not_found::NOT_FOUND_RELEASES,
    },
    time::Timestamp,
};

/// The sort key of the switch.
const SWITCH: &str = "switch";

/// The switch as an item.
#[derive(Serialize, Deserialize)]
struct SwitchItem {
    pk: String,
    sk: String,
    schema: u32,
    revision: ByteArray<16>,
    releases: bool,
    who: String,
    at: Timestamp,
    reason: String,
}

fn to_item(switch: &NotFoundSwitch) -> Result<Attributes> {
    form(&SwitchItem {
        pk: NOT_FOUND_RELEASES.to_owned(),
        sk: SWITCH.to_owned(),
        schema: SCHEMA,
        revision: ByteArray::new(*switch.revision.as_bytes()),
        releases: switch.releases,
        who: switch.who.clone(),
        at: switch.at,
        reason: switch.reason.clone(),
    })
}

fn from_item(item: Attributes) -> Result<NotFoundSwitch> {
    let item: SwitchItem = serde_dynamo::from_item(item).map_err(StoreError::unreadable)?;
    check_version(item.schema)?;
    let SwitchItem { revision, releases, who, at, reason, .. } = item;
    Ok(NotFoundSwitch { revision: Revision::from(*revision), releases, who, at, reason })
}

impl DynamoDbStore {
    pub(super) async fn load_switch(&self) -> Result<Option<NotFoundSwitch>> {
        self.item(NOT_FOUND_RELEASES, SWITCH).await?.map(from_item).transpose()
    }

    /// Writes the switch over the one with the revision `seen`, or over none, together with its audit line.
    pub(super) async fn write_switch(&self, seen: Option<Revision>, switch: &NotFoundSwitch) -> Result<bool> {
        let line = audit::to_item(NOT_FOUND_RELEASES, switch.revision, &switch.line())?;
        self.put_both(switch.revision, (seen, to_item(switch)?), line).await
    }

    pub(super) async fn switch_lines(&self) -> Result<Vec<AuditLine>> {
        audit::lines(&self.client, &self.table, NOT_FOUND_RELEASES).await
    }
}
