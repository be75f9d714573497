//! IAM between the SDK and the table: an HTTP client that passes on what a session may do, and refuses the rest as DynamoDB does.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::{
    Client,
    config::{RuntimeComponents, SharedHttpClient},
};
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
};

use super::{call::Call, role::Session};
use crate::support::{
    client::{connect, plain_http},
    faults::{self, operation_of},
};

/// Clones share what was asked.
#[derive(Clone, Debug)]
pub struct Gate {
    session: Arc<Session>,
    real: SharedHttpClient,
    asked: Arc<Mutex<Vec<(Call, bool)>>>,
}

impl Gate {
    pub fn of(session: Session) -> Self {
        Self { session: Arc::new(session), real: plain_http(), asked: Arc::default() }
    }

    /// A client with the session's credentials.
    pub fn client(&self, endpoint: &str) -> Client {
        connect(endpoint).http_client(self.clone()).client()
    }

    /// Each call, and whether it was allowed.
    pub fn asked(&self) -> Vec<(Call, bool)> {
        self.asked.lock().unwrap().clone()
    }

    /// A request passes if each of its calls may.
    fn passes(&self, request: &HttpRequest) -> bool {
        let body = request.body().bytes().expect("a body in memory");
        let calls = Call::of(&operation_of(request), body);
        let asked: Vec<_> = calls.into_iter().map(|call| (self.session.may(&call), call)).collect();
        let passes = asked.iter().all(|(may, _)| *may);
        self.asked.lock().unwrap().extend(asked.into_iter().map(|(may, call)| (call, may)));
        passes
    }
}

impl HttpClient for Gate {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let real = self.real.http_connector(settings, components);
        SharedHttpConnector::new(Door { gate: self.clone(), real })
    }
}

#[derive(Debug)]
struct Door {
    gate: Gate,
    real: SharedHttpConnector,
}

impl HttpConnector for Door {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match self.gate.passes(&request) {
            true => self.real.call(request),
            false => HttpConnectorFuture::ready(Ok(faults::access_denied())),
        }
    }
}
