//! Guards with the credentials of their tenant, and with those of another.

use std::collections::BTreeSet;

use axum::http::{StatusCode, request::Parts};

use super::everything::{PROVIDER, Tables};
use crate::support::http::{Counter, PAY, api, guard_of, order, pay, send, tenant};
use lambda_idempotency::Operation;

/// Tenants that have credentials. One's name begins like the other's.
const TENANTS: [&str; 3] = ["acme", "acme-eu", "Zoë+1 @ shop/7: a=b_c.d"];

#[tokio::test]
async fn a_tenants_credentials_suffice_for_its_guard_and_allow_nothing_more() {
    for name in TENANTS {
        let tables = Tables::new().await;
        let asked = tables.asked_for(name).await;
        let refused: Vec<_> = asked.iter().filter(|(_, may)| !may).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        let used: BTreeSet<_> = asked.iter().map(|(call, _)| (&*call.action, &*call.resource)).collect();
        assert_eq!(tables.role.policy.allowed().collect::<BTreeSet<_>>(), used, "{name}");
    }
}

#[tokio::test]
async fn each_call_of_a_guard_is_refused_to_every_other_tenant() {
    for name in TENANTS {
        let tables = Tables::new().await;
        let calls = tables.asked_for(name).await.into_iter().map(|(call, _)| call);
        // They are everybody's, as the template says.
        let is_reference = |key: &String| key.starts_with(&format!("#{PROVIDER}#"));
        let (references, calls): (Vec<_>, Vec<_>) =
            calls.partition(|call| call.leading_keys.iter().flatten().any(is_reference));
        assert!(!references.is_empty() && references.iter().all(|call| call.action == "dynamodb:PutItem"));
        let bodies = calls.iter().filter(|call| call.action == "dynamodb:GetItem").count();
        assert!(calls.len() > 30 && bodies > 0, "{calls:?}");
        for other in TENANTS.into_iter().chain(["acm", "ACME", "acme "]).filter(|other| *other != name) {
            let session = tables.role.of(other);
            let allowed: Vec<_> = calls.iter().filter(|call| session.may(call)).collect();
            assert!(allowed.is_empty(), "{other}: {allowed:?}");
        }
    }
}

// A function that mixes up two tenants.
#[tokio::test]
async fn another_tenants_credentials_execute_and_replay_nothing() {
    let tables = Tables::new().await;
    let runs = Counter::default();
    let app = |session: &str| {
        let (gate, guarded) = tables.through(tables.role.of(session));
        let runs = runs.clone();
        let app = api(guard_of(guarded.store(), Operation::new(PAY)), move |_: Parts, _| {
            runs.add();
            async { StatusCode::CREATED }
        });
        (gate, app)
    };
    let (own, other) = (app("acme"), app("acme-eu"));
    send(&other.1, pay("order-1")).await.assert_problem(503, "store-unavailable");
    assert_eq!((runs.count(), tables.guarded.number_of_items().await), (0, 0));

    assert_eq!(send(&own.1, pay("order-1")).await.status, 201);
    assert!(send(&own.1, pay("order-1")).await.replayed());
    send(&other.1, pay("order-1")).await.assert_problem(503, "store-unavailable");
    assert_eq!((runs.count(), tables.guarded.number_of_items().await), (1, 1));
    assert!(own.0.asked().iter().all(|(_, may)| *may) && other.0.asked().iter().all(|(_, may)| !may));

    // The same credentials serve their own tenant.
    let order = order("order-1").extension(tenant("acme-eu")).body("{}".into()).expect("a request");
    assert_eq!(send(&app("acme-eu").1, order).await.status, 201);
}
