//! All that runs here, of a template and those nested in it.

use super::{
    event::{Mapping, Schedule, StreamMapping},
    poller::Poller,
};
use crate::route::Route;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// What runs here.
#[derive(Debug, Default)]
pub struct Stack {
    pub tables: Vec<Table>,
    pub queues: Vec<Queue>,
    pub buses: Vec<String>,
    pub rules: Vec<Rule>,
    pub functions: Vec<Function>,
    pub routes: Vec<Route>,
    pub mappings: Vec<Mapping>,
    pub streams: Vec<StreamMapping>,
    pub pollers: Vec<Poller>,
    pub schedules: Vec<Schedule>,
    pub alarms: Vec<AlarmResource>,
    /// The outputs of the nested `idempotency.yaml`.
    pub outputs: BTreeMap<String, String>,
    /// The names of its resources, each with its kind.
    pub taken: BTreeSet<(String, String)>,
}

/// An alarm of CloudWatch. Nothing here watches it.
#[derive(Debug)]
pub struct AlarmResource {
    /// Its name in the template.
    pub name: String,
    /// As CloudFormation writes them, or why they have no value here.
    pub properties: Result<Value, String>,
}

#[derive(Debug)]
pub struct Table {
    /// Such as `idempotency` of the resource `IdempotencyTable`.
    pub name: String,
    /// With the prefix.
    pub full_name: String,
    /// As CloudFormation writes them.
    pub properties: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Such as `orders` of the resource `OrdersQueue`.
    pub name: String,
    /// With the prefix, and `.fifo`.
    pub full_name: String,
    pub url: String,
    pub arn: String,
    /// The ARN of its dead letters, and after how many receives.
    pub dead_letters: Option<(String, u32)>,
    pub is_fifo: bool,
    pub deduplicates_by_content: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub bus: String,
    pub pattern: Value,
    pub queue_arns: Vec<String>,
}

#[derive(Debug)]
pub struct Function {
    /// Such as `order-queue` of the resource `OrderQueueFunction`.
    pub name: String,
    /// Its resource, for messages.
    pub resource: String,
    /// The name of its program.
    pub binary: Option<String>,
    /// Its `CodeUri`.
    pub code: PathBuf,
    /// Whether this program is its program.
    pub is_built_in: bool,
    /// In seconds.
    pub timeout: Option<u64>,
    /// Each variable, or why it has no value here.
    pub variables: BTreeMap<String, Result<String, String>>,
    /// Whether clients wait for it.
    pub has_clients: bool,
    /// The ARN of the queue of its scheduled runs that fail.
    pub failed_runs: Option<String>,
}

impl Stack {
    /// The queue with this ARN.
    pub fn queue(&self, arn: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.arn == arn)
    }

    /// The table with this stream.
    pub fn streamed(&self, stream_arn: &str) -> Option<&Table> {
        let table = stream_arn.split('/').nth(1)?;
        self.tables.iter().find(|known| known.full_name == table)
    }

    /// Whether all that is named here is here.
    pub fn check(&self) -> Result<(), String> {
        let is_queue = |arn: &str| match self.queue(arn) {
            Some(_) => Ok(()),
            None => Err(format!("the local cloud has no queue {arn}")),
        };
        for Mapping { function, queue_arn, .. } in &self.mappings {
            is_queue(queue_arn).map_err(|error| format!("function {function}: {error}"))?;
        }
        for StreamMapping { function, stream_arn, dead_letters_arn, .. } in &self.streams {
            let streamed =
                self.streamed(stream_arn).filter(|table| !table.properties["StreamSpecification"].is_null());
            if streamed.is_none() {
                return Err(format!("function {function}: the local cloud has no stream {stream_arn}"));
            }
            dead_letters_arn.iter().try_for_each(|arn| is_queue(arn))?;
        }
        for Poller { function, dropped_arn, .. } in &self.pollers {
            let dropped = dropped_arn.iter().try_for_each(|arn| is_queue(arn));
            dropped.map_err(|error| format!("function {function}: {error}"))?;
        }
        for Queue { name, dead_letters, .. } in &self.queues {
            let dead = dead_letters.iter().try_for_each(|(arn, _)| is_queue(arn));
            dead.map_err(|error| format!("queue {name}: {error}"))?;
        }
        if let [one, other, ..] = &self.buses[..] {
            return Err(format!("the local cloud has one event bus, not {one} and {other}"));
        }
        for Rule { bus, queue_arns, .. } in &self.rules {
            if !self.buses.contains(bus) {
                return Err(format!("the local cloud has no event bus {bus}"));
            }
            queue_arns.iter().try_for_each(|arn| is_queue(arn))?;
        }
        Ok(())
    }
}
