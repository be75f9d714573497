//! Bodies beyond an item's size limit, in S3.

use bytes::Bytes;
use lambda_idempotency::{
    engine::Executor,
    record::Place,
    store::{Store, s3::S3Bodies},
};
use macro_rules_attribute::apply;

use crate::{
    contract::bodies::{place, replay_of},
    support::{
        guarded::{
            Guarded, body_of, completed, fresh, operation, outcome_of, owned, random, replayed, request,
            written,
        },
        meter::size,
        on_each_store,
        s3::LocalS3,
    },
};

const BUCKET: &str = "bodies";
const PREFIX: &str = "idempotency/";

fn executor(guarded: &Guarded, s3: &LocalS3, bucket: &str) -> Executor {
    let bodies = S3Bodies::new(s3.client.clone(), bucket, PREFIX);
    let store = guarded.store().with_large_bodies(bodies);
    Executor::new(store, operation()).world(guarded.clock.clone())
}

// T16
#[apply(on_each_store)]
async fn bodies_too_large_for_an_item_are_kept_in_s3(endpoint: &str) {
    let (guarded, s3) = (Guarded::on(endpoint).await, LocalS3::with_bucket(BUCKET).await);
    let executor = executor(&guarded, &s3, BUCKET);
    for (length, expected, objects) in [
        (100, "inline", 0),
        (406_000, "body_item", 0),
        (406_001, "s3", 1),
        (1_048_576, "s3", 2),
        (5_242_880, "s3", 3),
    ] {
        let (request, body) = (request(), random(length));
        let replay = replay_of(&executor, &request, &body).await;
        assert_eq!(place(&guarded, &request).await, expected, "{length} bytes");
        assert!(body_of(&replay) == Some(&body), "{length} bytes came back as others");
        let item = guarded.item(&request.key).await.unwrap();
        assert!(size(&item) <= 1024, "{length} bytes make a record of {}", size(&item));

        let keys = s3.objects(BUCKET).await;
        assert_eq!(keys.len(), objects);
        // Object names reveal neither tenant nor key, and neither can lead out of the prefix.
        let tenant = request.key.tenant().as_str();
        assert!(keys.iter().all(|key| key.starts_with(PREFIX) && !key.contains(tenant)), "{keys:?}");
    }
}

// T16
#[apply(on_each_store)]
async fn a_body_that_s3_refuses_is_left_out(endpoint: &str) {
    let (guarded, s3) = (Guarded::on(endpoint).await, LocalS3::with_bucket(BUCKET).await);
    let executor = executor(&guarded, &s3, BUCKET);
    for (status, code) in
        [(403, "AccessDenied"), (404, "NoSuchBucket"), (500, "InternalError"), (503, "SlowDown")]
    {
        s3.fail(status, code);
        let request = request();
        let replay = guarded.clock.passing(replay_of(&executor, &request, &random(1_048_576))).await;
        let left_out = (place(&guarded, &request).await, body_of(&replay), replay.answer.head.status());
        assert_eq!(left_out, ("omitted", None, Some(201)), "{code}");
    }
}

#[apply(on_each_store)]
async fn a_body_gone_from_s3_still_replays_status_and_headers(endpoint: &str) {
    let (guarded, s3) = (Guarded::on(endpoint).await, LocalS3::with_bucket(BUCKET).await);
    let executor = executor(&guarded, &s3, BUCKET);
    let (request, body): (_, Bytes) = (request(), random(500_000));
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, completed(body.clone())).await);
    assert!(body_of(&replayed(executor.reserve(&request).await)) == Some(&body));

    for key in s3.objects(BUCKET).await {
        s3.client.delete_object().bucket(BUCKET).key(key).send().await.unwrap();
    }
    let replay = replayed(executor.reserve(&request).await);
    assert_eq!((replay.answer.head.status(), body_of(&replay)), (Some(201), None));
    // A deployment without the bucket cannot replay the body. It does not run the operation either.
    assert_eq!(outcome_of(&guarded.executor().reserve(&request).await), "unavailable");
}

// Without `s3:ListBucket`, S3 answers 403 for a missing object. The library must not assume that the body is gone.
#[apply(on_each_store)]
async fn access_denied_by_s3_is_not_taken_for_a_missing_body(endpoint: &str) {
    let (guarded, s3) = (Guarded::on(endpoint).await, LocalS3::with_bucket(BUCKET).await);
    let executor = executor(&guarded, &s3, BUCKET);
    let (request, body): (_, Bytes) = (request(), random(500_000));
    replay_of(&executor, &request, &body).await;
    s3.fail(403, "AccessDenied");
    assert_eq!(outcome_of(&executor.reserve(&request).await), "unavailable");
    // The check at start-up names the missing permission.
    let bodies = |bucket| S3Bodies::new(s3.client.clone(), bucket, PREFIX);
    let refused = bodies(BUCKET).check().await.expect_err("a right is missing").to_string();
    assert!(refused.contains(BUCKET) && refused.contains("s3:ListBucket"), "{refused}");
    s3.fail(404, "NoSuchBucket");
    assert!(bodies(BUCKET).check().await.expect_err("no bucket").to_string().contains("no such bucket"));
    s3.fail(503, "SlowDown");
    assert!(bodies(BUCKET).check().await.is_ok(), "a passing fault is no mistake in the configuration");
    s3.recover();
    assert!(bodies(BUCKET).check().await.is_ok());
    assert!(body_of(&replayed(executor.reserve(&request).await)) == Some(&body));
}

// A cloned process may choose an id a second time: the record that named it first keeps its body.
#[apply(on_each_store)]
async fn a_body_in_s3_is_never_overwritten(endpoint: &str) {
    let (guarded, s3) = (Guarded::on(endpoint).await, LocalS3::with_bucket(BUCKET).await);
    let bodies = S3Bodies::new(s3.client.clone(), BUCKET, PREFIX);
    let store = guarded.store().with_large_bodies(bodies);
    let (key, id, first) = (request().key, fresh(), random(500_000));
    for body in [first.clone(), random(600_000)] {
        let place = store.keep_body(&key, id, body, guarded.now()).await.expect("S3 answers");
        assert_eq!(place, Some(Place::S3));
    }
    assert!(store.load_body(&key, id, Place::S3).await.expect("S3 answers") == Some(first));
}
