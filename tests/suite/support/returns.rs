//! What a guarded function returned, for tests to which it does not matter whether that is a replay.

use lambda_idempotency::{Execution, Failure, Guard, RunError, engine::SingleTransaction};
use serde::{Serialize, de::DeserializeOwned};

/// The value alone.
pub trait Returns {
    async fn returns<I, T, F, H>(&self, key: &[&str], input: I, function: F) -> Result<T, RunError>
    where
        I: Serialize + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Execution, I) -> H + Send + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static;

    async fn transacts<I, T, F, H>(&self, key: &[&str], input: I, function: F) -> Result<T, RunError>
    where
        I: Serialize + Clone + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(SingleTransaction, I) -> H,
        H: Future<Output = Result<T, Failure>> + Send + 'static;
}

impl Returns for Guard {
    async fn returns<I, T, F, H>(&self, key: &[&str], input: I, function: F) -> Result<T, RunError>
    where
        I: Serialize + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(Execution, I) -> H + Send + 'static,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        Ok(self.run(key, input, function).await?.value)
    }

    async fn transacts<I, T, F, H>(&self, key: &[&str], input: I, function: F) -> Result<T, RunError>
    where
        I: Serialize + Clone + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(SingleTransaction, I) -> H,
        H: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        Ok(self.run_single_transaction(key, input, function).await?.value)
    }
}
