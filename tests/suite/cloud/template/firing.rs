//! Each alarm comes when what it watches goes wrong, and ends after it. A new alarm needs a row.

use std::collections::BTreeSet;

use lambda_idempotency::telemetry;
use local::alarms::{Alarm, Reading, Recorded};

use super::watched::{ALARMS, OF_STREAMS, alarm, on, record};

const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const AGE: &str = "ApproximateAgeOfOldestMessage";
const DAY: i64 = 24 * 60;

/// What a metric reports.
#[derive(Clone, Copy)]
enum Wave {
    Nothing,
    /// A value at first, and nothing then.
    Once(f64),
    /// A value each so many minutes.
    Each(i64, f64),
}
use Wave::{Each, Nothing, Once};

/// How an alarm is raised.
struct Row {
    alarm: &'static str,
    /// For how many minutes something is wrong.
    minutes: i64,
    /// Metrics, each with what it reports while all is well, and while something is wrong.
    metrics: Vec<(&'static str, Wave, Wave)>,
}

fn row(alarm: &'static str, minutes: i64, metric: &'static str, well: Wave, wrong: Wave) -> Row {
    Row { alarm, minutes, metrics: vec![(metric, well, wrong)] }
}

/// So many events in one minute are the fewest that raise it.
fn counted(alarm: &'static str, metric: &'static str, fewest: f64) -> Row {
    row(alarm, 1, metric, Nothing, Once(fewest))
}

/// A function fails for a quarter of an hour, at each of its few invocations.
fn failing(alarm: &'static str, metric: &'static str) -> Row {
    row(alarm, 20, metric, Each(4, 0.0), Each(4, 1.0))
}

/// One waits, and then none. Each is reported once a minute.
fn waiting(alarm: &'static str, minutes: i64, metric: &'static str, number: f64) -> Row {
    row(alarm, minutes, metric, Each(1, 0.0), Each(1, number))
}

/// What waits is as old as that. An empty queue reports no age.
fn aged(alarm: &'static str, seconds: f64) -> Row {
    row(alarm, 8, AGE, Nothing, Each(1, seconds))
}

/// One comes after hours of quiet, in which SQS reported nothing.
fn grows(alarm: &'static str) -> Row {
    row(alarm, 30, VISIBLE, Nothing, Each(1, 1.0))
}

fn rows() -> Vec<Row> {
    let (created, batches) = (telemetry::RESERVE_CREATED, telemetry::STREAM_BATCH);
    let (published, deliveries) = (telemetry::OUTBOX_PUBLISHED, telemetry::OUTBOX_BATCH);
    let mut rows = vec![
        row("OldestUnknown", 8, telemetry::UNKNOWN_OLDEST, Each(1, 0.0), Each(1, 3601.0)),
        waiting("UnknownGrow", 130, telemetry::UNKNOWN_COUNT, 1.0),
        waiting("OutcomesEscalated", 3, telemetry::UNKNOWN_ESCALATED, 1.0),
        waiting("OperationsWaiting", 20, telemetry::BETWEEN_WORKERS_COUNT, 11.0),
        waiting("OperationsWaitingGrow", 130, telemetry::BETWEEN_WORKERS_COUNT, 11.0),
        waiting("OrdersQueued", 12, VISIBLE, 1001.0),
        row("ContradictionsOld", 170 * 60, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("DeadLettersOld", 170 * 60, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("OrdersDeadOld", 170 * 60, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("ShipmentsDeadOld", 170 * 60, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("ReportsDeadOld", 98 * 60, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("ReportsLate", 3, AGE, Nothing, Each(1, 61.0)),
        aged("QuestionsLate", 3601.0),
        aged("ChecksLate", 3601.0),
        aged("SweepLate", 3601.0),
        aged("OutboxOld", 901.0),
        aged("WorkOld", 1801.0),
        aged("OrdersLate", 901.0),
        aged("ShipmentsLate", 901.0),
        // CloudWatch looks for older values beyond the evaluation periods before it takes missing ones.
        row("PollMissing", 20, telemetry::RECONCILE_POLL, Each(1, 1.0), Nothing),
        row("SweepMissing", 3 * DAY, telemetry::SWEEP_COMPLETED, Each(DAY, 1.0), Nothing),
        row("CompareMissing", 3 * DAY, ledgers::metrics::COMPARE_COMPLETED, Each(DAY, 1.0), Nothing),
        row("OutboxUndelivered", DAY, telemetry::OUTBOX_UNDELIVERED, Each(DAY, 0.0), Each(DAY, 1.0)),
        row("WorkWaiting", DAY, telemetry::WORK_WAITING, Each(DAY, 0.0), Each(DAY, 1.0)),
        row("StreamLate", 6, "IteratorAge", Each(1, 0.0), Each(1, 900_001.0)),
        row("OutboxStreamLate", 6, "IteratorAge", Each(1, 0.0), Each(1, 300_001.0)),
        Row {
            alarm: "StreamSilent",
            minutes: 60,
            metrics: vec![(created, Each(5, 1.0), Each(5, 1.0)), (batches, Each(5, 1.0), Nothing)],
        },
        Row {
            alarm: "OutboxStreamSilent",
            minutes: 60,
            metrics: vec![(published, Each(5, 1.0), Each(5, 1.0)), (deliveries, Each(5, 1.0), Nothing)],
        },
        Row {
            alarm: "MetricsSilent",
            minutes: 240,
            metrics: vec![
                (created, Each(5, 1.0), Nothing),
                (telemetry::STREAM_BEGAN, Each(5, 1.0), Each(5, 1.0)),
            ],
        },
        Row {
            alarm: "ClientLoops",
            minutes: 20,
            metrics: vec![
                (created, Each(1, 10.0), Each(1, 10.0)),
                (telemetry::RESERVE_REPLAY, Each(1, 1.0), Each(1, 30.0)),
            ],
        },
        // All of an API with three requests a minute.
        row("StoreThrottled", 20, telemetry::STORE_THROTTLED, Nothing, Each(1, 3.0)),
        counted("OutboxFailing", telemetry::OUTBOX_NOT_DELIVERED, 3.0),
        counted("DeadWorkers", telemetry::ZOMBIE_KEY, 1.0),
        counted("Contradictions", telemetry::CONTRADICTION_SENT, 1.0),
        counted("ContradictionsUnsent", telemetry::CONTRADICTION_UNSENT, 1.0),
        counted("DoubleExecutions", telemetry::DOUBLE_EXECUTION, 1.0),
        counted("AnswersInconclusive", telemetry::COMPLETION_INCONCLUSIVE, 1.0),
        counted("ReportsUnwritten", telemetry::COMPLETION_UNWRITTEN, 1.0),
        counted("WritesRefused", telemetry::COMPLETION_DENIED, 1.0),
        counted("PhasesMismatched", telemetry::PHASE_MISMATCH, 1.0),
        counted("WorkAbandoned", telemetry::WORK_ABANDONED, 1.0),
        counted("TransactionsUnconfirmed", telemetry::TRANSACTION_UNCONFIRMED, 6.0),
        row("TableSettingsOff", DAY, telemetry::TABLE_SETTING_OFF, Nothing, Once(1.0)),
        counted("EscalatedGrow", telemetry::ESCALATED, 1.0),
        counted("OutcomesAssumed", telemetry::RECONCILE_ASSUMED, 11.0),
        counted("StoreErrors", telemetry::STORE_ERROR, 11.0),
        Row {
            alarm: "KeyMisuse",
            minutes: 1,
            metrics: vec![
                (telemetry::RESERVE_KEY_MISUSE, Nothing, Once(6.0)),
                (telemetry::LOOK_UP_OVER_BOUND, Nothing, Once(5.0)),
            ],
        },
        counted("EventsUnsigned", telemetry::WEBHOOK_UNSIGNED, UNSIGNED + 1.0),
        counted("EventsRefused", telemetry::WEBHOOK_REFUSED, 1.0),
        counted("EventsUnreadable", telemetry::WEBHOOK_UNREADABLE, 1.0),
        counted("EventsNotProcessed", telemetry::WEBHOOK_AGAIN, 1.0),
        counted("LedgersDiffer", ledgers::metrics::COMPARE_DIFFERENCES, 1.0),
        counted("RunsFailed", "NumberOfMessagesSent", 1.0),
        counted("OrdersHeld", telemetry::MESSAGE_HELD, 1.0),
        counted("WebhookErrors", "Errors", 1.0),
        counted("ChargesErrors", "Errors", 1.0),
        counted("ChargesFail", "5xx", 3.0),
    ];
    let dead = [
        "ContradictionsWaiting",
        "DeadLettersWaiting",
        "ReportsDead",
        "OutboxDead",
        "WorkDead",
        "OrdersDead",
        "ShipmentsDead",
    ];
    rows.extend(dead.map(|alarm| waiting(alarm, 3, VISIBLE, 1.0)));
    rows.extend(GROW.map(grows));
    let buried = ["OrdersNotBuried", "OutboxNotBuried", "ShipmentsNotBuried", "WorkNotBuried"];
    rows.extend(buried.map(|alarm| counted(alarm, telemetry::MESSAGE_NOT_BURIED, 1.0)));
    for (errors, throttled) in [
        ("StaleErrors", "StaleThrottled"),
        ("OutboxErrors", "OutboxThrottled"),
        ("OrderQueueErrors", "OrderQueueThrottled"),
        ("PaymentsErrors", "PaymentsThrottled"),
        ("OrdersErrors", "OrdersThrottled"),
        ("ReportsErrors", "ReportsThrottled"),
        ("ShippingErrors", "ShippingThrottled"),
        ("ReportWorkerErrors", "ReportWorkerThrottled"),
    ] {
        rows.extend([failing(errors, "Errors"), failing(throttled, "Throttles")]);
    }
    rows.extend(rows_of_streams());
    rows
}

fn rows_of_streams() -> Vec<Row> {
    let (sent, week) = ("NumberOfMessagesSent", 170 * 60);
    vec![
        row("KinesisBehind", 17, "IteratorAge", Each(5, 0.0), Each(5, 900_001.0)),
        row("ChangesBehind", 17, "IteratorAge", Each(5, 0.0), Each(5, 900_001.0)),
        row("KafkaBehind", 37, "OffsetLag", Each(4, 10.0), Each(4, 1001.0)),
        waiting("KinesisParked", 3, VISIBLE, 1.0),
        waiting("ChangesParked", 3, VISIBLE, 1.0),
        waiting("KafkaParked", 3, VISIBLE, 1.0),
        counted("KinesisParkedGrow", sent, 1.0),
        counted("ChangesParkedGrow", sent, 1.0),
        counted("KafkaParkedGrow", sent, 1.0),
        row("KinesisParkedOld", week, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("ChangesParkedOld", week, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        row("KafkaParkedOld", week, VISIBLE, Each(10, 0.0), Each(10, 1.0)),
        counted("KinesisNotParked", telemetry::MESSAGE_NOT_BURIED, 1.0),
        counted("ChangesNotParked", telemetry::MESSAGE_NOT_BURIED, 1.0),
        counted("KafkaNotParked", telemetry::MESSAGE_NOT_BURIED, 1.0),
        counted("KinesisHeld", telemetry::MESSAGE_HELD, 1.0),
        counted("ChangesHeld", telemetry::MESSAGE_HELD, 1.0),
        counted("KafkaHeld", telemetry::MESSAGE_HELD, 1.0),
        counted("KinesisDropped", sent, 1.0),
        counted("ChangesDropped", sent, 1.0),
        counted("KafkaDropped", sent, 1.0),
        counted("KinesisLost", "DestinationDeliveryFailures", 1.0),
        counted("ChangesLost", "DestinationDeliveryFailures", 1.0),
        counted("KafkaLost", "DestinationDeliveryFailures", 1.0),
        counted("KinesisCut", telemetry::MESSAGE_CUT, 1.0),
        counted("ChangesCut", telemetry::MESSAGE_CUT, 1.0),
        counted("KafkaCut", telemetry::MESSAGE_CUT, 1.0),
    ]
}

/// The default of `EventsUnsignedTolerated`.
const UNSIGNED: f64 = 50.0;

/// The alarms on the growth of a queue.
pub const GROW: [&str; 7] = [
    "DeadLettersGrow",
    "OrdersDeadGrow",
    "OutboxDeadGrow",
    "ReportsDeadGrow",
    "ReportsGrow",
    "ShipmentsDeadGrow",
    "WorkDeadGrow",
];

impl Wave {
    /// What it reports so many minutes after it began.
    fn at(self, minute: i64) -> Option<f64> {
        match self {
            Nothing => None,
            Once(value) => Some(value).filter(|_| minute == 0),
            Each(minutes, value) => Some(value).filter(|_| minute.rem_euclid(minutes) == 0),
        }
    }

    fn minutes(self) -> i64 {
        if let Each(minutes, _) = self { minutes } else { 0 }
    }

    fn less(self) -> Self {
        if let Once(value) = self { Once(value - 1.0) } else { self }
    }
}

/// When the alarm is on: all is well, then wrong from minute 0 on, then well again. With the last minute.
fn driven(alarm: &Alarm, row: &Row, wrong: fn(Wave) -> Wave, reading: Reading) -> (Option<(i64, i64)>, i64) {
    let minutes = |value: u64| i64::try_from(value).expect("some minutes");
    let pause = row.metrics.iter().map(|(_, well, _)| well.minutes()).max().unwrap_or_default();
    // As far as CloudWatch looks back, and until each metric has reported once more.
    let range = minutes(alarm.window()) + 12 * minutes(alarm.period()) + pause;
    let end = row.minutes + range;
    let mut recorded = Recorded::default();
    for (metric, well, wave) in &row.metrics {
        record(&mut recorded, alarm, metric, -2 * range..0, |minute| well.at(minute));
        record(&mut recorded, alarm, metric, 0..row.minutes, |minute| wrong(*wave).at(minute));
        record(&mut recorded, alarm, metric, row.minutes..end, |minute| well.at(minute - row.minutes));
    }
    // CloudWatch evaluates each minute. Of a week that would take long.
    let step = usize::try_from(alarm.window() / 100).expect("some minutes").max(1);
    let evaluations = (-range..=end).step_by(step);
    (on(alarm, &recorded, evaluations, reading), end)
}

// T79
#[test]
fn each_alarm_comes_when_something_goes_wrong_and_ends_after_it() {
    let rows = rows();
    let driven_here: BTreeSet<_> = rows.iter().map(|row| row.alarm).collect();
    assert_eq!(driven_here, ALARMS.iter().chain(&*OF_STREAMS).map(|alarm| &*alarm.name).collect());
    assert_eq!(driven_here.len(), rows.len());
    for row in &rows {
        let alarm = alarm(row.alarm);
        for reading in Reading::all() {
            let (on, end) = driven(alarm, row, |wave| wave, reading);
            let (first, last) = on.unwrap_or_else(|| panic!("{} never comes: {reading:?}", row.alarm));
            // While something is wrong, or at the evaluation after it.
            assert!((1..=row.minutes + 20).contains(&first), "{} comes at {first}: {reading:?}", row.alarm);
            assert!(last < end, "{} does not end: {reading:?}", row.alarm);
        }
    }
}

#[test]
fn fewer_than_an_alarm_needs_do_not_raise_it() {
    let is_count = |row: &Row| matches!(row.metrics[..], [(_, _, Once(fewest))] if fewest > 1.0);
    for row in rows().iter().filter(|row| is_count(row)) {
        let alarm = alarm(row.alarm);
        for reading in Reading::all() {
            assert_eq!(driven(alarm, row, Wave::less, reading).0, None, "{}: {reading:?}", row.alarm);
        }
    }
}

// Clients retry more if there are more of them, and at night one retry of two requests means nothing.
#[test]
fn usual_replays_do_not_raise_the_alarm_on_loops() {
    let alarm = alarm("ClientLoops");
    // Of each minute. The default of `ReplaysTolerated` is 100 in five.
    for (created, replays, comes) in
        [(0.0, 19.0, false), (0.0, 21.0, true), (1000.0, 219.0, false), (1000.0, 221.0, true)]
    {
        for counts in
            [telemetry::RESERVE_CREATED, telemetry::RESERVE_ACCEPTED, telemetry::TRANSACTION_COMMITTED]
        {
            let mut recorded = Recorded::default();
            record(&mut recorded, alarm, telemetry::RESERVE_REPLAY, -60..60, |_| Some(replays));
            record(&mut recorded, alarm, counts, -60..60, |_| Some(created));
            for reading in Reading::all() {
                let on = on(alarm, &recorded, (0..60).step_by(5), reading);
                assert_eq!(on.is_some(), comes, "{replays} of {created} {counts}: {reading:?}");
            }
        }
    }
}

// A partition that is split throttles for some minutes.
#[test]
fn throttling_raises_an_alarm_only_if_it_lasts() {
    let alarm = alarm("StoreThrottled");
    for (minutes, throttled, comes) in [(30, 2.0, false), (30, 3.0, true), (5, 1000.0, false)] {
        let mut recorded = Recorded::default();
        record(&mut recorded, alarm, telemetry::STORE_THROTTLED, 0..minutes, |_| Some(throttled));
        for reading in Reading::all() {
            let on = on(alarm, &recorded, -30..60, reading);
            assert_eq!(on.is_some(), comes, "{throttled} in {minutes} minutes: {reading:?}");
        }
    }
}

// Time to live deletes records at night, and clients retry what was released: both are read in the stream.
#[test]
fn a_quiet_night_does_not_raise_the_alarm_on_silent_metrics() {
    let alarm = alarm("MetricsSilent");
    for counted in [telemetry::RESERVE_CREATED, telemetry::RESERVE_FAILED_RETRY, telemetry::RESERVE_TOO_LATE]
    {
        for began in [Nothing, Each(50, 1.0)] {
            let mut recorded = Recorded::default();
            record(&mut recorded, alarm, telemetry::STREAM_BEGAN, -600..600, |minute| began.at(minute));
            // When its invocation ends.
            record(&mut recorded, alarm, counted, -600..600, |minute| began.at(minute - 15));
            for reading in Reading::all() {
                assert_eq!(
                    on(alarm, &recorded, (0..600).step_by(5), reading),
                    None,
                    "{counted}: {reading:?}"
                );
            }
        }
    }
}

// One is read in the stream a minute after it was counted, and another one counted a quarter of an hour after it was read.
#[test]
fn lateness_of_counts_does_not_raise_the_alarm_on_silent_metrics() {
    let alarm = alarm("MetricsSilent");
    let (mut recorded, at) = (Recorded::default(), |minutes: &'static [i64]| {
        move |minute: i64| minutes.contains(&minute).then_some(1.0)
    });
    record(&mut recorded, alarm, telemetry::STREAM_BEGAN, -600..600, at(&[60, 170]));
    record(&mut recorded, alarm, telemetry::RESERVE_CREATED, -600..600, at(&[59, 184]));
    for reading in Reading::all() {
        assert_eq!(on(alarm, &recorded, -60..600, reading), None, "{reading:?}");
    }
}

// SQS reports nothing for an hour, and the letter would be deleted before the next week is over.
#[test]
fn a_lost_hour_does_not_hide_old_dead_letters() {
    for (name, hours) in [("ContradictionsOld", 168), ("DeadLettersOld", 168), ("ReportsDeadOld", 96)] {
        let (alarm, mut recorded) = (alarm(name), Recorded::default());
        let end = (hours + 1) * 60;
        record(&mut recorded, alarm, VISIBLE, 0..end, |minute| {
            Some(1.0).filter(|_| minute % 10 == 0 && minute / 60 != 50)
        });
        for reading in Reading::all() {
            let on = on(alarm, &recorded, (0..end).step_by(20), reading);
            assert!(on.is_some(), "{name}: {reading:?}");
        }
    }
}
