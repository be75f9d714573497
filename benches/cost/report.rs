//! Prints the tables.

use std::collections::BTreeMap;

use crate::{
    case::Case,
    meter::Spent,
    paired::{Counted, Rounds},
    parts::Part,
    spread::{Spread, median, micros},
    system_calls::{Kinds, middle},
};

/// How many times the CPU time of its raw calls a call may take.
const FIRST_GOAL: f64 = 1.4;
const REPLAY_GOAL: f64 = 1.5;

/// How many system calls more than its raw puts a first execution may make.
const SYSTEM_CALLS_GOAL: u32 = 2;

/// What a call may take in memory: µs of CPU, and allocations.
const EXECUTOR_GOAL: (f64, u64) = (6.0, 30);
const LAYER_GOAL: (f64, u64) = (12.0, 38);

/// How many µs of CPU bounds may add to a call, on average.
const BOUNDS_GOAL: f64 = 5.0;

pub fn memory_head(rounds: u64) {
    println!("\nOn the store in memory: the guard's own work, without any SDK. Medians of {rounds} calls.\n");
    println!(
        "{:<28} {:>8} {:>17} {:>7} {:>8} {:>13}",
        "part", "cpu µs", "quartiles", "allocs", "bytes", "system calls"
    );
}

pub fn memory_row(name: &str, spent: &[Spent], system_calls: Option<&[Kinds]>) {
    let cpu = Spread::of(spent.iter().map(|spent| micros(spent.cpu)));
    println!(
        "{name:<28} {:>8.1} {:>17} {:>7} {:>8} {:>13}",
        cpu.median,
        format!("{:.1} … {:.1}", cpu.quarter, cpu.three_quarters),
        median(spent, |spent| spent.allocations as f64),
        median(spent, |spent| spent.allocated_bytes as f64),
        system_calls.map_or("–".to_owned(), |counted| middle(counted, Kinds::total).to_string()),
    );
}

pub fn memory_goals() {
    let [executor, layer] = [EXECUTOR_GOAL, LAYER_GOAL]
        .map(|(cpu, allocations)| format!("{cpu} µs and {allocations} allocations"));
    println!(
        "\nGoals: {} at most {executor}; {} at most {layer}.",
        Part::Executor.name(),
        Part::Layer.name()
    );
    println!("{} adds at most {BOUNDS_GOAL} µs to {}.", Part::Bounded.name(), Part::Layer.name());
}

pub fn paired_head(rounds: u64) {
    println!("\nGuarded calls, and the calls of the SDK that they make, through loopback HTTP.");
    println!("{rounds} rounds a row, each with every kind once, in random order; medians of the rounds.");
    println!(
        "raw: by a client with the settings of the store's own. plain: with the SDK's, which have no time-outs."
    );
    println!(
        "times: CPU time of guarded over raw calls, and the median's 95 % confidence. noise: raw over raw calls."
    );
    println!(
        "Goals: a first execution {FIRST_GOAL} times its puts, and {SYSTEM_CALLS_GOAL} system calls more; a replay {REPLAY_GOAL} times.\n"
    );
    println!(
        "{:<28} {:>5} {:>7} {:>7} {:>11} {:>6} {:>8} {:>6} {:>7} {:>6} {:>8} {:>7} {:>9} {:>5}  by kind",
        "part",
        "calls",
        "cpu µs",
        "raw µs",
        "times",
        "noise",
        "plain µs",
        "times",
        "allocs",
        "+",
        "+ bytes",
        "sys raw",
        "sys plain",
        "+",
    );
}

pub fn paired_row(case: &Case, calls: usize, rounds: &Rounds, counted: &Counted) {
    let Rounds { guarded, raw, raw_again, plain } = rounds;
    let times = |a: &[Spent], b: &[Spent]| {
        let pairs = a.iter().zip(b);
        Spread::of(pairs.map(|(a, b)| a.cpu.as_secs_f64() / b.cpu.as_secs_f64()))
    };
    let (over, noise, over_plain) = (times(guarded, raw), times(raw_again, raw), times(guarded, plain));
    let cpu = |spent: &[Spent]| median(spent, |spent| micros(spent.cpu));
    let allocations = |spent: &[Spent]| median(spent, |spent| spent.allocations as f64);
    let bytes = |spent: &[Spent]| median(spent, |spent| spent.allocated_bytes as f64);
    println!(
        "{:<28} {calls:>5} {:>7.0} {:>7.0} {:>11} {:>6.2} {:>8.0} {:>6.2} {:>7} {:>+6} {:>+8} {:>7} {:>9} {:>+5}  {}",
        case.name(),
        cpu(guarded),
        cpu(raw),
        format!("{:.2} ±{:.2}", over.median, (over.sure.1 - over.sure.0) / 2.0),
        noise.median,
        cpu(plain),
        over_plain.median,
        allocations(guarded),
        allocations(guarded) - allocations(raw),
        bytes(guarded) - bytes(raw),
        middle(&counted.raw, Kinds::total),
        middle(&counted.plain, Kinds::total),
        middle(&counted.guarded, Kinds::total) as i64 - middle(&counted.raw, Kinds::total) as i64,
        by_kind(counted),
    );
}

/// What the guarded calls add or save of each kind, on average.
fn by_kind(counted: &Counted) -> String {
    let mut kinds = BTreeMap::new();
    for (side, sign) in [(&counted.guarded, 1.0), (&counted.raw, -1.0)] {
        for (name, calls) in side.iter().flat_map(Kinds::named) {
            *kinds.entry(name).or_insert(0.0) += sign * f64::from(calls) / side.len() as f64;
        }
    }
    let differ = kinds.into_iter().filter(|(_, calls)| calls.abs() >= 0.05);
    differ.map(|(name, calls)| format!("{name} {calls:+.1}")).collect::<Vec<_>>().join(", ")
}
