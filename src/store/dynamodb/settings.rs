//! Settings of the table whose absence nobody would notice until it is too late: a restored table has none of them.

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{PointInTimeRecoveryStatus, StreamViewType, TimeToLiveStatus},
};

use super::Result;
use crate::store::StoreError;

/// What a store answers that does not know the operation: an emulator, which has no such setting.
const UNKNOWN_OPERATION: &str = "UnknownOperationException";

/// Those that are off, in words for operators.
pub(super) async fn off(client: &Client, table: &str) -> Result<Vec<&'static str>> {
    let (stream, time_to_live, recovery) = futures_util::try_join!(
        async { known(client.describe_table().table_name(table).send().await) },
        async { known(client.describe_time_to_live().table_name(table).send().await) },
        async { known(client.describe_continuous_backups().table_name(table).send().await) },
    )?;
    let has_stream = stream.is_none_or(|described| {
        let stream = described.table.and_then(|table| table.stream_specification);
        stream.is_some_and(|stream| {
            stream.stream_enabled && stream.stream_view_type == Some(StreamViewType::NewAndOldImages)
        })
    });
    let expires = time_to_live.is_none_or(|described| {
        described.time_to_live_description.is_some_and(|ttl| {
            let is_on = matches!(
                ttl.time_to_live_status,
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
            );
            is_on && ttl.attribute_name.as_deref() == Some("expires_at")
        })
    });
    let is_recoverable = recovery.is_none_or(|described| {
        let backups = described.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        recovery.and_then(|recovery| recovery.point_in_time_recovery_status)
            == Some(PointInTimeRecoveryStatus::Enabled)
    });
    let off = [
        (has_stream, "its stream of new and old images: dead workers are found by the daily sweep alone"),
        (expires, "time to live on expires_at: records are kept for ever"),
        (is_recoverable, "point-in-time recovery: what is deleted by mistake is lost"),
    ];
    Ok(off.into_iter().filter(|(is_on, _)| !is_on).map(|(_, setting)| setting).collect())
}

/// The answer; `None` if the store does not know the operation.
fn known<T, E, R>(answer: std::result::Result<T, SdkError<E, R>>) -> Result<Option<T>>
where
    E: ProvideErrorMetadata,
    StoreError: From<SdkError<E, R>>,
{
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == Some(UNKNOWN_OPERATION) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
