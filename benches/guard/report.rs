//! Prints the tables at the end.

use crate::{
    meter::Spent,
    paired::Rounds,
    spread::{Spread, median, micros},
    watched::Watched,
};

/// What the guard may add to the raw calls that it makes (in per cent of their time).
const GOAL: f64 = 3.0;

/// The same for an operation in a single transaction.
const SINGLE_TRANSACTION_GOAL: f64 = 5.0;

/// What metrics, span and log lines may add to a request, in µs of CPU.
const WATCHING_GOAL: f64 = 20.0;

fn each<'a>(a: &'a [Spent], b: &'a [Spent], of: impl Fn(&Spent, &Spent) -> f64 + 'a) -> Spread {
    Spread::of(a.iter().zip(b).map(move |(a, b)| of(a, b)))
}

/// In per cent, how much longer the first took.
fn longer(a: &Spent, b: &Spent) -> f64 {
    (a.wall.as_secs_f64() / b.wall.as_secs_f64() - 1.0) * 100.0
}

pub fn watched_head(rounds: u64) {
    println!(
        "\nMetrics, span and log lines, on the store in memory: {rounds} calls of the HTTP layer of each kind, medians."
    );
    println!("bare: no recorder, no subscriber. Goal: + {WATCHING_GOAL} µs of CPU.\n");
    println!(
        "{:<13} {:>9} {:>12} {:>12} {:>9} {:>9}",
        "answer", "bare µs", "counted µs", "watched µs", "+ µs", "+ allocs"
    );
}

pub fn watched_row(answer: &str, watched: &Watched) {
    let cpu = |spent: &[Spent]| median(spent, |spent| micros(spent.cpu));
    let allocations = |spent: &[Spent]| median(spent, |spent| spent.allocations as f64);
    println!(
        "{answer:<13} {:>9.1} {:>12.1} {:>12.1} {:>+9.1} {:>+9.0}",
        cpu(&watched.bare),
        cpu(&watched.counted),
        cpu(&watched.watched),
        cpu(&watched.watched) - cpu(&watched.bare),
        allocations(&watched.watched) - allocations(&watched.bare),
    );
}

pub fn paired_head(rounds: u64) {
    println!("\nGuard over the raw SDK calls that it makes, through loopback HTTP.");
    println!("{rounds} rounds a row, each with every kind once, in random order; medians of the rounds.");
    println!(
        "±: the median's 95 % confidence. quartiles: of single rounds. noise: the raw calls over themselves."
    );
    println!("by hand: guard over two puts, or one transaction, with the body as it is in the record.");
    println!("Goal: + {GOAL} %, in a single transaction + {SINGLE_TRANSACTION_GOAL} %.\n");
    println!(
        "{:<14} {:<13} {:>5} {:>8} {:>17} {:>15} {:>15} {:>9} {:>8} {:>8} {:>6} {:>6} {:>6} {:>9}",
        "front",
        "answer",
        "calls",
        "raw µs",
        "guard",
        "quartiles",
        "noise",
        "by hand",
        "cpu raw",
        "cpu grd",
        "+ µs",
        "allocs",
        "+",
        "+ bytes",
    );
}

pub fn paired_row(front: &str, answer: &str, rounds: &Rounds) {
    let Rounds { guarded, raw, raw_again, by_hand, calls } = rounds;
    let (over, noise) = (each(guarded, raw, longer), each(raw_again, raw, longer));
    let percent =
        |spread: &Spread| format!("{:+.1} ±{:.1} %", spread.median, (spread.sure.1 - spread.sure.0) / 2.0);
    let allocations = |spent: &[Spent]| median(spent, |spent| spent.allocations as f64);
    let bytes = |spent: &[Spent]| median(spent, |spent| spent.allocated_bytes as f64);
    let cpu = |spent: &[Spent]| median(spent, |spent| micros(spent.cpu));
    println!(
        "{front:<14} {answer:<13} {calls:>5} {:>8.0} {:>17} {:>15} {:>15} {:>+7.1} % {:>8.0} {:>8.0} {:>+6.0} {:>6} {:>+6} {:>+9}",
        median(raw, |spent| micros(spent.wall)),
        percent(&over),
        format!("{:+.1} … {:+.1}", over.quarter, over.three_quarters),
        percent(&noise),
        each(guarded, by_hand, longer).median,
        cpu(raw),
        cpu(guarded),
        each(guarded, raw, |guarded, raw| micros(guarded.cpu) - micros(raw.cpu)).median,
        allocations(guarded),
        allocations(guarded) - allocations(raw),
        bytes(guarded) - bytes(raw),
    );
}

pub fn memory_head() {
    println!("\nA guarded call on the store in memory: the guard's own work, without any SDK.\n");
    println!(
        "{:<14} {:<13} {:>9} {:>19} {:>7} {:>10}",
        "front", "answer", "cpu µs", "quartiles", "allocs", "bytes"
    );
}

pub fn memory_row(front: &str, answer: &str, spent: &[Spent]) {
    let cpu = Spread::of(spent.iter().map(|spent| micros(spent.cpu)));
    println!(
        "{front:<14} {answer:<13} {:>9.1} {:>19} {:>7} {:>10}",
        cpu.median,
        format!("{:.1} … {:.1}", cpu.quarter, cpu.three_quarters),
        median(spent, |spent| spent.allocations as f64),
        median(spent, |spent| spent.allocated_bytes as f64),
    );
}
