//! An error with its causes, in one line.

use std::{error::Error, iter};

/// The error with its causes. Quoted parts of requests are left out, because requests hold keys.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<_> = causes(error).map(text).filter(|text| !text.is_empty()).collect();
    // Many errors already include their cause.
    texts.dedup_by(|cause, above| above.contains(cause.as_str()));
    texts.join(": ")
}

/// What is wrong with JSON, and where. Its own text may quote a value, and values do not belong in logs.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    format!("{:?} error in line {}, column {}", error.classify(), error.line(), error.column())
}

/// The error, followed by its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

/// The error's text without its causes. For a service's answer it is the message, because `Display` prints the whole struct.
fn text(error: &(dyn Error + 'static)) -> String {
    #[cfg(feature = "dynamodb")]
    if let Some(answer) = error.downcast_ref::<aws_sdk_dynamodb::error::ErrorMetadata>() {
        return without_dumps(answer.message().unwrap_or_default());
    }
    without_dumps(&error.to_string())
}

/// The text without the part in braces, in which the SDK prints its structs and whole requests. The cut ends at the last brace,
/// because a key may contain braces too.
fn without_dumps(text: &str) -> String {
    let Some((before, rest)) = text.split_once('{') else { return text.to_owned() };
    let after = rest.rsplit_once('}').map_or("", |(_, after)| after);
    format!("{before}{{…}}{after}")
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "dynamodb")]
    use aws_sdk_dynamodb::error::ErrorMetadata;

    use super::*;

    /// The SDK's error for an invalid endpoint.
    #[derive(Debug, thiserror::Error)]
    #[error(r#"no endpoint for `Request {{ body: {{"pk":{{"S":"acme#pay#a }} key"}}}}, n: 1 }}`: no scheme"#)]
    struct Dump;

    /// Includes its cause, as the SDK's errors do.
    #[derive(Debug, thiserror::Error)]
    #[error("not read: {0}")]
    struct Including(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("the page is lost")]
    struct Outer(#[source] Including);

    #[test]
    fn quoted_parts_of_a_request_are_left_out_of_errors() {
        assert_eq!(error_chain(&Dump), "no endpoint for `Request {…}`: no scheme");
        #[cfg(feature = "dynamodb")]
        let answer = ErrorMetadata::builder().code("AccessDenied").message("no leave to read").build();
        #[cfg(feature = "dynamodb")]
        assert_eq!(error_chain(&answer), "no leave to read");
        assert_eq!(without_dumps("cut off { acme"), "cut off {…}");
        assert_eq!(without_dumps("nothing to hide }"), "nothing to hide }");
    }

    #[test]
    fn each_cause_is_printed_once() {
        let error = Outer(Including(std::io::Error::other("no such table")));
        assert_eq!(error_chain(&error), "the page is lost: not read: no such table");
    }
}
