//! Names and numbers: of keys, processes, messages.

use std::fmt;

use lambda_idempotency::key::{IdempotencyKey, OperationName, RecordKey, Tenant};

/// The number of a key.
pub type KeyId = u8;

/// The only key, if no scenario says otherwise.
pub const THE_KEY: KeyId = 0;

/// A process: one invocation of a function. Its tasks live and die together.
pub type ProcessId = u8;
pub type GateId = u32;
pub type MessageId = u16;

/// The name of a client's request.
pub const REQUEST: &str = "request";

/// The names of those that take messages: of consumers, of workers, and of those that deliver messages.
pub const CONSUMER: &str = "consumer";
pub const WORKER: &str = "worker";
pub const DELIVERER: &str = "deliverer";

/// When every execution begins, in milliseconds since 1970.
pub const BEGINNING: u64 = 1_800_000_000_000;
/// The key of this number.
pub fn record_key(id: KeyId) -> RecordKey {
    let valid = "this name is valid";
    let key = KEYS[usize::from(id)];
    RecordKey::new(
        Tenant::parse(TENANT).expect(valid),
        OperationName::parse(OPERATION).expect(valid),
        IdempotencyKey::parse(key).expect(valid),
    )
}

/// The keys of a scenario, as clients and messages write them.
pub const KEYS: [&str; 2] = ["key", "other"];
pub const TENANT: &str = "model";
pub const OPERATION: &str = "model";

/// One receive of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub id: MessageId,
    pub receives: u32,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.receives)
    }
}

impl Receipt {
    pub fn parse(text: &str) -> Option<Self> {
        let (id, receives) = text.split_once('.')?;
        Some(Self { id: id.parse().ok()?, receives: receives.parse().ok()? })
    }
}
