//! The server closes its connections while the process stands still, as a frozen execution environment does between two invocations. The
//! first request on such a connection gets no answer.

use std::time::Duration;

use aws_sdk_dynamodb::{Client, config::Builder};
use lambda_idempotency::{
    engine::Executor, operation::Operation, store::dynamodb::DynamoDbStore, time_budget::STORE_TRY,
    world::World as _,
};
use serde_json::Value;

use crate::support::{
    client::{client, connect},
    clock::{SENT_AGAIN, STORE_TIMEOUT, WatchedClock, in_time},
    embedded,
    faults::{Fault, Late},
    guarded::{Guarded, completed, operation, outcome_of, owned, replayed_text, request, written},
    http::{Counter, PAY, api, guard_of, pay, send},
    server::Server,
    tables::idempotency_table,
};

/// A server before the embedded store, and a store that has a connection to it.
async fn connected() -> (Server, DynamoDbStore) {
    let server = Server::before(embedded::endpoint());
    let table = idempotency_table(&client(embedded::endpoint())).await;
    let store = DynamoDbStore::from_client(client(server.url()), table);
    store.check().await.expect("the table is there");
    assert_eq!(server.accepted(), 1);
    (server, store)
}

/// The puts that arrived at the server and contain this text.
fn puts(server: &Server, text: &str) -> usize {
    let requests = server.requests();
    let puts = requests.iter().filter(|(head, _)| head.contains("DynamoDB_20120810.PutItem"));
    puts.filter(|(_, body)| memchr::memmem::find(body, text.as_bytes()).is_some()).count()
}

// T1: the clock stands still, so that nothing waits.
#[tokio::test]
async fn a_reservation_on_a_closed_connection_is_sent_again_at_once() {
    let (server, store) = connected().await;
    let (clock, runs) = (WatchedClock::now_standing(), Counter::default());
    let counter = runs.clone();
    let app = api(guard_of(store, Operation::new(PAY)).world(clock), move |_, _| {
        let counter = counter.clone();
        async move {
            counter.add();
            "paid"
        }
    });
    for key in ["order-1", "order-2", "order-3"] {
        server.close_connections();
        let first = in_time(send(&app, pay(key))).await;
        assert_eq!((first.status, puts(&server, key)), (200, 2), "one reservation, one completion");
        server.close_connections();
        in_time(send(&app, pay(key))).await.assert_replay_of(&first);
    }
    assert_eq!(runs.count(), 3);
}

// T1
#[tokio::test]
async fn a_reservation_is_sent_again_after_a_refused_connection() {
    let (server, store) = connected().await;
    let (clock, request) = (WatchedClock::now_standing(), request());
    let executor = Executor::new(store, operation()).world(clock.clone());
    let address = server.address();
    // Its connection is closed, and the next one is refused.
    drop(server);
    let back = async {
        clock.slept(SENT_AGAIN, 1).await;
        let server = Server::at(address, embedded::endpoint());
        clock.advance(SENT_AGAIN);
        server
    };
    let (reserved, server) = in_time(async { tokio::join!(executor.reserve(&request), back) }).await;
    let ours = owned(reserved);
    assert!(SENT_AGAIN < STORE_TRY);
    assert_eq!(puts(&server, &request.key.partition_key()), 1);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
    written(executor.finish(ours, completed("{}")).await);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

// T1: a completion goes the same way, though its time is up.
#[tokio::test]
async fn a_late_report_on_a_closed_connection_is_sent_again() {
    let (server, store) = connected().await;
    let (clock, mut request) = (WatchedClock::now_standing(), request());
    let executor = Executor::new(store, operation()).world(clock.clone());
    request.deadline = Some(clock.now().plus(Duration::from_secs(3)));
    let ours = owned(executor.reserve(&request).await);
    // Frozen past its deadline, but not past its lease.
    clock.advance(Duration::from_secs(4));
    server.close_connections();
    written(in_time(executor.finish(ours, completed("{}"))).await);
    assert_eq!(replayed_text(executor.reserve(&request).await), "{}");
}

/// The item of each put that was to be sent.
fn items(guarded: &Guarded) -> Vec<Value> {
    let bodies = guarded.faults.bodies("PutItem");
    let item = |body: &Vec<u8>| serde_json::from_slice::<Value>(body).expect("JSON")["Item"].clone();
    bodies.iter().map(item).collect()
}

// T1, T17: a connection that is dead and says nothing, then one that is closed.
#[tokio::test]
async fn a_reservation_without_an_answer_is_sent_again_after_one_try() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (executor, request) = (guarded.executor(), request());
    guarded.faults.script("PutItem", [Fault::BlackHole, Fault::DropAnswer]);
    let reserving = guarded.clock.through(&[STORE_TRY, SENT_AGAIN], executor.reserve(&request));
    owned(in_time(reserving).await);
    let items = items(&guarded);
    assert_eq!(items.len(), 3);
    assert!(items.iter().all(|item| *item == items[0]), "the same write, with the same revision");
}

// T10, T17, T39: what was to be written before a freeze is decided again after it.
#[tokio::test]
async fn a_reservation_that_was_frozen_between_two_tries_is_not_sent_again() {
    let guarded = Guarded::on(embedded::endpoint()).await;
    let (executor, request, late) = (guarded.executor(), request(), Late::hanging());
    guarded.faults.script("PutItem", [late.fault()]);
    let frozen = async {
        late.held(1).await;
        guarded.clock.advance(STORE_TIMEOUT);
    };
    let (reserved, ()) = in_time(async { tokio::join!(executor.reserve(&request), frozen) }).await;
    assert_eq!(outcome_of(&reserved), "unavailable");
    let items = items(&guarded);
    assert!(items[1..].iter().all(|item| item["revision"] != items[0]["revision"]), "{items:?}");
    // It may land later, and nobody runs then.
    assert_eq!(late.release().await.status, 200);
    assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
}

// A cold start has one handshake: the check opens the connection for the first write, whether the HTTP client is the SDK's own or not.
#[tokio::test]
async fn writes_use_the_connection_that_the_start_up_check_opened() {
    let table = idempotency_table(&client(embedded::endpoint())).await;
    for own_http in [true, false] {
        let server = Server::before(embedded::endpoint());
        let connect = connect(server.url());
        let mut config = connect.sdk_config().into_builder();
        if !own_http {
            config.set_http_client(None);
        }
        let config = config.build();
        let users = Client::from_conf(Builder::from(&config).build());
        let of_client = DynamoDbStore::from_client(users.clone(), table.clone());
        // The client's other calls share it too.
        users.describe_table().table_name(&table).send().await.expect("the table is there");
        for (number, store) in [of_client, DynamoDbStore::new(&config, table.clone())].into_iter().enumerate()
        {
            store.check().await.expect("the table is there");
            let (executor, request) = (Executor::new(store, operation()), request());
            written(executor.finish(owned(executor.reserve(&request).await), completed("{}")).await);
            assert_eq!(server.accepted(), number + 1, "{own_http}");
        }
    }
}
