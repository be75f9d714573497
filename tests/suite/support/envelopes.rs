//! What AWS's services wrap around a message, with the members that they document.

use serde_json::{Value, json};

/// A notification of SNS (<https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html>).
pub fn sns(id: &str, message: impl ToString) -> Value {
    json!({
        "Type": "Notification",
        "MessageId": id,
        "TopicArn": "arn:aws:sns:us-east-2:123456789012:parcels",
        "Subject": null,
        "Message": message.to_string(),
        "Timestamp": "2026-11-27T05:00:01.000Z",
        "SignatureVersion": "1",
        "Signature": "c2ln",
        "SigningCertURL": "https://sns.us-east-2.amazonaws.com/x.pem",
        "UnsubscribeURL": "https://sns.us-east-2.amazonaws.com/?Action=Unsubscribe"
    })
}

/// What SNS writes into a queue that is subscribed, or is no longer.
pub fn confirmation(kind: &str) -> Value {
    json!({
        "Type": kind,
        "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
        "Token": "2336412f37fb687f5d51e6e241d09c80",
        "TopicArn": "arn:aws:sns:us-east-2:210987654321:parcels",
        "Message": "You have chosen to subscribe to the topic arn:aws:sns:us-east-2:210987654321:parcels.",
        "SubscribeURL": "https://sns.us-east-2.amazonaws.com/?Action=ConfirmSubscription",
        "Timestamp": "2026-11-27T05:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "c2ln",
        "SigningCertURL": "https://sns.us-east-2.amazonaws.com/x.pem"
    })
}

/// An event of EventBridge (<https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>).
pub fn bus(id: &str, source: &str, detail: &Value) -> Value {
    json!({
        "version": "0",
        "id": id,
        "detail-type": if source == "aws.s3" { "Object Created" } else { "parcel.sent" },
        "source": source,
        "account": "123456789012",
        "time": "2026-11-27T05:00:00Z",
        "region": "us-east-2",
        "resources": [],
        "detail": detail
    })
}

/// What S3 says to EventBridge of a new object (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html>).
pub fn object_created(key: &str, sequencer: &str) -> Value {
    json!({
        "version": "0",
        "bucket": { "name": "lake" },
        "object": { "key": key, "size": 7, "etag": "0cc1", "version-id": "v-1", "sequencer": sequencer },
        "request-id": "C3D13FE58DE4C810",
        "requester": "123456789012",
        "source-ip-address": "192.0.2.7",
        "reason": "PutObject"
    })
}

/// A notification of S3 with these records (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>).
pub fn s3(records: &[Value]) -> Value {
    json!({ "Records": records })
}

/// A record of it, of a new object.
pub fn s3_record(key: &str, sequencer: &str) -> Value {
    json!({
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-2",
        "eventTime": "2026-11-27T05:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": { "principalId": "EXAMPLE" },
        "requestParameters": { "sourceIPAddress": "192.0.2.7" },
        "responseElements": { "x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "x" },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "new",
            "bucket": { "name": "lake", "ownerIdentity": { "principalId": "EXAMPLE" }, "arn": "arn:aws:s3:::lake" },
            "object": { "key": key, "size": 7, "eTag": "0cc1", "sequencer": sequencer }
        }
    })
}

/// What S3 sends when a notification is set up.
pub fn s3_test() -> Value {
    json!({
        "Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2026-11-27T05:00:00.000Z", "Bucket": "lake",
        "RequestId": "C3D13FE58DE4C810", "HostId": "x"
    })
}

/// A pointer of the extended client of SQS or SNS.
pub fn pointer(bucket: &str, key: &str) -> Value {
    json!(["software.amazon.payloadoffloading.PayloadS3Pointer", { "s3BucketName": bucket, "s3Key": key }])
}
