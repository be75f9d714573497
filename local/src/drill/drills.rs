//! Which cause raises which alarms.

use super::cause::Cause::{self, *};

/// What goes wrong, and the alarms that come because of it.
pub struct Drill {
    pub cause: Cause,
    pub alarms: &'static [&'static str],
}

const fn drill(cause: Cause, alarms: &'static [&'static str]) -> Drill {
    Drill { cause, alarms }
}

/// Why an alarm has no drill. Each is raised from written series of metrics by the tests.
pub const NOT_DRILLED: &[(&str, &str)] = &[
    ("AnswersInconclusive", "no handler of the sample answers 401, 403, 408 or 429"),
    ("MetricsSilent", "each function here has the namespace of the template"),
    ("OutboxStreamLate", "the age of a change is by the clock, and would have to be minutes"),
    ("StreamLate", "the age of a change is by the clock, and would have to be a quarter of an hour"),
    ("ChargesErrors", "it is the starter's, which is no part of this program"),
    ("ChargesFail", "it is the starter's, and counts what API Gateway answers"),
];

pub const DRILLS: &[Drill] = &[
    // Outcomes.
    drill(Contradicted, &["Contradictions", "ContradictionsWaiting", "ContradictionsOld"]),
    drill(ExecutedTwice, &["DoubleExecutions"]),
    drill(Unknown, &["OutcomesEscalated", "EscalatedGrow", "OldestUnknown", "UnknownGrow"]),
    drill(NotFound, &["OutcomesAssumed"]),
    drill(WorkerDies, &["DeadWorkers"]),
    drill(ReportDeferred, &["ReportsLate", "ReportsGrow"]),
    drill(ReportUnwritten, &["ReportsUnwritten"]),
    drill(ContradictionUnsent, &["ContradictionsUnsent"]),
    drill(WritesRefused, &["WritesRefused"]),
    drill(Interrupted, &["OperationsWaiting", "OperationsWaitingGrow"]),
    drill(PhaseMismatched, &["PhasesMismatched"]),
    // The table, and its clients.
    drill(TableAway, &["StoreErrors"]),
    drill(TransactionsFail, &["TransactionsUnconfirmed"]),
    drill(TableThrottles, &["StoreThrottled"]),
    drill(TimeToLiveOff, &["TableSettingsOff"]),
    drill(KeyMisused, &["KeyMisuse"]),
    drill(KeyLooped, &["ClientLoops"]),
    drill(StreamUnread("stale", "/payments"), &["StreamSilent"]),
    drill(StreamUnread("outbox", "/orders"), &["OutboxStreamSilent"]),
    // Dead letters.
    drill(Unreadable("checks"), &["DeadLettersWaiting", "DeadLettersGrow", "DeadLettersOld"]),
    drill(Unreadable("deferred-reports"), &["ReportsDead", "ReportsDeadGrow", "ReportsDeadOld"]),
    drill(Unreadable("outbox"), &["OutboxDead", "OutboxDeadGrow"]),
    drill(Unreadable("work"), &["WorkDead", "WorkDeadGrow"]),
    drill(Unreadable("orders"), &["OrdersDead", "OrdersDeadGrow", "OrdersDeadOld"]),
    drill(Unreadable("shipments"), &["ShipmentsDead", "ShipmentsDeadGrow", "ShipmentsDeadOld"]),
    drill(NotBuried("outbox"), &["OutboxNotBuried"]),
    drill(NotBuried("work"), &["WorkNotBuried"]),
    drill(NotBuried("orders"), &["OrdersNotBuried"]),
    drill(NotBuried("shipments"), &["ShipmentsNotBuried"]),
    // Messages that wait.
    drill(NotDelivered, &["OutboxOld", "OutboxFailing"]),
    drill(DeliveryMissed, &["OutboxUndelivered"]),
    drill(WorkWaits, &["WorkOld"]),
    drill(WorkFound, &["WorkWaiting"]),
    drill(WorkAbandoned, &["WorkAbandoned"]),
    drill(CheckWaits, &["ChecksLate"]),
    drill(QuestionWaits, &["QuestionsLate"]),
    drill(SweepWaits, &["SweepLate"]),
    drill(OrderWaits, &["OrdersLate"]),
    drill(OrderHeld, &["OrdersHeld"]),
    drill(ShipmentWaits, &["ShipmentsLate"]),
    drill(OrdersWait, &["OrdersQueued"]),
    // The provider's events, and its ledger.
    drill(EventsUnsigned, &["EventsUnsigned"]),
    drill(EventRefused, &["EventsRefused"]),
    drill(EventUnreadable, &["EventsUnreadable"]),
    drill(EventNotProcessed, &["EventsNotProcessed"]),
    drill(LedgersDiffer, &["LedgersDiffer"]),
    // Jobs.
    drill(NotScheduled("poll"), &["PollMissing"]),
    drill(NotScheduled("sweep"), &["SweepMissing"]),
    drill(NotScheduled("compare"), &["CompareMissing"]),
    drill(RunFails, &["RunsFailed"]),
    // Functions.
    drill(Fails("order-queue"), &["OrderQueueErrors"]),
    drill(Fails("orders"), &["OrdersErrors"]),
    drill(Fails("outbox"), &["OutboxErrors"]),
    drill(Fails("payments"), &["PaymentsErrors"]),
    drill(Fails("report-worker"), &["ReportWorkerErrors"]),
    drill(Fails("reports"), &["ReportsErrors"]),
    drill(Fails("shipping"), &["ShippingErrors"]),
    drill(Fails("stale"), &["StaleErrors"]),
    drill(Fails("webhook"), &["WebhookErrors"]),
    drill(Throttled("order-queue"), &["OrderQueueThrottled"]),
    drill(Throttled("orders"), &["OrdersThrottled"]),
    drill(Throttled("outbox"), &["OutboxThrottled"]),
    drill(Throttled("payments"), &["PaymentsThrottled"]),
    drill(Throttled("report-worker"), &["ReportWorkerThrottled"]),
    drill(Throttled("reports"), &["ReportsThrottled"]),
    drill(Throttled("shipping"), &["ShippingThrottled"]),
    drill(Throttled("stale"), &["StaleThrottled"]),
];
