//! Where reports are written.

use compare::{Failure, Reports};

use super::{DAY, Ledgers, job};
use crate::support::{embedded, s3::LocalS3};

#[tokio::test]
async fn a_report_goes_to_a_bucket_whole_or_not_at_all() {
    let s3 = LocalS3::with_bucket("reports").await;
    let reports = || Reports::S3 {
        client: s3.client.clone(),
        bucket: "reports".to_owned(),
        prefix: "ledgers/prod".to_owned(),
    };
    let ledgers = Ledgers::on(embedded::endpoint()).await;
    ledgers.both("ch_1").await;
    ledgers.only_ours("ch_2", 1).await;
    let compared = ledgers.compare_into(reports(), job(DAY)).await.unwrap();
    assert_eq!(compared.report, "s3://reports/ledgers/prod/2026-11-20.jsonl");
    assert_eq!(s3.objects("reports").await, ["ledgers/prod/2026-11-20.jsonl"]);
    let object = s3.client.get_object().bucket("reports").key("ledgers/prod/2026-11-20.jsonl").send().await;
    let text = object.unwrap().body.collect().await.unwrap().to_vec();
    assert_eq!(String::from_utf8(text).unwrap().lines().count(), 2);

    s3.fail(403, "AccessDenied");
    let failed = ledgers.compare_into(reports(), job(DAY)).await.unwrap_err();
    assert!(matches!(failed, Failure::Report(_)), "{failed:?}");
}

#[tokio::test]
async fn an_invalid_place_for_reports_is_named_by_its_variable() {
    for (text, wrong) in [
        ("", "the environment variable REPORTS must be set"),
        ("  ", "the environment variable REPORTS must be set"),
        ("s3://", "the environment variable REPORTS must be a folder's path or s3://bucket/prefix"),
        ("https://a/b", "the environment variable REPORTS must be a folder's path or s3://bucket/prefix"),
    ] {
        assert_eq!(Reports::parse(text).await.unwrap_err().to_string(), wrong);
    }
    assert!(matches!(Reports::parse("/var/reports").await, Ok(Reports::Folder(_))));
}
