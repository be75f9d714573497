//! Functions that write to tables of their own: with their result, or instead of a reservation.

use lambda_idempotency::{
    Answer, Execution, Failure, Guard, Operation, RunError,
    domain::{DomainWriteError, Table},
    engine::SingleTransaction,
    key::Tenant,
};
use macro_rules_attribute::apply;
use serde_json::{Value, json};

use crate::support::{guarded::Guarded, http::Counter, on_each_store, returns::Returns, tables};

const KEY: &[&str] = &["order-1"];

async fn shop(endpoint: &str) -> (Guarded, Guard, Table) {
    let guarded = Guarded::on(endpoint).await;
    let table = tables::domain_table(&guarded.undisturbed).await;
    let tenant = Tenant::parse("acme").expect("a tenant");
    let guard = Guard::new(guarded.store(), Operation::new("ship"), tenant).world(guarded.clock.clone());
    (guarded, guard, table)
}

async fn rows(guarded: &Guarded, table: &Table) -> Vec<Value> {
    let scanned = guarded.undisturbed.scan().table_name(table.name()).consistent_read(true).send().await;
    let items = scanned.expect("the table answers").items.unwrap_or_default();
    serde_dynamo::from_items(items).expect("JSON")
}

fn parcel(table: &Table, id: &str) -> lambda_idempotency::domain::DomainWrite {
    table.put(json!({ "id": id })).if_absent()
}

#[apply(on_each_store)]
async fn the_rows_of_a_function_commit_with_its_result(endpoint: &str) {
    let (guarded, guard, table) = shop(endpoint).await;
    let ship = |fails: Option<Failure>| {
        let row = parcel(&table, "p-1");
        async move |execution: Execution, _: u8| {
            execution.write(row)?;
            fails.map_or(Ok("p-1".to_owned()), Err)
        }
    };
    let failed = guard.returns(KEY, 1, ship(Some(Failure::not_executed("no connection")))).await;
    assert!(matches!(failed, Err(RunError::NotExecuted(_))), "{failed:?}");
    assert!(rows(&guarded, &table).await.is_empty());
    for _ in 0..2 {
        assert_eq!(guard.returns(KEY, 1, ship(None)).await.expect("a result"), "p-1");
    }
    assert_eq!(rows(&guarded, &table).await.len(), 1);
    // A refusal for good is a result, and its rows commit.
    let row = parcel(&table, "p-2");
    let refused = guard.returns(&["order-2"], 1, async move |execution: Execution, _: u8| {
        execution.write(row)?;
        Err::<u8, _>(Failure::permanent("no such address"))
    });
    assert!(matches!(refused.await, Err(RunError::Refused(_))));
    assert_eq!(rows(&guarded, &table).await.len(), 2);
}

#[apply(on_each_store)]
async fn a_refused_row_ends_a_function_as_the_row_says(endpoint: &str) {
    let (guarded, guard, table) = shop(endpoint).await;
    let ship = || {
        let row = parcel(&table, "p-1").or_answer(Answer::refusal("shipped already"));
        async move |execution: Execution, _: u8| {
            execution.write(row)?;
            Ok::<_, Failure>("shipped".to_owned())
        }
    };
    guard.returns(KEY, 1, ship()).await.expect("a result");
    for _ in 0..2 {
        let refused = guard.returns(&["order-2"], 1, ship()).await;
        assert!(matches!(&refused, Err(RunError::Refused(why)) if why == "shipped already"), "{refused:?}");
    }
    assert_eq!(rows(&guarded, &table).await.len(), 1);
}

// It would be kept, and each call would fail to read it. It is noticed at the first run, and not only at the first refusal.
#[apply(on_each_store)]
async fn a_row_refused_over_http_is_an_error_in_a_function(endpoint: &str) {
    let (guarded, guard, table) = shop(endpoint).await;
    for status in [200, 409] {
        for computed in [false, true] {
            let row = parcel(&table, "p-1").or_answer(Answer::json(status, "{}"));
            let key = format!("order-{status}-{computed}");
            let ship = async move |execution: Execution, _: u8| {
                if computed {
                    execution.write_computed(move || {
                        let row = row.clone();
                        async move { Ok::<_, std::io::Error>(vec![row]) }
                    });
                } else {
                    let refused = execution.write(row).expect_err("it is refused");
                    assert!(matches!(refused, DomainWriteError::AnswerKind(_)), "{refused}");
                }
                Ok::<_, Failure>("shipped".to_owned())
            };
            let ended = guard.returns(&[&key], 1, ship).await;
            assert!(matches!(ended, Err(RunError::Unknown { .. })), "{ended:?}");
        }
        let row = parcel(&table, "p-1").or_answer(Answer::json(status, "{}"));
        let ship = move |transaction: SingleTransaction, _: u8| {
            let row = row.clone();
            async move {
                transaction.write(row)?;
                Ok::<_, Failure>("shipped".to_owned())
            }
        };
        let ended = guard.transacts(&["order-2"], 1, ship).await;
        assert!(matches!(ended, Err(RunError::NotExecuted(_))), "{ended:?}");
    }
    assert!(rows(&guarded, &table).await.is_empty());
}

#[apply(on_each_store)]
async fn a_function_of_rows_alone_commits_in_one_round_trip(endpoint: &str) {
    let (guarded, guard, table) = shop(endpoint).await;
    let runs = Counter::default();
    let ship = async |key: &[&str], id: &'static str| {
        let (row, runs) = (parcel(&table, id).or_answer(Answer::refusal("shipped already")), runs.clone());
        let function = move |transaction: SingleTransaction, _: u8| {
            let (row, runs) = (row.clone(), runs.clone());
            async move {
                transaction.write(row)?;
                Ok::<_, Failure>(runs.add())
            }
        };
        guard.transacts(key, 1, function).await
    };
    assert!(matches!(ship(KEY, "p-1").await, Ok(1)));
    assert_eq!(guarded.meter.reading().total().round_trips, 1);
    assert!(matches!(ship(KEY, "p-1").await, Ok(1)), "the kept result, although the function ran again");
    let refused = ship(&["order-2"], "p-1").await;
    assert!(matches!(&refused, Err(RunError::Refused(why)) if why == "shipped already"), "{refused:?}");
    assert_eq!(rows(&guarded, &table).await.len(), 1);
    // What fails commits nothing, and leaves no record.
    for failure in [Failure::not_executed("later"), "no answer".into()] {
        let failure = std::sync::Mutex::new(Some(failure));
        let function = move |_, _: u8| {
            let failure = failure.lock().expect("one thread").take().expect("one run");
            async { Err::<u8, _>(failure) }
        };
        let failed = guard.transacts(&["order-3"], 1, function).await;
        assert!(matches!(failed, Err(RunError::NotExecuted(Some(_)))), "{failed:?}");
    }
    let panics = guard.transacts(&["order-3"], 1, |_, _: u8| async { panic!("in the function") });
    let panicked: Result<u8, _> = panics.await;
    assert!(matches!(panicked, Err(RunError::NotExecuted(None))), "{panicked:?}");
    assert_eq!(guarded.number_of_items().await, 2);
}
