//! The templates' alarms, evaluated over metrics with holes. Minute 0 is when something goes wrong.

use std::{ops::Range, path::Path, sync::LazyLock};

use local::alarms::{Alarm, AlarmState, Reading, Recorded, of_template};

/// Minutes before minute 0.
const BEFORE: i64 = 1_000_000;

/// The alarms of both templates, and the starter's own.
pub static ALARMS: LazyLock<Vec<Alarm>> = LazyLock::new(|| {
    let of = |path: &str| {
        let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
        of_template(Path::new(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let mut alarms = of("infra/sample.yaml");
    for alarm in of("starter/template.yaml") {
        if alarms.iter().all(|known| known.name != alarm.name) {
            alarms.push(alarm);
        }
    }
    alarms
});

pub fn alarm(name: &str) -> &'static Alarm {
    ALARMS.iter().find(|alarm| alarm.name == name).unwrap_or_else(|| panic!("no alarm {name}"))
}

/// Records a value of the alarm's metric of this name in each of the minutes, unless it is `None`.
pub fn record(
    recorded: &mut Recorded,
    alarm: &Alarm,
    metric: &str,
    minutes: Range<i64>,
    value: impl Fn(i64) -> Option<f64>,
) {
    let watched = alarm.metrics().find(|watched| watched.name == metric);
    let watched = watched.unwrap_or_else(|| panic!("{} does not watch {metric}", alarm.name));
    for minute in minutes {
        if let Some(value) = value(minute) {
            recorded.add(watched, absolute(minute), value);
        }
    }
}

/// The first and the last minute at which the alarm is on, of evaluations at these minutes; `None` if it never is.
pub fn on(
    alarm: &Alarm,
    recorded: &Recorded,
    evaluations: impl Iterator<Item = i64>,
    reading: Reading,
) -> Option<(i64, i64)> {
    let (mut state, mut on) = (AlarmState::InsufficientData, None);
    for minute in evaluations {
        state = alarm.state(recorded, absolute(minute), state, reading).expect("a state");
        if state == AlarmState::Alarm {
            on = Some((on.map_or(minute, |(first, _)| first), minute));
        }
    }
    on
}

fn absolute(minute: i64) -> u64 {
    u64::try_from(BEFORE + minute).expect("not that long ago")
}
