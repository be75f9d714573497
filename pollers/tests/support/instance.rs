//! An instance of the function: the library's consumer, in a process that can be killed in the middle of a batch.

use std::time::{Duration, SystemTime};

use futures_util::{FutureExt, future::BoxFuture};
use lambda_http::{Context, LambdaEvent};
use lambda_idempotency::{
    Execution, Failure, Guard, MemoryStore, Operation,
    event::{BatchFunction, Consumer, KeyFrom, MemorySource},
    key::Tenant,
};
use serde_json::Value;
use tower::ServiceExt;

use super::{book::Shared, mortal::Mortal, orders::customer};

/// Of so many orders one is not shipped at its first tries.
const NOT_SHIPPED_IN: usize = 150;
const FIRST_TRIES: u32 = 2;

/// So little that an order which was not shipped is handed back, because there is no time for its third try.
const FUNCTION_TIMEOUT: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_millis(300);

pub fn operation() -> Operation {
    Operation::new("ship").grace(GRACE)
}

/// An instance, as Lambda has one for each invocation that runs.
pub struct Instance<F> {
    world: Mortal,
    consumer: F,
    shared: Shared,
}

/// A new instance.
pub fn instance(
    store: MemoryStore,
    source: MemorySource,
    shared: Shared,
) -> Instance<impl BatchFunction + use<>> {
    let world = Mortal::born();
    let guard = Guard::new(store, operation(), Tenant::parse("shop").expect("a tenant")).world(world.clone());
    let ran_by = (world.clone(), shared.clone());
    let ship = move |_: Execution, order: Value| -> BoxFuture<'static, _> {
        let (world, shared) = ran_by.clone();
        async move { ship(&world, &shared, &order).await }.boxed()
    };
    let consumer = Consumer::new(source, KeyFrom::body("/id")).world(world.clone()).each(guard, ship);
    Instance { world, consumer, shared }
}

impl<F: BatchFunction> Instance<F> {
    /// Invokes it. `None`: it died.
    pub async fn invoke(&self, event: &str) -> Option<Value> {
        let mut context = Context::default();
        let deadline = SystemTime::now() + FUNCTION_TIMEOUT;
        let deadline = deadline.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        context.deadline = u64::try_from(deadline.as_millis()).expect("milliseconds");
        let event = LambdaEvent::new(serde_json::from_str(event).expect("an event"), context);
        let answer = self.consumer.clone().oneshot(event);
        tokio::select! {
            biased;
            () = self.world.died() => {
                self.shared.book().killed += 1;
                None
            }
            answer = answer => {
                Some(serde_json::to_value(answer.expect("an answer")).expect("JSON"))
            }
            () = tokio::time::sleep(FUNCTION_TIMEOUT) => {
                self.world.kill();
                self.shared.book().timed_out += 1;
                None
            }
        }
    }
}

/// Ships an order. Its process can die before the effect, and after it.
async fn ship(world: &Mortal, shared: &Shared, order: &Value) -> Result<(), Failure> {
    let id = usize::try_from(order["id"].as_u64().expect("an order has an id")).expect("a number");
    moment(world, shared).await;
    {
        let mut book = shared.book();
        let tries = book.tries.entry(id).or_default();
        *tries += 1;
        if id.is_multiple_of(NOT_SHIPPED_IN) && *tries <= FIRST_TRIES {
            return Err(Failure::not_executed("no connection"));
        }
        book.effects.entry(customer(id)).or_default().push(id);
    }
    moment(world, shared).await;
    Ok(())
}

/// A moment in which a process can be killed or held.
async fn moment(world: &Mortal, shared: &Shared) {
    let (is_killed, hold) = {
        let mut book = shared.book();
        let is_killed = book.moments_to_kill == 1;
        book.moments_to_kill = book.moments_to_kill.saturating_sub(1);
        (is_killed, book.hold.take())
    };
    if let Some((held, released)) = hold {
        let _ = held.send(());
        let _ = released.await;
    }
    if is_killed {
        world.kill();
        std::future::pending::<()>().await;
    }
}
