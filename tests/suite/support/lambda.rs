//! Functions as `lambda::run_http` serves them: events in, answers out, through `lambda_http`'s own conversions.

use std::{fmt::Debug, rc::Rc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use lambda_http::{Context, LambdaEvent, Request, Service};
use lambda_idempotency::lambda::{Event, http_event};
use serde_json::Value;

/// A function as the runtime calls it. It returns its answer as Lambda sees it.
pub type Function = Rc<dyn Fn(LambdaEvent<Event>) -> LocalBoxFuture<'static, Value>>;

pub fn function<S, R, E>(service: S) -> Function
where
    S: Service<Request, Response = R, Error = E> + Clone + Send + 'static,
    S::Future: Send + 'static,
    R: lambda_http::IntoResponse + Send + 'static,
    E: Debug + Send + 'static,
{
    Rc::new(move |event| {
        let answer = http_event(service.clone(), event);
        let answer = async { serde_json::to_value(answer.await.expect("the function answers")) };
        answer.map(|answer| answer.expect("an answer is JSON")).boxed_local()
    })
}

pub async fn deliver(function: &Function, event: &Value) -> Answer {
    deliver_in(function, event, Context::default()).await
}

pub async fn deliver_in(function: &Function, event: &Value, context: Context) -> Answer {
    // Parsed as the runtime parses it.
    let event = serde_json::from_str(&event.to_string()).expect("an event is JSON");
    Answer(function(LambdaEvent::new(event, context)).await)
}

/// The answer that Lambda passes to the front.
#[derive(Debug)]
pub struct Answer(pub Value);

impl Answer {
    pub fn status(&self) -> u64 {
        self.0["statusCode"].as_u64().expect("a status")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let single = self.0["headers"].get(name);
        single.or_else(|| self.0["multiValueHeaders"].get(name)?.get(0))?.as_str()
    }

    /// The body, which is text and not base64.
    pub fn text(&self) -> &str {
        assert_eq!(self.0["isBase64Encoded"], false, "{self:?}");
        self.0["body"].as_str().expect("a body")
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).expect("a body of JSON")
    }
}
