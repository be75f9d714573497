//! SAM templates: what the local cloud runs, as they describe it.
//!
//! | module | what |
//! | --- | --- |
//! | `file` | a template's file |
//! | `yaml` | its text as JSON |
//! | `scope` | what its intrinsic functions return |
//! | `parameters` | what it allows as values of its parameters |
//! | `problems` | everything that is wrong with it |
//! | `names` | what its names lead to here |
//! | `resource` | adds its resources, and those of nested stacks, to the stack |
//! | `event` | the events of a function: routes, queues, streams, schedules |
//! | `number` | the numbers of a mapping, as AWS takes them |
//! | `poller` | those that a program of `pollers` brings: Kinesis, Kafka |
//! | `pattern` | event patterns |
//! | `stack` | all that runs here |

mod event;
mod file;
mod names;
mod number;
mod parameters;
mod pattern;
mod poller;
mod problems;
mod resource;
mod scope;
mod stack;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use event::{Mapping, REPORTS, Schedule, StreamMapping};
pub use file::Template;
pub use names::{Place, kebab};
pub use pattern::matches;
pub use poller::{KINESIS, Poller};
pub use problems::Problems;
pub use resource::stack;
pub use stack::{Function, Queue, Rule, Stack, Table};
