//! Pollers for the local cloud: they start a part that it does not have, Kinesis or Kafka, and bring its records to a function as Lambda's
//! event source mappings do.
//!
//! | module | what |
//! | --- | --- |
//! | `part` | fetches and starts the part: Kinesis from npm, Kafka's broker from Maven |
//! | `mapping` | the settings of an event source mapping |
//! | `delivery` | what both mappings share: a batch is retried, halved, dropped, and checkpoints move |
//! | `batch` | the rules of that, without any input or output |
//! | `cloud` | invokes the function, and sends what is dropped to a queue |
//! | `errors` | errors of clients in one line |
//! | `checkpoints` | how far each shard or partition is done |
//! | `kinesis`, `kafka` | the two parts, and how their records are read and look in an event |

pub mod batch;
pub mod checkpoints;
pub mod cloud;
pub mod delivery;
pub mod errors;
pub mod kafka;
pub mod kinesis;
pub mod mapping;
pub mod part;
