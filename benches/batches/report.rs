//! Prints the table.

use crate::{
    messages::Load,
    meter::Spent,
    spread::{Spread, median, micros},
};

/// How often a load was delivered, and what that used.
#[derive(Debug, Default)]
pub struct Samples {
    pub guarded: Vec<Spent>,
    pub bare: Vec<Spent>,
    /// Requests to the store, of all samples.
    pub trips: u64,
}

pub fn head() {
    println!("\nBatches of messages through the consumer, from the event's text to the answer's.");
    println!(
        "Medians of samples of two batches. ±: the median's 95 % confidence. quartiles: of single samples."
    );
    println!(
        "bare: the same function for each message, without guard. cpu, allocs, bytes: for each message.\n"
    );
    println!(
        "{:>8} {:>10} {:>14} {:>15} {:>14} {:>13} {:>7} {:>8} {:>8}",
        "messages",
        "duplicates",
        "cpu µs",
        "quartiles",
        "messages/cpu s",
        "trips/message",
        "allocs",
        "bytes",
        "bare µs",
    );
}

pub fn row(load: Load, samples: &Samples) {
    let Samples { guarded, bare, trips } = samples;
    let messages = load.messages() as f64;
    let cpu = Spread::of(guarded.iter().map(|spent| micros(spent.cpu) / messages));
    println!(
        "{:>8} {:>8} % {:>14} {:>15} {:>14.0} {:>13.2} {:>7.0} {:>8.0} {:>8.2}",
        load.size,
        load.duplicates,
        format!("{:.0} ±{:.0}", cpu.median, (cpu.sure.1 - cpu.sure.0) / 2.0),
        format!("{:.0} … {:.0}", cpu.quarter, cpu.three_quarters),
        1e6 / cpu.median,
        *trips as f64 / (messages * guarded.len() as f64),
        median(guarded, |spent| spent.allocations as f64) / messages,
        median(guarded, |spent| spent.allocated_bytes as f64) / messages,
        median(bare, |spent| micros(spent.cpu)) / messages,
    );
}
