//! Request bodies: read once for the fingerprint, then passed on unchanged.

use std::future::Future;

use super::ProblemType;

/// A request body that can be read before it is passed on. Sealed: the bodies of `lambda_http` and axum are, and those that
/// are read already.
pub trait GuardedBody: Sized + Send + 'static {
    /// The body once it is read. Each clone of it can be passed on.
    type Whole: AsRef<[u8]> + Clone + Into<Self> + Send + Sync + 'static;

    /// Reads the whole body, unless it is longer than `limit`.
    fn whole(self, limit: usize) -> impl Future<Output = Result<Self::Whole, ProblemType>> + Send;
}

#[cfg(feature = "lambda-http")]
impl GuardedBody for lambda_http::Body {
    type Whole = Self;

    async fn whole(self, limit: usize) -> Result<Self, ProblemType> {
        if self.as_ref().len() > limit { Err(ProblemType::BodyTooLong) } else { Ok(self) }
    }
}

impl GuardedBody for http_body_util::Full<bytes::Bytes> {
    type Whole = bytes::Bytes;

    async fn whole(self, limit: usize) -> Result<bytes::Bytes, ProblemType> {
        use http_body_util::BodyExt;

        let body = self.collect().await.map_err(|never| match never {})?.to_bytes();
        if body.len() > limit { Err(ProblemType::BodyTooLong) } else { Ok(body) }
    }
}

#[cfg(feature = "axum")]
impl GuardedBody for ::axum::body::Body {
    type Whole = bytes::Bytes;

    async fn whole(self, limit: usize) -> Result<bytes::Bytes, ProblemType> {
        use http_body_util::{BodyExt, LengthLimitError, Limited};

        match Limited::new(self, limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(ProblemType::BodyTooLong),
            Err(_) => Err(ProblemType::BodyUnreadable),
        }
    }
}
