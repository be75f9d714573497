//! The alarms of a record, as its item has them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use crate::{
    record::{Alarm, Alarms, BodyId, Note},
    time::Timestamp,
};

/// The alarms of a record, as it keeps them.
#[derive(Serialize, Deserialize)]
pub(super) struct ItemAlarms {
    kinds: Vec<String>,
    because: String,
    raised_at: Timestamp,
    told: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reports: Vec<ByteArray<16>>,
}

impl From<&Alarms> for ItemAlarms {
    fn from(Alarms { kinds, because, raised_at, is_told, reports }: &Alarms) -> Self {
        Self {
            kinds: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            because: because.to_string(),
            raised_at: *raised_at,
            told: *is_told,
            reports: reports.iter().map(|id| ByteArray::new(*id.as_bytes())).collect(),
        }
    }
}

impl ItemAlarms {
    /// The alarms; `None` if an attribute is malformed.
    pub(super) fn read(self) -> Option<Box<Alarms>> {
        let kinds: BTreeSet<_> = self.kinds.iter().map(|name| Alarm::parse(name)).collect::<Option<_>>()?;
        (!kinds.is_empty()).then(|| {
            Box::new(Alarms {
                kinds,
                because: Note::new(&self.because),
                raised_at: self.raised_at,
                is_told: self.told,
                reports: self.reports.into_iter().map(|id| BodyId::from(id.into_array())).collect(),
            })
        })
    }
}
