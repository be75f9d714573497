//! Bodies of requests: read once for the fingerprint, handed on as they came.

use std::future::Future;

use lambda_http::Body;

use super::ProblemType;

/// A request body that can be looked at before it is handed on.
pub trait GuardedBody: Sized + Send + 'static {
    /// Reads the body whole, shows it to `look`, and gives it back as it was.
    fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> impl Future<Output = Result<(T, Self), ProblemType>> + Send;
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
}
