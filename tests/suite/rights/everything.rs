//! Each kind of request that a guard makes for its tenant, made with credentials of the role.

use std::time::Duration;

use axum::http::{StatusCode, request::Parts};
use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_idempotency::{
    Execution, Failure, Guard, Operation,
    domain::{DomainWrite, Table},
    engine::{Request, SingleTransaction},
    event::{Consumer, MemorySource},
    http::{Profile, operation_status},
    key::Tenant,
    outbox::Topics,
    world::World,
};
use serde_json::json;

use super::{
    call::{Call, arn},
    gate::Gate,
    role::{Role, Session},
};
use crate::support::{
    client::client,
    embedded,
    guarded::{self, Guarded, completed, operation, outcome_of, owned, written},
    http::{Answer, PAY, api, guard_of, order, record_key, send},
    messages::{QUEUE, deliver_within, message},
    returns::Returns,
    tables,
};

pub const PROVIDER: &str = "stripe";

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const BEAT: Duration = Duration::from_secs(20);

/// A table of records and one for domain writes, and the role on both with all its rights.
pub struct Tables {
    pub guarded: Guarded,
    pub rows: Table,
    pub role: Role,
}

impl Tables {
    pub async fn new() -> Self {
        let guarded = Guarded::on(embedded::endpoint()).await;
        let rows = tables::domain_table(&client(embedded::endpoint())).await;
        let domain_tables = arn(rows.name());
        let parameters =
            [("DomainTableArns", &*domain_tables), ("AcceptedWork", "on"), ("ReferenceProvider", PROVIDER)];
        let role = Role::on(&arn(&guarded.table), &parameters);
        Self { guarded, rows, role }
    }

    /// The same tables, reached with this session's credentials.
    pub fn through(&self, session: Session) -> (Gate, Guarded) {
        let gate = Gate::of(session);
        let client = gate.client(embedded::endpoint());
        (gate, Guarded { client, ..self.guarded.clone() })
    }

    /// What the requests of this tenant ask of IAM. Each is made with the tenant's credentials, and has its usual outcome.
    pub async fn asked_for(&self, name: &str) -> Vec<(Call, bool)> {
        let (gate, guarded) = self.through(self.role.of(name));
        let caller =
            Caller { guarded, rows: self.rows.clone(), tenant: Tenant::parse(name).expect("a tenant") };
        caller.results().await;
        caller.rows().await;
        caller.phases().await;
        caller.heartbeats().await;
        caller.accepted_work().await;
        gate.asked()
    }
}

struct Caller {
    guarded: Guarded,
    rows: Table,
    tenant: Tenant,
}

impl Caller {
    fn guard(&self, operation: Operation) -> Guard {
        Guard::new(self.guarded.store(), operation, self.tenant.clone()).world(self.guarded.clock.clone())
    }

    fn row(&self, number: u8) -> DomainWrite {
        self.rows.put(json!({ "id": self.tenant.as_str(), "n": number }))
    }

    /// First, replay, a body in an item of its own, a failure and its retry, a message.
    async fn results(&self) {
        let guard = self.guard(Operation::new("report"));
        let long = BASE64_STANDARD.encode(guarded::random(20_000));
        for text in ["short", &*long] {
            for _ in 0..2 {
                let result = text.to_owned();
                let run = async move |_: Execution, _: u8| Ok::<_, Failure>(result);
                assert_eq!(guard.returns(&[&text[..5]], 1, run).await.expect("a result"), text);
            }
        }
        let fails = async |_: Execution, _: u8| Err::<(), _>(Failure::not_executed("no connection"));
        guard.returns(&["failed"], 1, fails).await.expect_err("it fails");
        let publishes = async |execution: Execution, _: u8| {
            let topics = Topics::parse("order.placed=own")?;
            execution.publish(&topics.topic("order.placed")?, &"placed")?;
            Ok::<_, Failure>(())
        };
        guard.returns(&["failed"], 1, publishes).await.expect("a result");
    }

