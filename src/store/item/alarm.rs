//! An alarm, as the item of its record has it.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

use crate::{
    record::{Alarm, AlarmKind, BodyId, Note},
    time::Timestamp,
};

/// An alarm, as its record keeps it.
#[derive(Serialize, Deserialize)]
pub(super) struct ItemAlarm {
    kind: String,
    because: String,
    raised_at: Timestamp,
    told: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<ByteArray<16>>,
}

impl From<&Alarm> for ItemAlarm {
    fn from(Alarm { kind, because, raised_at, report, is_told }: &Alarm) -> Self {
        Self {
            kind: kind.name().to_owned(),
            because: because.to_string(),
            raised_at: *raised_at,
            told: *is_told,
            report: report.map(|id| ByteArray::new(*id.as_bytes())),
        }
    }
}

impl ItemAlarm {
    /// The alarm; `None` if this version does not know it.
    pub(super) fn read(self) -> Option<Alarm> {
        Some(Alarm {
            kind: AlarmKind::parse(&self.kind)?,
            because: Note::new(&self.because),
            raised_at: self.raised_at,
            report: self.report.map(|id| BodyId::from(id.into_array())),
            is_told: self.told,
        })
    }
}
