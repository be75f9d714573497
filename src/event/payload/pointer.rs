//! A pointer to a payload in S3.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The names that the extended clients give to a pointer: the newer ones, and the older ones.
const NAMES: [&str; 2] =
    ["software.amazon.payloadoffloading.PayloadS3Pointer", "com.amazon.sqs.javamessaging.MessageS3Pointer"];

/// The longest key of an object in bytes ([AWS](https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html)). The SDK panics at a
/// key that no URI can hold.
const MAX_KEY: usize = 1024;

/// Where a payload is: `["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": "…", "s3Key": "…"}]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::event) struct PayloadPointer {
    #[serde(rename = "s3BucketName")]
    pub(super) bucket: String,
    #[serde(rename = "s3Key")]
    pub(super) key: String,
}

impl PayloadPointer {
    /// The pointer in this body; `None` if it is something else.
    ///
    /// # Errors
    /// If it has the name of a pointer, and cannot be read.
    pub(in crate::event) fn read(body: &str) -> Option<Result<Self, &'static str>> {
        #[derive(Deserialize)]
        struct Named<'a>(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] &'a RawValue);
        // Most bodies need no parser.
        if !body.trim_ascii_start().starts_with('[') {
            return None;
        }
        let Named(name, place) = serde_json::from_str(body).ok()?;
        if !NAMES.contains(&&*name) {
            return None;
        }
        let place = serde_json::from_str::<Self>(place.get()).ok();
        let place =
            place.filter(|place| !place.bucket.is_empty() && (1..=MAX_KEY).contains(&place.key.len()));
        Some(place.ok_or("the body is a pointer to a payload in S3 that names no object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_known_by_either_name() {
        for name in NAMES {
            let body = format!(
                "\n [\"{name}\", {{\"s3BucketName\": \"big\", \"s3Key\": \"a/../b\", \"more\": null}}]\n"
            );
            let pointer = PayloadPointer::read(&body).expect("a pointer").expect("an object");
            assert_eq!((&*pointer.bucket, &*pointer.key), ("big", "a/../b"));
            let nowhere = [
                "null",
                "{}",
                r#"{"s3BucketName":"big"}"#,
                r#"{"s3BucketName":"big","s3Key":""}"#,
                r#"{"s3BucketName":"big","s3Key":1}"#,
                r#"{"s3BucketName":"big","s3BucketName":"other","s3Key":"a"}"#,
                &format!(r#"{{"s3BucketName":"big","s3Key":"{}"}}"#, "a".repeat(1025)),
            ];
            for place in nowhere {
                assert!(
                    matches!(PayloadPointer::read(&format!("[\"{name}\",{place}]")), Some(Err(_))),
                    "{place}"
                );
            }
        }
    }

    #[test]
    fn no_other_body_is_a_pointer() {
        let name = NAMES[0];
        let deep = "[".repeat(200_000);
        for body in [
            "",
            "[",
            "[]",
            "tea",
            "[1,2]",
            r#"["tea",{"s3BucketName":"big","s3Key":"a"}]"#,
            &deep,
            &format!("\"{name}\""),
            &format!("{{\"{name}\":{{}}}}"),
        ] {
            assert_eq!(PayloadPointer::read(body), None, "{}", body.len());
        }
    }
}
