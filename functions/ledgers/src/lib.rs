//! Compares two ledgers of a day: ours, and that of the party that acts for us, such as a payment provider. It finds what every
//! retry, webhook and reconciliation missed, because that is in one ledger only.
//!
//! 1. Both sides are streams in any order. Each is spilled into files by a hash of its ids, then the files are compared
//!    pair by pair, so that memory holds one part in 128 of a day, even if all differs.
//! 2. Differences are reported one by one, as they are found. The same two ledgers yield the same differences in the
//!    same order, in any order of the sides.
//! 3. If a side fails, the comparison fails before it reports any difference: half a ledger is never compared.
//! 4. The files have no names, so they vanish with the comparison, even if its process is killed. They are in the folder
//!    for temporary files (`TMPDIR`; `/tmp` in Lambda), which should be on a disk. One comparison opens at most 256;
//!    Lambda allows a function 1,024.
//!
//! # Figures
//!
//! A million entries a side, like those of payments, in different orders (`cargo bench -p ledgers --bench compare`, two
//! cores of x86_64): 1.7 s if all are equal, 2.2 s if each differs, 2.3 s if none is on both sides; never more than 12 MiB
//! of memory in the whole process (28 MiB for four million). The files take 120 bytes an entry: 240 MB of the 512 MB that
//! a function has in `/tmp` by default.
//!
//! ```
//! use futures_util::stream;
//! use ledgers::{Entry, compare};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let entry = |id: &str, cents: u64| Ok::<_, std::io::Error>(Entry { id: id.to_owned(), value: cents });
//! let ours = stream::iter([entry("ch_1", 1999), entry("ch_2", 500)]);
//! let theirs = stream::iter([entry("ch_3", 700), entry("ch_1", 1999)]);
//!
//! let mut report = Vec::new();
//! let summary = compare(ours, theirs, |difference| difference.write_line(&mut report)).await.unwrap();
//!
//! assert_eq!((summary.equal, summary.only_ours, summary.only_theirs), (1, 1, 1));
//! let report = String::from_utf8(report).unwrap();
//! assert!(report.contains(r#"{"difference":"only_ours","id":"ch_2","ours":500}"#));
//! # }
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod day;
mod difference;
mod entry;
pub mod metrics;
mod spill;

use std::{collections::BTreeMap, io, pin::pin};

use futures_util::{Stream, TryStreamExt, future};
use serde::{Serialize, de::DeserializeOwned};

use spill::{Bucket, Spill};

pub use day::{Day, DayError};
pub use difference::{Difference, Side, Summary};
pub use entry::Entry;

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError<E> {
    /// One of the sides could not be read to its end. No difference was reported.
    #[error("{0} could not be read to the end")]
    Side(Side, #[source] E),
    /// The files could not be written or read back.
    #[error("the entries could not be kept in files")]
    Spill(#[source] io::Error),
    /// A difference could not be reported; earlier ones may have been.
    #[error("a difference could not be reported")]
    Report(#[source] io::Error),
}

/// Compares two ledgers, and passes each difference to `found`. Also counts them in [`metrics`].
///
/// # Errors
/// If a side fails, before any difference is passed on; if `found` or a file fails. The differences passed on until then are
/// not a report.
pub async fn compare<V, E>(
    ours: impl Stream<Item = Result<Entry<V>, E>>,
    theirs: impl Stream<Item = Result<Entry<V>, E>>,
    mut found: impl FnMut(Difference<'_, V>) -> io::Result<()>,
) -> Result<Summary, CompareError<E>>
where
    V: Serialize + DeserializeOwned + PartialEq,
{
    let (ours, theirs) = future::try_join(spill(Side::Ours, ours), spill(Side::Theirs, theirs)).await?;
    let mut summary = Summary { ours: ours.entries(), theirs: theirs.entries(), ..Summary::default() };
    let pairs = ours.buckets().zip(theirs.buckets());
    for (ours, theirs) in pairs {
        let mut count = |difference: Difference<'_, V>| {
            summary.add(&difference);
            found(difference).map_err(CompareError::Report)
        };
        let equal = compare_pair(ours, theirs, &mut count)?;
        summary.equal += equal;
        // Lets other tasks run: a heartbeat, a page that is being written.
        tokio::task::yield_now().await;
    }
    metrics::compared(&summary);
    Ok(summary)
}

async fn spill<V: Serialize, E>(
    side: Side,
    entries: impl Stream<Item = Result<Entry<V>, E>>,
) -> Result<Spill, CompareError<E>> {
    let mut spill = Spill::new();
    let mut entries = pin!(entries);
    while let Some(entry) = entries.try_next().await.map_err(|error| CompareError::Side(side, error))? {
        spill.add(&entry).map_err(CompareError::Spill)?;
    }
    Ok(spill)
}

/// The values of an id on each side.
struct Values<V> {
    ours: Option<V>,
    theirs: Option<V>,
}

/// Compares the entries of one bucket, and returns how many are equal.
fn compare_pair<V, E>(
    ours: Bucket,
    theirs: Bucket,
    found: &mut impl FnMut(Difference<'_, V>) -> Result<(), CompareError<E>>,
) -> Result<u64, CompareError<E>>
where
    V: DeserializeOwned + PartialEq,
{
    // Sorted, so that the order of the differences does not depend on the order of the sides.
    let mut ids: BTreeMap<String, Values<V>> = BTreeMap::new();
    for (side, bucket) in [(Side::Ours, ours), (Side::Theirs, theirs)] {
        let mut entries = bucket.entries().map_err(CompareError::Spill)?;
        while let Some(Entry { id, value }) = entries.next().map_err(CompareError::Spill)? {
            let values = ids.entry(id.clone()).or_insert(Values { ours: None, theirs: None });
            let known = match side {
                Side::Ours => &mut values.ours,
                Side::Theirs => &mut values.theirs,
            };
            match known {
                None => *known = Some(value),
                Some(_) => found(Difference::Duplicate { id: &id, side, value: &value })?,
            }
        }
    }
    let mut equal = 0;
    for (id, values) in &ids {
        match (&values.ours, &values.theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => equal += 1,
            (Some(ours), Some(theirs)) => found(Difference::Differs { id, ours, theirs })?,
            (Some(ours), None) => found(Difference::OnlyOurs { id, ours })?,
            (None, Some(theirs)) => found(Difference::OnlyTheirs { id, theirs })?,
            (None, None) => {}
        }
    }
    Ok(equal)
}

#[cfg(test)]
mod tests;