    /// Domain writes of each kind, and a single transaction.
    async fn rows(&self) {
        let key = json!({ "id": self.tenant.as_str() });
        let update = self.rows.update(&key, "SET n = :n").value(":n", 2);
        let writes = [self.row(1), self.rows.check(&key).if_present(), update, self.rows.delete(&key)];
        for (number, write) in writes.into_iter().enumerate() {
            let run = async move |execution: Execution, _: u8| {
                execution.write(write)?;
                Ok::<_, Failure>(())
            };
            let guard = self.guard(Operation::new("book"));
            guard.returns(&[&format!("row-{number}")], 1, run).await.expect("a result");
        }
        let write = self.row(3);
        let transfer = move |transaction: SingleTransaction, _: u8| {
            let write = write.clone();
            async move {
                transaction.write(write)?;
                Ok::<_, Failure>(())
            }
        };
        for _ in 0..2 {
            let guard = self.guard(Operation::new("transfer"));
            guard.transacts(&["transfer"], 1, &transfer).await.expect("a result");
        }
    }

    /// A call with a reference, an interruption, and a commit by the worker that resumes.
    async fn phases(&self) {
        let guard = self.guard(Operation::new("order").resumes(["charge", "stock"], HOUR));
        for resumed in [false, true] {
            let (write, charge) = (self.row(4), format!("ch_{}", self.tenant.as_str()));
            let run = async move |execution: Execution, _: u8| {
                let call = execution.phase("charge").call(async |_| {
                    execution.refer(PROVIDER, &charge).await?;
                    Ok(7_u8)
                });
                call.await?;
                if !resumed {
                    return Err(Failure::not_executed("no connection"));
                }
                execution.commit("stock", vec![write]).await?;
                Ok::<_, Failure>(())
            };
            let ended = guard.returns(&["order"], 1, run).await;
            assert_eq!(ended.is_ok(), resumed, "{ended:?}");
        }
    }

    async fn heartbeats(&self) {
        let (executor, clock) = (self.guarded.executor_of(operation().heartbeat(BEAT)), &self.guarded.clock);
        let key = record_key(self.tenant.as_str(), guarded::OPERATION, "long");
        let request = Request { key, ..guarded::request() };
        let ours = owned(executor.reserve(&request).await);
        clock.slept(BEAT, 1).await;
        clock.advance(BEAT);
        clock.slept(BEAT, 2).await;
        assert_eq!(outcome_of(&executor.reserve(&request).await), "in flight");
        written(executor.finish(ours, completed("{}")).await);
    }

    /// A request that is accepted, asked about, and executed by a worker.
    async fn accepted_work(&self) {
        let (store, clock) = (self.guarded.store(), &self.guarded.clock);
        let guard = guard_of(store.clone(), Operation::new(PAY).asynchronous(HOUR)).world(clock.clone());
        let app = api(guard, |_: Parts, _| async { StatusCode::CREATED });
        let request = order("report").extension(self.tenant.clone()).body("{}".into()).expect("a request");
        assert_eq!(send(&app, request).await.status, 202);

        let key = record_key(self.tenant.as_str(), PAY, "report");
        let record = self.guarded.record(&key).await.expect("a record");
        let request = record.accepted.expect("it was accepted").request.to_string();
        let asked = json!({ "version": 1, "kind": "work", "key": key.partition_key(), "request": request });
        let worker = Consumer::worker(MemorySource::new(QUEUE)).world(clock.clone()).work(store.clone(), app);
        let now = std::time::UNIX_EPOCH + Duration::from_millis(clock.now().as_millis());
        let back = deliver_within(&worker, &[message("m-1", asked)], now, MINUTE).await;
        assert_eq!(back.expect("an answer"), [""; 0]);
        let profile = Profile::ietf_draft();
        let status = Answer::of(operation_status(&store, &key, clock.now(), &profile).await).await;
        assert_eq!(status.status, 201, "{status:?}");
    }
}
