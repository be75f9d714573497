//! Finds the record for a hash from a log line.

use std::{collections::BTreeSet, time::Duration};

use aws_sdk_dynamodb::{Client, types::ReturnConsumedCapacity};
use indicatif::ProgressBar;
use lambda_idempotency::{
    key::RecordKey,
    store::{StoreError, Unsettled},
};

use crate::{args::Show, context::Context, failure::Failure};

/// The digits of a whole hash.
const DIGITS: usize = 16;

/// The number of items per step of a scan.
const STEP: i32 = 1000;

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

/// The one record whose hash begins with `hash`: an unknown outcome, or, with `--scan`, any record.
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
            "no unknown outcome has a hash that begins with {hash}: --scan reads the whole table"
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
        let page =
            context.store.unresolved(None, from.as_ref()).await.map_err(|error| context.no_index(error))?;
        page.records.iter().for_each(|record| search.look_at(&record.key));
        from = page.next;
        if from.is_none() || search.is_over() {
            return Ok(());
        }
    }
}

/// Searches all items of the table: records in every state, and what is left of deleted ones.
async fn scan(context: &Context, units_per_second: f64, search: &mut Search<'_>) -> Result<(), Failure> {
    let client = Client::new(&context.config);
    // It is shown only on a terminal.
    let spinner = ProgressBar::new_spinner();
    let (mut from, mut scanned) = (None, 0_u64);
    loop {
        let page = client
            .scan()
            .table_name(&context.table)
            .projection_expression("pk")
            .limit(STEP)
            .set_exclusive_start_key(from)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
            .send()
            .await
            .map_err(StoreError::from)?;
        scanned += u64::try_from(page.scanned_count).unwrap_or_default();
        spinner.set_message(format!("{scanned} items scanned"));
        spinner.tick();
        for item in page.items.unwrap_or_default() {
            let key = item.get("pk").and_then(|pk| RecordKey::from_partition_key(pk.as_s().ok()?));
            key.iter().for_each(|key| search.look_at(key));
        }
        from = page.last_evaluated_key;
        if from.is_none() || search.is_over() {
            spinner.finish_and_clear();
            return Ok(());
        }
        let units = page.consumed_capacity.and_then(|consumed| consumed.capacity_units).unwrap_or_default();
        tokio::time::sleep(Duration::from_secs_f64(units / units_per_second)).await;
    }
}
