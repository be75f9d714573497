//! What goes wrong in a drill, and how it is repaired.
//!
//! | module | what |
//! | --- | --- |
//! | `outcomes` | outcomes that are not known, that contradict their record, or that were executed twice |
//! | `table` | a table that fails, clients that misuse keys |
//! | `events` | the provider's events, and its ledger |
//! | `deliveries` | messages that are not delivered, accepted work that waits, jobs |
//! | `queues` | messages that nothing takes, that cannot be read, or that cannot be buried |
//! | `functions` | functions that fail, or get no concurrency |

mod deliveries;
mod events;
mod functions;
mod outcomes;
mod queues;
mod table;

use super::stage::Stage;
use std::fmt;

/// What goes wrong.
#[derive(Clone, Copy)]
pub enum Cause {
    /// Each invocation of this function fails.
    Fails(&'static str),
    /// This function gets no concurrency.
    Throttled(&'static str),
    /// No schedule begins this job.
    NotScheduled(&'static str),
    /// A message of this queue cannot be read.
    Unreadable(&'static str),
    /// The same, and the queue's dead letters take nothing.
    NotBuried(&'static str),
    /// This function does not read the table's stream, while clients send requests to this path.
    StreamUnread(&'static str, &'static str),
    CheckWaits,
    Contradicted,
    ContradictionUnsent,
    DeliveryMissed,
    EventNotProcessed,
    EventRefused,
    EventUnreadable,
    EventsUnsigned,
    ExecutedTwice,
    Interrupted,
    KeyLooped,
    KeyMisused,
    LedgersDiffer,
    NotDelivered,
    NotFound,
    OrderHeld,
    OrderWaits,
    OrdersWait,
    PhaseMismatched,
    QuestionWaits,
    ReportDeferred,
    ReportUnwritten,
    RunFails,
    ShipmentWaits,
    SweepWaits,
    TableAway,
    TableThrottles,
    TimeToLiveOff,
    TransactionsFail,
    Unknown,
    WorkAbandoned,
    WorkFound,
    WorkWaits,
    WorkerDies,
    WritesRefused,
}

impl Cause {
    /// Lets it go wrong.
    pub async fn begin(self, stage: &mut Stage) -> Result<(), String> {
        match self {
            Self::Fails(function) => functions::fails(stage, function).await,
            Self::Throttled(function) => functions::throttled(stage, function).await,
            Self::NotScheduled(job) => {
                stage.off.insert(job);
                Ok(())
            }
            Self::Unreadable(queue) => queues::buried(stage, queue).await,
            Self::NotBuried(queue) => queues::not_buried(stage, queue).await,
            Self::StreamUnread(function, path) => {
                functions::stop(stage, function, true);
                table::request(stage, path).await
            }
            Self::CheckWaits => deliveries::check_waits(stage).await,
            Self::Contradicted => outcomes::contradicted(stage).await,
            Self::ContradictionUnsent => outcomes::unsent(stage).await,
            Self::DeliveryMissed => deliveries::undelivered(stage).await,
            Self::EventNotProcessed => events::not_processed(stage).await,
            Self::EventRefused => events::refused(stage).await,
            Self::EventUnreadable => events::unreadable(stage).await,
            Self::EventsUnsigned => events::unsigned(stage).await,
            Self::ExecutedTwice => outcomes::twice(stage).await,
            Self::Interrupted => outcomes::interrupt(stage).await,
            Self::KeyLooped => table::looped(stage).await,
            Self::KeyMisused => table::misused(stage).await,
            Self::LedgersDiffer => events::differ(stage).await,
            Self::NotDelivered => deliveries::not_delivered(stage).await,
            Self::NotFound => outcomes::not_found(stage).await,
            Self::OrderHeld => queues::held(stage).await,
            Self::OrderWaits => queues::order_waits(stage).await,
            Self::OrdersWait => queues::orders_wait(stage).await,
            Self::PhaseMismatched => outcomes::mismatched(stage).await,
            Self::QuestionWaits => deliveries::question_waits(stage).await,
            Self::ReportDeferred => outcomes::deferred(stage).await,
            Self::ReportUnwritten => outcomes::unwritten(stage).await,
            Self::ShipmentWaits => deliveries::shipment_waits(stage).await,
            Self::SweepWaits => deliveries::sweep_waits(stage).await,
            Self::RunFails => table::run_fails(stage).await,
            Self::TableAway => table::away(stage).await,
            Self::TableThrottles => table::throttles(stage).await,
            Self::TimeToLiveOff => table::time_to_live_is(stage, false).await,
            Self::TransactionsFail => table::transactions_fail(stage).await,
            Self::Unknown => outcomes::unknown(stage).await,
            Self::WorkAbandoned => deliveries::abandoned(stage).await,
            Self::WorkFound => deliveries::work_is_found(stage).await,
            Self::WorkWaits => deliveries::work_waits(stage).await,
            Self::WorkerDies => outcomes::dies(stage).await,
            Self::WritesRefused => outcomes::refused(stage).await,
        }
    }

    /// In how many minutes it goes wrong again, if it must do so repeatedly.
    pub const fn each(self) -> Option<u64> {
        match self {
            Self::Fails(_) | Self::Throttled(_) => Some(4),
            Self::StreamUnread(..) | Self::TableThrottles | Self::KeyLooped => Some(5),
            _ => None,
        }
    }

    /// Repairs it.
    pub async fn end(self, stage: &mut Stage) -> Result<(), String> {
        match self {
            Self::Throttled(function) | Self::StreamUnread(function, _) => {
                functions::stop(stage, function, false);
                Ok(())
            }
            Self::NotScheduled(job) => {
                stage.off.remove(job);
                Ok(())
            }
            Self::Unreadable(queue) => queues::dealt_with(stage, queue).await,
            Self::NotBuried(queue) => queues::buried_again(stage, queue).await,
            Self::CheckWaits => queues::taken(stage, "stale", "checks").await,
            Self::Contradicted => outcomes::cleared(stage).await,
            Self::ContradictionUnsent => outcomes::sent(stage),
            Self::DeliveryMissed => deliveries::all_delivered(stage).await,
            Self::ExecutedTwice => outcomes::counted(stage).await,
            Self::Interrupted => outcomes::resume(stage).await,
            Self::NotDelivered => deliveries::delivered(stage).await,
            Self::OrderHeld => queues::released(stage).await,
            Self::OrderWaits => queues::taken(stage, "order-queue", "orders").await,
            Self::OrdersWait => queues::orders_are_dropped(stage).await,
            Self::PhaseMismatched => outcomes::matched(stage).await,
            Self::QuestionWaits => queues::taken(stage, "reconcile", "reconcile").await,
            Self::ReportDeferred => outcomes::applied(stage).await,
            Self::ReportUnwritten => outcomes::written(stage).await,
            Self::ShipmentWaits => queues::taken(stage, "shipping", "shipments").await,
            Self::SweepWaits => queues::taken(stage, "stale", "sweep").await,
            Self::RunFails => {
                table::is_back(stage).await?;
                stage.empty("failed-runs").await
            }
            Self::TableAway | Self::TableThrottles | Self::TransactionsFail => table::is_back(stage).await,
            Self::TimeToLiveOff => table::time_to_live_is(stage, true).await,
            Self::Unknown => outcomes::known(stage).await,
            Self::WorkAbandoned | Self::WorkWaits => queues::taken(stage, "report-worker", "work").await,
            Self::WorkFound => deliveries::no_work_is_found(stage).await,
            Self::WorkerDies => outcomes::found(stage).await,
            Self::WritesRefused => outcomes::accepted(stage).await,
            Self::EventNotProcessed => stage.deliver().await,
            // It is over.
            Self::Fails(_)
            | Self::EventRefused
            | Self::EventUnreadable
            | Self::EventsUnsigned
            | Self::KeyLooped
            | Self::KeyMisused
            | Self::LedgersDiffer
            | Self::NotFound => Ok(()),
        }
    }
}

impl fmt::Display for Cause {
    /// What happens, in a few words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Fails(function) => return write!(f, "{function} fails, each four minutes"),
            Self::Throttled(function) => return write!(f, "{function} gets no concurrency"),
            Self::NotScheduled(job) => return write!(f, "nothing begins the job {job}"),
            Self::Unreadable(queue) => return write!(f, "a message of the queue {queue} cannot be read"),
            Self::NotBuried(queue) => {
                return write!(
                    f,
                    "a message of the queue {queue} is dead, and its dead letters take nothing"
                );
            }
            Self::StreamUnread(function, path) => {
                return write!(f, "{function} does not read the table's stream, while clients use {path}");
            }
            Self::CheckWaits => "a worker may be dead, and stale does not take its check",
            Self::Contradicted => "an operator settles as declined what was charged, and its webhook comes",
            Self::ContradictionUnsent => "a worker's record is deleted, and its report can go nowhere",
            Self::DeliveryMissed => "an order's message is an hour old, and a sweep finds it",
            Self::EventNotProcessed => "the table does not answer when an event of the provider comes",
            Self::EventRefused => "an event has an invalid signature",
            Self::EventUnreadable => "an event of the provider cannot be read",
            Self::EventsUnsigned => "51 requests to the webhook have no signature",
            Self::ExecutedTwice => "an operator releases a payment whose report waits, and a retry runs",
            Self::Interrupted => "the workers of 11 orders die between two phases",
            Self::KeyLooped => "a client sends one key 120 times in five minutes",
            Self::KeyMisused => "a client uses one key for 13 requests",
            Self::LedgersDiffer => "the provider has a charge without a record",
            Self::NotDelivered => "the event bus takes nothing",
            Self::NotFound => "the provider does not find the charges of 11 payments",
            Self::OrderHeld => "the provider is away, and an operator holds an order of the queue",
            Self::OrderWaits => "order-queue gets no concurrency, and an order comes",
            Self::OrdersWait => "order-queue gets no concurrency, and 1,010 orders come",
            Self::PhaseMismatched => "a record keeps a phase that its handler does not have",
            Self::QuestionWaits => "reconcile gets no concurrency, and an operator asks",
            Self::ReportDeferred => "a worker cannot write its report, and reconcile gets no concurrency",
            Self::ReportUnwritten => "a worker can neither write its report nor defer it",
            Self::RunFails => "the table does not answer while reconcile polls",
            Self::ShipmentWaits => "shipping gets no concurrency, and an order is placed",
            Self::SweepWaits => "stale gets no concurrency, and a sweep shall continue",
            Self::TableAway => "the table does not answer",
            Self::TableThrottles => "the table throttles each call",
            Self::TimeToLiveOff => "the table has no time to live any more",
            Self::TransactionsFail => "the table answers no transaction",
            Self::Unknown => "the provider does not answer for two hours",
            Self::WorkAbandoned => "no worker takes a report for two days, and a sweep finds it",
            Self::WorkFound => "no worker takes a report for an hour, and a sweep finds it",
            Self::WorkWaits => "report-worker gets no concurrency, and a report is accepted",
            Self::WorkerDies => "a worker dies after its charge",
            Self::WritesRefused => "the row of a payment is another charge's",
        };
        f.write_str(text)
    }
}
