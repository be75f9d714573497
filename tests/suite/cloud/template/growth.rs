//! What comes while something waits already, or after hours of quiet, and what is no growth.

use local::alarms::{Alarm, Reading, Recorded};

use super::{
    alarms::LEVELS,
    firing::GROW,
    watched::{alarm, on, record},
};

const VISIBLE: &str = "ApproximateNumberOfMessagesVisible";
const IN_FLIGHT: &str = "ApproximateNumberOfMessagesNotVisible";

/// Longer than CloudWatch looks back.
const LONG: i64 = 40;

/// When the alarm on the growth of a queue is on.
fn of_queue(
    alarm: &Alarm,
    visible: impl Fn(i64) -> Option<f64>,
    in_flight: impl Fn(i64) -> Option<f64>,
    reading: Reading,
) -> Option<(i64, i64)> {
    let mut recorded = Recorded::default();
    record(&mut recorded, alarm, VISIBLE, -2 * LONG..LONG, visible);
    record(&mut recorded, alarm, IN_FLIGHT, -2 * LONG..LONG, in_flight);
    on(alarm, &recorded, -10..LONG, reading)
}

/// `number` from minute 0 on, and `before` until then.
fn step(before: Option<f64>, number: Option<f64>) -> impl Fn(i64) -> Option<f64> {
    move |minute| if minute < 0 { before } else { number }
}

/// Calls this for each alarm on the growth of a queue, and each reading of AWS's documents.
fn each(check: impl Fn(&Alarm, Reading)) {
    for name in GROW {
        let alarm = alarm(name);
        Reading::all().for_each(|reading| check(alarm, reading));
    }
}

const NONE: fn(i64) -> Option<f64> = |_| None;

// T79
#[test]
fn one_message_after_hours_of_quiet_raises_the_alarm_on_growth() {
    each(|alarm, reading| {
        // SQS reports nothing of a queue that was unused for six hours, and no messages in flight if there are none.
        for before in [None, Some(0.0)] {
            let (first, last) = of_queue(alarm, step(before, Some(1.0)), NONE, reading).expect("it comes");
            assert!(first <= 3 && last < 30, "{} {first} to {last}: {reading:?}", alarm.name);
        }
    });
}

// T79
#[test]
fn one_more_message_raises_the_alarm_while_others_wait() {
    each(|alarm, reading| {
        let some = |number| move |_| Some(number);
        for on in [
            of_queue(alarm, step(Some(3.0), Some(4.0)), NONE, reading),
            of_queue(alarm, step(Some(3.0), Some(4.0)), some(2.0), reading),
            // Somebody looks at all of them, and at the new one too.
            of_queue(alarm, some(0.0), step(Some(3.0), Some(4.0)), reading),
            of_queue(alarm, step(Some(0.0), Some(1.0)), some(3.0), reading),
        ] {
            let (first, last) = on.unwrap_or_else(|| panic!("{} {reading:?}", alarm.name));
            assert!(first <= 3 && last < 30, "{} {first} to {last}: {reading:?}", alarm.name);
        }
    });
}

// T79: values of the first minutes come together, a quarter of an hour late.
#[test]
fn a_queue_whose_first_values_come_late_raises_its_alarm() {
    each(|alarm, reading| {
        let mut recorded = Recorded::default();
        record(&mut recorded, alarm, VISIBLE, 0..LONG, |_| Some(1.0));
        assert!(on(alarm, &recorded, 15..LONG, reading).is_some(), "{}: {reading:?}", alarm.name);
    });
}

// T79: the two numbers settle within about a minute, in any order.
#[test]
fn who_looks_at_dead_letters_does_not_raise_their_alarm() {
    each(|alarm, reading| {
        let moments = (-1..=1).flat_map(|hidden| (-1..=1).map(move |back| (hidden, back)));
        for (hidden, back) in moments {
            // One look of two minutes may be too short for a number that is late at first and early then.
            for minutes in [1, 2, 3, 10].into_iter().filter(|minutes| *minutes != 2 || hidden <= back) {
                let visible = |minute| Some(if (0..minutes).contains(&minute) { 2.0 } else { 3.0 });
                let looked_at = hidden..minutes + back;
                let in_flight = |minute| looked_at.contains(&minute).then_some(1.0);
                let on = of_queue(alarm, visible, in_flight, reading);
                // With only two values beyond the evaluation periods, and missing values as 0, the sum of the first minute decides.
                let is_blind = reading.beyond == 2 && reading.missing_is_zero;
                assert!(is_blind || on.is_none(), "{} {hidden} {back} {on:?}: {reading:?}", alarm.name);
            }
        }
    });
}

