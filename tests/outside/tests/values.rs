//! What is kept comes back as it was, or not at all.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    Execution, Failure, Operation, RunError,
    engine::CallError,
    event::{KeyFrom, invocation},
    http::lambda_http::{Context, LambdaEvent},
};
use outside::guard;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use tower::ServiceExt;

const KEY: &[&str] = &["order-1"];
const DAY: Duration = Duration::from_secs(24 * 3600);

/// serde_json's default parser reads a neighbour of each of the first four.
const FLOATS: [f64; 12] = [
    117.633_311_394_000_17,
    1.577_777_777_777_000_1,
    0.984_907_422_036_898_5,
    10_587.436_593_658_975,
    0.1,
    -0.0,
    1e23,
    9_007_199_254_740_993.0,
    5e-324,
    f64::MIN_POSITIVE,
    f64::MAX,
    f64::EPSILON,
];

/// Returns `value` from a function, and what its first call and its retry get.
async fn twice<T>(value: impl Fn() -> T + Send + 'static) -> [Result<T, RunError>; 2]
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let guard = guard(Operation::new("rate"));
    let first = guard.run(KEY, (), move |_, ()| async move { Ok(value()) }).await;
    let retry = guard.run(KEY, (), |_, ()| async { panic!("it ran again") }).await;
    [first, retry].map(|ran| ran.map(|ran| ran.value))
}

async fn assert_comes_back<T>(value: T)
where
    T: Serialize + DeserializeOwned + Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let returned = value.clone();
    for result in twice(move || returned.clone()).await {
        assert_eq!(result.unwrap(), value);
    }
}

// T69, T71
#[tokio::test]
async fn a_float_comes_back_bit_for_bit() {
    for float in FLOATS {
        for result in twice(move || float).await {
            assert_eq!(result.unwrap().to_bits(), float.to_bits(), "{float:e}");
        }
    }
    for float in [0.1_f32, 16_777_217.0, f32::MAX, f32::MIN_POSITIVE, 1e-45] {
        for result in twice(move || float).await {
            assert_eq!(result.unwrap().to_bits(), float.to_bits(), "{float:e}");
        }
    }
    let many = || (1..10_000_u64).map(|n| f64::from_bits(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let bits = |floats: Vec<f64>| floats.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let many = move || many().filter(|float| float.is_finite()).collect::<Vec<_>>();
    for result in twice(many).await {
        assert_eq!(bits(result.unwrap()), bits(many()));
    }
    assert_comes_back(json!({ "rates": FLOATS, "by": { "name": 117.633_311_394_000_17 } })).await;
}

// T69, T71
#[tokio::test]
async fn each_execution_sees_the_same_float_in_a_phase() {
    for float in FLOATS {
        let guard = guard(Operation::new("rate").resumes(["quote", "book"], DAY));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let call = async |fails: bool| {
            let seen = seen.clone();
            let function = async move |execution: Execution, ()| {
                let rate = execution.phase("quote").call(async |_| match fails {
                    true => Ok(float),
                    false => panic!("it is called again"),
                });
                let rate: f64 = rate.await?;
                seen.lock().unwrap().push(rate.to_bits());
                let book = execution.phase("book").keys_live(DAY).call(async |_| match fails {
                    true => Err(CallError::not_executed("no connection")),
                    false => Ok(()),
                });
                book.await?;
                Ok::<_, Failure>(rate)
            };
            guard.run(KEY, (), function).await
        };
        assert!(matches!(call(true).await, Err(RunError::Interrupted(_))));
        assert_eq!(call(false).await.unwrap().value.to_bits(), float.to_bits(), "{float:e}");
        assert_eq!(*seen.lock().unwrap(), [float.to_bits(); 2], "{float:e}");
    }
}

// T69, T71
#[tokio::test]
async fn a_direct_invocation_returns_the_same_float_again() {
    for float in FLOATS {
        let rate = move |_: Execution, _: serde_json::Value| async move { Ok(float) };
        let function = invocation(guard(Operation::new("rate")), KeyFrom::body("/id"), rate);
        for _ in 0..2 {
            let payload = serde_json::from_str(r#"{"id":"order-1"}"#).unwrap();
            let event = LambdaEvent::new(payload, Context::default());
            let rate = function.clone().oneshot(event).await.unwrap();
            assert_eq!(rate.to_bits(), float.to_bits(), "{float:e}");
        }
    }
}

#[tokio::test]
async fn lists_sets_maps_and_large_integers_come_back() {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Unit,
        New(i128),
        Pair(u8, Option<String>),
        Named { at: Option<Vec<u8>> },
    }
    assert_comes_back(HashMap::from([(1_u64, 'a'), (u64::MAX, 'ß')])).await;
    assert_comes_back(HashSet::from(["tea".to_owned(), "coffee".to_owned()])).await;
    assert_comes_back((BTreeMap::from([(true, -1)]), BTreeSet::from([i64::MIN, i64::MAX]))).await;
    assert_comes_back((u128::MAX, i128::MIN, u64::MAX)).await;
    assert_comes_back(vec![
        Kind::Unit,
        Kind::New(i128::MAX),
        Kind::Pair(1, None),
        Kind::Pair(2, Some("null".to_owned())),
        Kind::Named { at: Some(vec![0, 255]) },
        Kind::Named { at: None },
    ])
    .await;
    assert_comes_back(()).await;
    assert_comes_back(Some(Some(vec![Some(1), None]))).await;
}

/// Asserts that the first caller gets the value in an error, and a retry the news that it is not kept.
async fn assert_not_kept<T>(value: impl Fn() -> T + Send + 'static)
where
    T: Serialize + DeserializeOwned + Debug + Send + 'static,
{
    let expected = format!("{:?}", value());
    let [first, retry] = twice(value).await;
    let Err(RunError::ResultNotKept(unkept)) = first else { panic!("{first:?}") };
    assert_eq!(unkept.type_name(), std::any::type_name::<T>());
    assert_eq!(format!("{:?}", unkept.downcast::<T>().unwrap()), expected);
    assert!(matches!(retry, Err(RunError::ResultUnreadable(_))), "{retry:?}");
}

// T69
#[tokio::test]
async fn what_json_cannot_carry_is_not_kept_and_says_so() {
    assert_not_kept(|| f64::NAN).await;
    assert_not_kept(|| vec![Some(f32::INFINITY)]).await;
    assert_not_kept(|| Some(())).await;
    assert_not_kept(|| Some(None::<u8>)).await;
    assert_not_kept(|| BTreeMap::from([("a".to_owned(), Some(serde_json::Value::Null))])).await;
    assert_not_kept(|| HashMap::from([((1_u8, 2_u8), 3_u8)])).await;
    assert_not_kept(|| (0..200).fold(json!(null), |inner, _| json!([inner]))).await;
}
