//! The templates' alarms, evaluated over metrics with holes. Minute 0 is when something goes wrong.

use std::{fs, ops::Range, path::Path, sync::LazyLock};

use local::alarms::{Alarm, AlarmState, Reading, Recorded, of_template};
use serde_json::{Value, json};

use super::{ALARM, STREAMS, members, referred, template};

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

/// Those of the consumers of streams, which the local cloud does not run: so they have no drills.
pub static OF_STREAMS: LazyLock<Vec<Alarm>> = LazyLock::new(|| {
    let template = template(STREAMS);
    let alarms = members(&template["Resources"]).filter(|(_, resource)| resource["Type"] == ALARM);
    // What they are about is only a name here.
    let alarms = alarms.map(|(name, alarm)| {
        let mut alarm = alarm.clone();
        let properties = &mut alarm["Properties"];
        for named in ["/Dimensions/0/Value", "/Namespace"] {
            let value = properties.pointer_mut(named).expect("each has one");
            *value = Value::from(referred(value));
        }
        (name.clone(), alarm)
    });
    let resources: Value = alarms.collect::<serde_json::Map<_, _>>().into();
    let parameters =
        members(&template["Parameters"]).filter(|(_, parameter)| !parameter["Default"].is_null());
    let parameters: Value =
        parameters.map(|(name, it)| (name.clone(), it.clone())).collect::<serde_json::Map<_, _>>().into();
    let reduced =
        json!({ "Parameters": parameters, "Conditions": template["Conditions"], "Resources": resources });
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(&file, reduced.to_string()).expect("it is ours");
    of_template(file.path()).expect("alarms")
});

pub fn alarm(name: &str) -> &'static Alarm {
    let mut all = ALARMS.iter().chain(&*OF_STREAMS);
    all.find(|alarm| alarm.name == name).unwrap_or_else(|| panic!("no alarm {name}"))
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
