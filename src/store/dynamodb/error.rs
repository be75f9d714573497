//! Maps the errors of DynamoDB and the SDK to the kinds of a store's errors.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::{
    config::ConfigError,
    error_chain::{causes, error_chain},
    store::{StoreError, StoreErrorKind},
};

impl<E> From<SdkError<E>> for StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    /// Contains the service's answer, of which the SDK displays only `service error`. Errors of the connection are not quoted,
    /// because they may contain whole requests.
    fn from(error: SdkError<E>) -> Self {
        let kind = kind(error.code());
        let answer = error.as_service_error().map(ProvideErrorMetadata::meta);
        let [code, message] = answer.map_or([None, None], |answer| [answer.code(), answer.message()]);
        let advice = code.zip(message).and_then(|(code, message)| advice(code, message));
        match [code, message, advice].into_iter().flatten().collect::<Vec<_>>().join(": ") {
            answer if answer.is_empty() => Self::new(kind, error),
            answer => Self::new(kind, answer),
        }
    }
}

/// What a refusal says about the table, in which DynamoDB names neither the key nor the index that it misses. It has one code for all
/// invalid requests, so only the message tells them apart.
fn advice(code: &str, message: &str) -> Option<&'static str> {
    match code {
        "ResourceNotFoundException" => Some("there is no such table in this account and Region"),
        "ValidationException" if message.contains("specified index") => Some(
            "add the index `reconcile` (partition key `reconcile_shard`, sort key `reconcile_place`, both strings, all attributes), \
             or deploy the template",
        ),
        "ValidationException"
            if ["match the schema", "conditions on the keys"].iter().any(|words| message.contains(words)) =>
        {
            Some(
                "it is not a table of idempotency records, which has the partition key `pk` and the sort key `sk`, both strings",
            )
        }
        _ => None,
    }
}

/// What the code of an error of DynamoDB or S3 means, or that of a reason why a transaction was cancelled.
pub(super) fn kind(code: Option<&str>) -> StoreErrorKind {
    match code {
        Some("TransactionConflictException" | "TransactionConflict") => StoreErrorKind::Contended,
        Some("TransactionInProgressException") => StoreErrorKind::InProgress,
        Some(
            "ProvisionedThroughputExceededException"
            | "ProvisionedThroughputExceeded"
            | "ThrottlingException"
            | "ThrottlingError"
            | "RequestLimitExceeded",
        ) => StoreErrorKind::Throttled,
        // A process that was frozen sends its first request with a signature that has expired (aws-sdk-js-v3#7605).
        Some(
            "ExpiredTokenException"
            | "IncompleteSignatureException"
            | "InvalidSignatureException"
            | "MissingAuthenticationTokenException"
            | "UnrecognizedClientException",
        ) => StoreErrorKind::Unauthenticated,
        Some(
            "ResourceNotFoundException"
            | "AccessDeniedException"
            | "ValidationException"
            | "ValidationError"
            | "ItemCollectionSizeLimitExceeded"
            | "AccessDenied"
            | "NoSuchBucket",
        ) => StoreErrorKind::Refused,
        _ => StoreErrorKind::Unavailable,
    }
}

impl ConfigError {
    /// The configuration error that causes `error`; `None` if the error may pass.
    pub(super) fn of(table: &str, error: &StoreError) -> Option<Self> {
        use aws_credential_types::provider::error::CredentialsError;

        if let Some(cause) = causes(error).find(|cause| cause.is::<CredentialsError>()) {
            return Some(Self::NoCredentials { table: table.to_owned(), reason: error_chain(cause) });
        }
        if !matches!(error.kind(), StoreErrorKind::Refused | StoreErrorKind::Unauthenticated) {
            return None;
        }
        Some(Self::Refused {
            table: table.to_owned(),
            reason: error.source().map(error_chain).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ErrorMetadata;

    use super::*;

    #[test]
    fn a_refusal_says_its_reason_once() {
        let answer = ErrorMetadata::builder().code("AccessDenied").message("no leave to read").build();
        let error = StoreError::new(StoreErrorKind::Refused, answer);
        let refused = ConfigError::of("orders", &error).expect("a refusal").to_string();
        assert!(refused.ends_with(": no leave to read"), "{refused}");

        let twice = StoreError::new(StoreErrorKind::Refused, Twice(std::io::Error::other("no such table")));
        let refused = ConfigError::of("orders", &twice).expect("a refusal").to_string();
        assert_eq!(refused.matches("no such table").count(), 1, "{refused}");
    }

    #[test]
    fn an_answer_of_the_service_is_reported_and_a_request_is_not() {
        use aws_sdk_dynamodb::{
            config::http::HttpResponse, error::ConnectorError, operation::put_item::PutItemError,
        };

        let metadata =
            ErrorMetadata::builder().code("AccessDeniedException").message("no leave to write").build();
        let raw = HttpResponse::new(400.try_into().unwrap(), "".into());
        let refused = StoreError::from(SdkError::service_error(PutItemError::generic(metadata), raw));
        assert_eq!(refused.kind(), StoreErrorKind::Refused);
        assert_eq!(refused.cause(), "AccessDeniedException: no leave to write");
        let request = ConnectorError::other("for Request { pk: acme#pay#k }".into(), None);
        let away = StoreError::from(SdkError::<PutItemError>::dispatch_failure(request));
        assert!(!away.cause().contains("acme"), "{}", away.cause());
    }

    #[test]
    fn an_expired_signature_may_pass_and_fails_the_start() {
        for code in ["ExpiredTokenException", "InvalidSignatureException", "UnrecognizedClientException"] {
            let error = StoreError::new(kind(Some(code)), std::io::Error::other("signed too long ago"));
            assert!(error.is_passing() && error.kind().leaves_open(), "{code}");
            assert!(ConfigError::of("orders", &error).is_some(), "{code}");
        }
    }

    #[test]
    fn a_transaction_in_progress_is_contention_that_may_have_been_applied() {
        let kind = kind(Some("TransactionInProgressException"));
        assert!(kind.is_contention() && kind.leaves_open());
        assert!(!StoreErrorKind::Contended.leaves_open());
    }

    /// Includes its cause, as the SDK's errors do.
    #[derive(Debug, thiserror::Error)]
    #[error("ResourceNotFoundException: {0}")]
    struct Twice(#[source] std::io::Error);
}
