//! What operators list.

use std::time::Duration;

use serde_json::Value;

use super::{FLOOD, OTHER, assert_waits, put, unknown};
use crate::support::{
    command::CommandLine,
    embedded,
    guarded::{Guarded, record_key},
};

const LIMIT: usize = 20;

// T81
#[tokio::test]
async fn a_list_shows_the_other_tenants_record_within_its_limit() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (store, now) = (guarded.undisturbed_store(), guarded.now());
    let older = now.minus(Duration::from_secs(3600));
    put(&store, (0..1500).map(|number| unknown(record_key(FLOOD, &number.to_string()), older))).await;
    // The youngest of all.
    put(&store, std::iter::once(unknown(record_key(OTHER, "1"), now))).await;
    let cli = CommandLine::new(embedded::endpoint(), &guarded.table);
    let before = async |arguments: &[&str]| {
        let ran = cli.run(&[arguments, &["--output", "json"]].concat()).await;
        let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
        let tenants = listed.as_array().unwrap().iter().map(|record| &record["tenant"]);
        let place = tenants.into_iter().position(|tenant| tenant == OTHER);
        place.unwrap_or_else(|| panic!("it is not listed: {ran:?}"))
    };
    let limit = LIMIT.to_string();
    assert_eq!(before(&["list", "--limit", &limit]).await, LIMIT - 1, "all but one are the flood's");
    assert_waits("`list` of an operator", before(&["list"]).await);
    assert_waits("the same, of one tenant", before(&["list", "--tenant", OTHER]).await);
}
