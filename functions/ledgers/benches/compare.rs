//! What a comparison of two ledgers costs: time, peak memory and disk for a million entries a side, in different orders.
//! Run `cargo bench -p ledgers --bench compare`; append `-- 5000000` for another size. Linux only: the peak is `VmHWM` of
//! `/proc/self/status`.

use std::{
    convert::Infallible,
    fs,
    io::{self, BufWriter, Write},
    time::Instant,
};

use futures_util::stream;
use ledgers::{Entry, Summary, compare};
use serde::{Deserialize, Serialize};

const ENTRIES: u64 = 1_000_000;

/// A prime that divides no sensible number of entries, so that steps of it visit each entry once, in no order.
const STEP: u64 = 1_000_003;

#[derive(PartialEq, Serialize, Deserialize)]
struct Charged {
    amount_cents: u64,
    currency: String,
    state: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let entries = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ENTRIES);
    println!("{entries} entries a side; peak memory at the start: {} MiB", peak()?);
    println!("| ledgers | time | peak memory | report |");
    println!("| --- | --- | --- | --- |");
    let all = |summary: Summary| [summary.equal, summary.differs, summary.only_ours];
    measure("equal", entries, (0, 0), |summary| all(summary) == [entries, 0, 0]).await?;
    measure("each amount differs", entries, (0, 1), |summary| all(summary) == [0, entries, 0]).await?;
    measure("nothing in common", entries, (entries, 0), |summary| all(summary) == [0, 0, entries]).await
}

/// Compares a ledger with one whose ids and amounts are shifted.
async fn measure(
    name: &str,
    entries: u64,
    (ids, cents): (u64, u64),
    expected: impl Fn(Summary) -> bool,
) -> io::Result<()> {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5")?;
    let ours = (0..entries).map(|number| entry(number, number));
    let theirs =
        (0..entries).map(|number| number * STEP % entries).map(|number| entry(number + ids, number + cents));
    let mut report = BufWriter::new(tempfile::tempfile()?);
    let begun = Instant::now();
    let summary =
        compare(stream::iter(ours), stream::iter(theirs), |difference| difference.write_line(&mut report));
    let summary = summary.await.map_err(io::Error::other)?;
    report.flush()?;
    assert!(expected(summary), "{name}: {summary:?}");
    let (seconds, report) = (begun.elapsed().as_secs_f64(), report.get_ref().metadata()?.len() >> 20);
    println!("| {name} | {seconds:.1} s | {} MiB | {report} MiB |", peak()?);
    Ok(())
}

fn entry(number: u64, cents: u64) -> Result<Entry<Charged>, Infallible> {
    // As long as a provider's ids.
    let id = format!("ch_{:032x}", u128::from(number) << 64 | u128::from(number));
    let value = Charged { amount_cents: cents, currency: "EUR".to_owned(), state: "succeeded".to_owned() };
    Ok(Entry { id, value })
}

/// The peak memory of this process since the last reset, in MiB.
fn peak() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib: u64| kib.div_ceil(1024)).ok_or_else(|| io::Error::other("no VmHWM in /proc/self/status"))
}
