//! Faults of the services: a drill causes them, and an outage of DynamoDB also who asks for it.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What does not work. At first, all does.
#[derive(Default)]
pub struct Faults(Mutex<Broken>);

#[derive(Default)]
struct Broken {
    table: Option<TableFault>,
    queues: BTreeSet<String>,
    is_bus_away: bool,
}

/// How the tables answer functions and operators.
#[derive(Clone, Copy)]
pub enum TableFault {
    /// Each call fails.
    Away,
    /// Each transaction fails.
    NoTransactions,
    /// Each call is throttled.
    Throttled,
}

impl TableFault {
    /// Whether a call of this operation fails.
    pub fn hits(self, operation: Option<&str>) -> bool {
        !matches!(self, Self::NoTransactions)
            || operation.is_some_and(|it| it.ends_with(".TransactWriteItems"))
    }

    /// The status and the type of DynamoDB's answer.
    pub const fn answer(self) -> (u16, &'static str) {
        match self {
            Self::Away | Self::NoTransactions => {
                (500, "com.amazonaws.dynamodb.v20120810#InternalServerError")
            }
            Self::Throttled => {
                (400, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException")
            }
        }
    }
}

impl Faults {
    pub fn table(&self) -> Option<TableFault> {
        self.broken().table
    }

    pub fn break_table(&self, fault: Option<TableFault>) {
        self.broken().table = fault;
    }

    /// Whether the queue of this full name takes no message.
    pub fn is_closed(&self, queue: &str) -> bool {
        self.broken().queues.contains(queue)
    }

    /// Lets a queue take no message, or take them again.
    pub fn close(&self, queue: &str, closes: bool) {
        let mut broken = self.broken();
        match closes {
            true => broken.queues.insert(queue.to_owned()),
            false => broken.queues.remove(queue),
        };
    }

    /// Whether the event bus fails.
    pub fn is_bus_away(&self) -> bool {
        self.broken().is_bus_away
    }

    pub fn break_bus(&self, breaks: bool) {
        self.broken().is_bus_away = breaks;
    }

    fn broken(&self) -> MutexGuard<'_, Broken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
