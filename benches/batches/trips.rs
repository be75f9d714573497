//! Counts the requests to the store.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use aws_sdk_dynamodb::{
    Client,
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeTransmitInterceptorContextRef},
    error::BoxError,
};

/// The number of requests on the wire, retries included.
#[derive(Clone, Debug, Default)]
pub struct Trips(Arc<AtomicU64>);

impl Trips {
    /// This client, counted.
    pub fn counting(&self, client: &Client) -> Client {
        Client::from_conf(client.config().to_builder().interceptor(self.clone()).build())
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Intercept for Trips {
    fn name(&self) -> &'static str {
        "Trips"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
