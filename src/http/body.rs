//! Request bodies: read once for the fingerprint, then passed on unchanged.

use std::future::Future;

#[cfg(feature = "axum")]
use bytes::Bytes;
use lambda_http::Body;

use super::ProblemType;

/// Makes one copy of a body at each call.
pub type Copies<B> = Box<dyn Fn() -> B + Send + Sync>;

/// A request body that can be inspected before it is passed on. Sealed: the bodies of `lambda_http` and axum are.
pub trait GuardedBody: Sized + Send + 'static {
    /// Reads the whole body, shows it to `look`, and returns it unchanged.
    fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> impl Future<Output = Result<(T, Self), ProblemType>> + Send;

    /// Copies of a body that was inspected, for a handler that may run again.
    fn copies(self) -> impl Future<Output = Result<Copies<Self>, ProblemType>> + Send;
}

impl GuardedBody for Body {
    async fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> Result<(T, Self), ProblemType> {
        let bytes: &[u8] = self.as_ref();
        if bytes.len() > limit {
            return Err(ProblemType::BodyTooLong);
        }
        let seen = look(bytes);
        Ok((seen, self))
    }

    async fn copies(self) -> Result<Copies<Self>, ProblemType> {
        Ok(Box::new(move || self.clone()))
    }
}

#[cfg(feature = "axum")]
impl GuardedBody for ::axum::body::Body {
    async fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> Result<(T, Self), ProblemType> {
        use http_body_util::{BodyExt, LengthLimitError, Limited};

        match Limited::new(self, limit).collect().await {
            Ok(body) => {
                let bytes = body.to_bytes();
                Ok((look(&bytes), bytes.into()))
            }
            Err(error) if error.is::<LengthLimitError>() => Err(ProblemType::BodyTooLong),
            Err(_) => Err(ProblemType::BodyUnreadable),
        }
    }

    async fn copies(self) -> Result<Copies<Self>, ProblemType> {
        let (bytes, _) = self.inspect(usize::MAX, Bytes::copy_from_slice).await?;
        Ok(Box::new(move || bytes.clone().into()))
    }
}