// T79
#[test]
fn a_removed_message_and_a_lost_value_are_no_growth() {
    each(|alarm, reading| {
        let removed = step(Some(3.0), Some(2.0));
        assert_eq!(of_queue(alarm, removed, NONE, reading), None, "{}: {reading:?}", alarm.name);
        let emptied = step(Some(3.0), None);
        assert_eq!(of_queue(alarm, emptied, NONE, reading), None, "{}: {reading:?}", alarm.name);
        let taken = |minute| (0..5).contains(&minute).then_some(1.0);
        let on = of_queue(alarm, step(Some(3.0), Some(2.0)), taken, reading);
        assert_eq!(on, None, "{}: {reading:?}", alarm.name);
        let lost = |minute| Some(3.0).filter(|_| minute != 0);
        let is_blind = reading.beyond == 2 && reading.missing_is_zero;
        let on = of_queue(alarm, lost, NONE, reading);
        assert!(is_blind || on.is_none(), "{}: {reading:?}", alarm.name);
    });
}

// T57: one old dead letter keeps its alarm on, and three hundred new ones would notify nobody.
#[test]
fn whatever_keeps_an_alarm_on_raises_another_one_when_it_grows() {
    for (level, growth) in LEVELS {
        let (level, growth) = (alarm(level), alarm(growth));
        // More than any of them tolerates, as an age too.
        let number = |minute: i64| Some(if minute < 0 { 4000.0 } else { 4020.0 });
        let event = |minute: i64| (minute == 1).then_some(1.0);
        for reading in Reading::all() {
            let mut recorded = Recorded::default();
            for watching in [level, growth] {
                for name in
                    watching.metrics().map(|metric| metric.name.clone()).filter(|name| name != IN_FLIGHT)
                {
                    if !recorded_already(level, watching, &name) {
                        match name.ends_with(".count") || name == "NumberOfMessagesSent" {
                            true => record(&mut recorded, watching, &name, -600..180, event),
                            false => record(&mut recorded, watching, &name, -600..180, number),
                        }
                    }
                }
            }
            let (first, last) = on(level, &recorded, -300..180, reading).expect("the level is on");
            assert_eq!((first, last), (-300, 179), "{}", level.name);
            let (first, last) = on(growth, &recorded, -300..180, reading).expect("it grows");
            assert!(first > 0 && last < 179, "{} {first} to {last}: {reading:?}", growth.name);
        }
    }
}

/// Whether the level records it, which is another alarm than the one that is watching.
fn recorded_already(level: &Alarm, watching: &Alarm, name: &str) -> bool {
    level.name != watching.name && level.metrics().any(|metric| metric.name == name)
}

// T50, T79: without operations there is no batch to read. A stream that nothing has read for hours has no batches at all.
#[test]
fn a_stream_that_nothing_reads_raises_an_alarm() {
    for (name, begins, batches) in [
        ("StreamSilent", "api.idempotency.reserve.created.count", "api.idempotency.stream.batch.count"),
        (
            "OutboxStreamSilent",
            "api.idempotency.outbox.published.count",
            "api.idempotency.outbox.batch.count",
        ),
        (
            "OutboxStreamSilent",
            "api.idempotency.reserve.accepted.count",
            "api.idempotency.outbox.batch.count",
        ),
    ] {
        let alarm = alarm(name);
        for reading in Reading::all() {
            let on = |begin: &dyn Fn(i64) -> bool, read: &dyn Fn(i64) -> bool| {
                let mut recorded = Recorded::default();
                record(&mut recorded, alarm, begins, -600..120, |minute| begin(minute).then_some(1.0));
                record(&mut recorded, alarm, batches, -600..120, |minute| read(minute).then_some(1.0));
                on(alarm, &recorded, -300..120, reading)
            };
            let never = |_| false;
            let (first, _) = on(&|minute| minute >= 0, &never).expect("nothing reads it");
            assert!(first <= 31, "{name} {first}: {reading:?}");
            assert!(on(&|_| true, &|minute| minute < 0).is_some_and(|(first, _)| first <= 31), "{name}");
            assert_eq!(on(&never, &never), None, "{name}: {reading:?}");
            // Each is read a minute later, because of the window of a batch.
            let [rarely, then] = [0, 1].map(|later| move |minute: i64| minute.rem_euclid(50) == later);
            assert_eq!(on(&rarely, &then), None, "{name}: {reading:?}");
        }
    }
}
