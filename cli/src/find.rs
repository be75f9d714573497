//! Finds the record for a hash from a log line.

use std::collections::BTreeSet;

use lambda_idempotency::key::RecordKey;

use crate::{args::Show, context::Context, failure::Failure, list, scan};

/// The digits of a whole hash.
const DIGITS: usize = 16;

/// The partition keys of the records whose hash begins with `hash`.
struct Search<'a> {
    hash: &'a str,
    found: BTreeSet<String>,
}

impl Search<'_> {
    fn look_at(&mut self, key: &RecordKey) {
        if key.hash().to_string().starts_with(self.hash) {
            self.found.insert(key.partition_key());
        }
    }

    /// Whether the search has ended: only one record has the whole hash.
    fn is_over(&self) -> bool {
        self.hash.len() == DIGITS && !self.found.is_empty()
    }
}

/// The one record whose hash begins with `hash`: one of the index, or, with `--scan`, any record.
pub async fn by_hash(context: &Context, hash: &str, args: &Show) -> Result<RecordKey, Failure> {
    let mut search = Search { hash, found: BTreeSet::new() };
    match args.scan {
        true => scan(context, args.pace.units_per_second, &mut search).await?,
        false => unknown(context, &mut search).await?,
    }
    let keys: Vec<_> = search.found.iter().filter_map(|found| RecordKey::from_partition_key(found)).collect();
    match (&keys[..], args.scan) {
        ([key], _) => Ok(key.clone()),
        ([], true) => Err(Failure::NotAsExpected(format!(
            "no record in the whole table has a hash that begins with {hash}"
        ))),
        ([], false) => Err(Failure::NotAsExpected(format!(
            "no unsettled record, and none with an alarm, has a hash that begins with {hash}: --scan reads the whole table"
        ))),
        (several, _) => {
            let hashes: Vec<_> = several.iter().take(10).map(|key| key.hash().to_string()).collect();
            let (count, hashes) = (several.len(), hashes.join(", "));
            Err(Failure::NotAsExpected(format!(
                "{count} records have a hash that begins so, give more digits: {hashes}"
            )))
        }
    }
}

async fn unknown(context: &Context, search: &mut Search<'_>) -> Result<(), Failure> {
    let mut from = None;
    loop {
        let page = list::page(context, None, from.as_ref()).await?;
        page.records.iter().for_each(|record| search.look_at(&record.key));
        from = page.next;
        if from.is_none() || search.is_over() {
            return Ok(());
        }
    }
}

/// Searches all items of the table: records in every state, and what is left of deleted ones.
async fn scan(context: &Context, units_per_second: f64, search: &mut Search<'_>) -> Result<(), Failure> {
    let found = |key| {
        search.look_at(&key);
        !search.is_over()
    };
    // Items that are no records have other names.
    scan::names(context, units_per_second, |scan| scan, found).await?;
    Ok(())
}
