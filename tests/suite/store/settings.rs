//! What a sweep looks for in the settings of the table.

use lambda_idempotency::store::Unsettled;
use macro_rules_attribute::apply;

use crate::support::{faults::Fault, guarded::Guarded, on_each_store};

const TIME_TO_LIVE: &str = "time to live on expires_at";

// A function that may not look would never see it, and a store that is busy is looked at again.
#[apply(on_each_store)]
async fn a_setting_that_may_not_be_read_counts_as_off(endpoint: &str) {
    let guarded = Guarded::on(endpoint).await;
    let off = async || {
        let off = guarded.store().settings_off().await;
        off.into_iter().filter(|setting| !setting.starts_with("point-in-time recovery")).collect::<Vec<_>>()
    };
    assert!(off().await.is_empty(), "{:?}", off().await);
    guarded.faults.for_all("DescribeTimeToLive", Fault::AccessDenied);
    assert!(matches!(off().await[..], [setting] if setting.starts_with(TIME_TO_LIVE)), "{:?}", off().await);
    guarded.faults.clear();
    guarded.faults.for_all("DescribeTimeToLive", Fault::Throttle);
    assert!(off().await.is_empty());
}
