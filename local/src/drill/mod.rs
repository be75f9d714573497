//! Drills: each makes what some alarms watch go wrong in the running cloud, and repairs it. It passes if the alarms come, and end again.
//!
//! What a metric is called, and which dimensions it has, is what the functions write, and what SQS and Lambda would write of them. That it
//! meets what an alarm of the template watches is what a drill shows.
//!
//! | module | what |
//! | --- | --- |
//! | `drills` | which cause raises which alarms, and why the others have no drill |
//! | `cause` | what goes wrong, and how it is repaired |
//! | `stage` | the running cloud, and the minutes of its metrics |
//! | `operations` | what the sample calls its operations |
//! | `client`, `records` | what a drill sends, and what it does to records |
//! | `watched` | an alarm that a drill watches |
//! | `shown` | the results |

mod cause;
mod client;
mod drills;
mod operations;
mod records;
mod shown;
mod stage;
mod watched;

use crate::{
    alarms::{self, Alarm},
    cloud::Cloud,
    settings::Output,
};
use cause::Cause;
use drills::{DRILLS, Drill};
use shown::{Screen, Shown};
use stage::{PATIENCE, Stage};
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;
use watched::Watched;

/// A day and some hours: as far back as the alarms on daily jobs look.
const BEFORE: u64 = 28 * 60;
/// Minutes in which all is well, before each drill.
const QUIET: u64 = 40;
/// Played minutes until nothing is on, before anything goes wrong.
const LATE: u64 = 60;
/// The minutes that are played once something has changed. After them, nothing more happens.
const PLAYED: u64 = 3;

/// The alarms of each drill.
pub fn drills() -> impl Iterator<Item = &'static [&'static str]> {
    DRILLS.iter().map(|drill| drill.alarms)
}

/// The alarms without a drill, each with the reason.
pub fn not_drilled() -> impl Iterator<Item = (&'static str, &'static str)> {
    drills::NOT_DRILLED.iter().copied()
}

/// The alarms of these names, or all.
///
/// # Errors
/// If there is none of such a name.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static str>, String> {
    let all: Vec<_> = drills().flatten().copied().chain(not_drilled().map(|(alarm, _)| alarm)).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&&***name)) {
        return Err(format!("there is no alarm {unknown}"));
    }
    Ok(all.into_iter().filter(|alarm| names.is_empty() || names.iter().any(|name| name == alarm)).collect())
}

