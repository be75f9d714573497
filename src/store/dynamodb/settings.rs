//! Settings of the table that are missed only when it is too late: a restored table has none of them.

use std::error::Error;

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        describe_continuous_backups::DescribeContinuousBackupsOutput, describe_table::DescribeTableOutput,
        describe_time_to_live::DescribeTimeToLiveOutput,
    },
    types::{PointInTimeRecoveryStatus, StreamViewType, TimeToLiveStatus},
};

use crate::store::{StoreError, StoreErrorKind};

/// What a store answers that does not know the operation: an emulator, which has no such setting.
const UNKNOWN_OPERATION: &str = "UnknownOperationException";

/// Those that are off, in words for operators.
pub(super) async fn off(client: &Client, table: &str) -> Vec<&'static str> {
    let (stream, time_to_live, recovery) = tokio::join!(
        client.describe_table().table_name(table).send(),
        client.describe_time_to_live().table_name(table).send(),
        client.describe_continuous_backups().table_name(table).send(),
    );
    let has_stream = |described: DescribeTableOutput| {
        let stream = described.table.and_then(|table| table.stream_specification);
        stream.is_some_and(|stream| {
            stream.stream_enabled && stream.stream_view_type == Some(StreamViewType::NewAndOldImages)
        })
    };
    let expires = |described: DescribeTimeToLiveOutput| {
        described.time_to_live_description.is_some_and(|ttl| {
            let is_on = matches!(
                ttl.time_to_live_status,
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
            );
            is_on && ttl.attribute_name.as_deref() == Some("expires_at")
        })
    };
    let is_recoverable = |described: DescribeContinuousBackupsOutput| {
        let backups = described.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        recovery.and_then(|recovery| recovery.point_in_time_recovery_status)
            == Some(PointInTimeRecoveryStatus::Enabled)
    };
    let off = [
        (
            is_on(stream, has_stream),
            "its stream of new and old images: dead workers are found by the daily sweep alone",
        ),
        (is_on(time_to_live, expires), "time to live on expires_at: records are kept for ever"),
        (is_on(recovery, is_recoverable), "point-in-time recovery: what is deleted by mistake is lost"),
    ];
    off.into_iter().filter(|(is_on, _)| !is_on).map(|(_, setting)| setting).collect()
}

/// Whether it is on. If that cannot be read now, the next look will show it. If this function may not read it, none will.
fn is_on<T, E>(answer: std::result::Result<T, SdkError<E>>, judge: impl FnOnce(T) -> bool) -> bool
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let error = match answer {
        Ok(described) => return judge(described),
        Err(error) if error.code() == Some(UNKNOWN_OPERATION) => return true,
        Err(error) => StoreError::from(error),
    };
    tracing::warn!(cause = error.cause(), "a setting of the table cannot be read");
    error.kind() != StoreErrorKind::Refused
}
