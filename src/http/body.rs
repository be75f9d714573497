//! Bodies of requests: read once for the fingerprint, handed on as they came.

use std::future::Future;

use lambda_http::Body;

/// Why a request's body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// It is longer than the guard reads.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The client broke off.
    #[error("the body ends before its end")]
    Broken,
}

/// A request body that can be looked at before it is handed on.
pub trait GuardedBody: Sized + Send + 'static {
    /// Reads the body whole, shows it to `look`, and gives it back as it was.
    fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> impl Future<Output = Result<(T, Self), BodyError>> + Send;
}

impl GuardedBody for Body {
    async fn inspect<T: Send>(
        self,
        limit: usize,
        look: impl FnOnce(&[u8]) -> T + Send,
    ) -> Result<(T, Self), BodyError> {
        let bytes: &[u8] = self.as_ref();
        if bytes.len() > limit {
            return Err(BodyError::TooLong(limit));
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
    ) -> Result<(T, Self), BodyError> {
        use http_body_util::{BodyExt, LengthLimitError, Limited};

        match Limited::new(self, limit).collect().await {
            Ok(body) => {
                let bytes = body.to_bytes();
                Ok((look(&bytes), bytes.into()))
            }
            Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLong(limit)),
            Err(_) => Err(BodyError::Broken),
        }
    }
}
