//! The executor alone.

use bytes::Bytes;
use lambda_idempotency::{
    engine::{Executor, Report, Request},
    fingerprint::{Content, FingerprintRule},
    key::{IdempotencyKey, OperationName, RecordKey},
    operation::Operation,
    record::{Admission, Answer, AnswerKind, Says, Work},
    store::Store,
};

use super::{Guarded, OPERATION, ORDER, Ran, key, tenant};
use crate::meter::spent;

pub fn reserve_and_finish(store: impl Store, body: Bytes) -> Guarded {
    let executor = Executor::new(store, Operation::new(OPERATION));
    let requests = requests();
    Box::new(move |number| {
        let (executor, body, request) = (executor.clone(), body.clone(), requests(number));
        Box::pin(async move {
            let call = async {
                let owned = executor.reserve(&request).await.expect("a fresh key is reserved");
                let json = vec![("content-type".to_owned(), "application/json".to_owned())];
                executor.finish(owned, Report::Completed(Answer::http(201, json, body))).await
            };
            let (says, spent) = spent(call).await;
            assert!(matches!(says, Says::Own { expires_at: Some(_) }), "{says:?}");
            Ran { spent, is_replay: false }
        })
    })
}

/// The parsed requests: one under each number.
fn requests() -> impl Fn(u64) -> Request {
    let content = Content::new("POST", "/payments", ORDER.as_bytes()).json();
    let fingerprints = content.fingerprints(OPERATION, &FingerprintRule::new(), &[]);
    let operation = OperationName::parse(OPERATION).expect("a name");
    move |number| {
        let key = IdempotencyKey::parse(&key(number)).expect("a key");
        Request {
            key: RecordKey::new(tenant(), operation.clone(), key),
            fingerprints: fingerprints.clone(),
            answer_kind: AnswerKind::Http,
            admission: Admission::ALWAYS,
            work: Work::Now,
            deadline: None,
            origin: None,
        }
    }
}