/// Drills these alarms, and shows each. Returns whether all that have a drill came and ended.
pub(crate) async fn run(cloud: Arc<Cloud>, chosen: &[&'static str], output: Output) -> Result<bool, String> {
    let declared = alarms::of_stack(&cloud.stack)?;
    let declared: BTreeMap<_, _> = declared.into_iter().map(|alarm| (alarm.name.clone(), alarm)).collect();
    let (screen, mut stage) = (Screen::new(output), Stage::new(cloud));
    stage.play().await?;
    stage.repeat(BEFORE).await?;
    let mut passed = true;
    for drill in DRILLS {
        let alarms: Vec<_> = drill.alarms.iter().filter(|alarm| chosen.contains(alarm)).collect();
        if alarms.is_empty() {
            continue;
        }
        let alarms = alarms.into_iter().map(|alarm| {
            declared.get(*alarm).cloned().ok_or_else(|| format!("the template has no alarm {alarm}"))
        });
        let alarms = alarms.collect::<Result<_, _>>()?;
        for shown in drilled_one(&mut stage, drill, alarms).await? {
            passed &= shown.passed();
            screen.print(&shown);
        }
    }
    for (alarm, reason) in not_drilled().filter(|(alarm, _)| chosen.contains(alarm)) {
        screen.print(&Shown::not_drilled(alarm, reason));
    }
    Ok(passed)
}

async fn drilled_one(stage: &mut Stage, drill: &Drill, alarms: Vec<Alarm>) -> Result<Vec<Shown>, String> {
    stage.watched = alarms.into_iter().map(Watched::new).collect();
    play(stage).await?;
    stage.repeat(QUIET).await?;
    // On a busy machine, what a job wrote may come a few minutes late. On a quick one, a message of an earlier drill may still be hidden.
    let (quiet, mut late) = (Instant::now(), 0);
    while stage.watched.iter().any(Watched::is_on) && (late < LATE || quiet.elapsed() < PATIENCE) {
        if late >= LATE {
            stage.wait().await;
        }
        stage.play().await?;
        late += 1;
    }
    let early: Vec<_> = stage.watched.iter().filter(|watched| watched.is_on()).collect();
    if let Some(early) = early.first() {
        let error = format!("{} is on before anything is wrong", early.alarm.name);
        return Ok(Shown::failed(drill, stage, &error));
    }
    stage.watched.iter_mut().for_each(Watched::begin);
    let begun = stage.minute;
    let mut happened = drill.cause.begin(stage).await;
    if happened.is_ok() {
        happened = comes(stage, &drill.cause, begun).await;
    }
    let repaired = stage.minute;
    // Even of a cause that did not happen: the next drill needs all to be well.
    let ended = drill.cause.end(stage).await;
    match happened.and(ended) {
        Ok(()) => {
            ends(stage, repaired).await?;
            Ok(Shown::of(drill, stage, begun, repaired))
        }
        Err(error) => Ok(Shown::failed(drill, stage, &error)),
    }
}

/// Something has changed: plays what happens because of it.
async fn play(stage: &mut Stage) -> Result<(), String> {
    let minute = stage.minute;
    stage.watched.iter_mut().for_each(|watched| watched.changed(minute));
    for _ in 0..PLAYED {
        stage.play().await?;
    }
    Ok(())
}

/// Lets minutes pass until each alarm has come.
async fn comes(stage: &mut Stage, cause: &Cause, begun: u64) -> Result<(), String> {
    play(stage).await?;
    let within = stage.watched.iter().map(Watched::comes_within).max().unwrap_or_default();
    let mut passed = 0;
    while stage.watched.iter().any(|watched| watched.came.is_none()) && stage.minute < begun + within {
        match cause.each() {
            Some(minutes) => {
                stage.repeat(minutes - 1).await?;
                cause.begin(stage).await?;
                stage.play().await?;
            }
            None => {
                passed += 1;
                pass_or_play(stage, passed, |watched| watched.came.is_none()).await?;
            }
        }
    }
    Ok(())
}

/// Lets minutes pass until each alarm has ended.
async fn ends(stage: &mut Stage, repaired: u64) -> Result<(), String> {
    play(stage).await?;
    let within = stage.watched.iter().map(Watched::ends_within).max().unwrap_or_default();
    let is_on = |watched: &Watched| watched.came.is_some() && watched.ended.is_none();
    let mut passed = 0;
    while stage.watched.iter().any(is_on) && stage.minute < repaired + within {
        passed += 1;
        pass_or_play(stage, passed, is_on).await?;
    }
    Ok(())
}

/// Lets a minute pass, or ten. Each tenth time a minute is played: on a busy machine, what a job wrote may have come too late for the minute
/// that is repeated.
async fn pass_or_play(
    stage: &mut Stage,
    passed: u64,
    is_waited_for: impl Fn(&Watched) -> bool,
) -> Result<(), String> {
    match passed.is_multiple_of(10) {
        true => stage.play().await,
        false => pass(stage, is_waited_for).await,
    }
}

/// Lets a minute pass, or ten, of which nine have no values, if those that are waited for look at hours.
async fn pass(stage: &mut Stage, is_waited_for: impl Fn(&Watched) -> bool) -> Result<(), String> {
    let waited_for = stage.watched.iter().filter(|watched| is_waited_for(watched));
    let period = waited_for.map(|watched| watched.alarm.period()).min().unwrap_or(1);
    stage.skip((period / 6).saturating_sub(1)).await?;
    stage.repeat(1).await
}
