//! Where reports go. A published report is always whole: it is drafted elsewhere, and moved into place once its last line, the
//! summary, is written.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use lambda_idempotency::config::ConfigError;
use tempfile::NamedTempFile;

use crate::Failure;

const MALFORMED: ConfigError = ConfigError::Malformed("REPORTS", "a folder's path or s3://bucket/prefix");

/// Where reports go.
#[derive(Clone, Debug)]
pub enum Reports {
    /// Into a folder, which is created if it is missing.
    Folder(PathBuf),
    /// Into a bucket.
    S3 {
        /// A client of S3.
        client: aws_sdk_s3::Client,
        /// The bucket.
        bucket: String,
        /// The prefix of the objects' keys; a `/` follows, unless it is empty.
        prefix: String,
    },
}

impl Reports {
    /// Reads the variable `REPORTS`: a folder's path, or `s3://bucket/prefix`.
    ///
    /// # Errors
    /// If it is neither.
    pub async fn parse(text: &str) -> Result<Self, ConfigError> {
        match text.trim().split_once("://") {
            None if text.trim().is_empty() => Err(ConfigError::Missing("REPORTS")),
            None => Ok(Self::Folder(text.into())),
            Some(("s3", place)) => {
                let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
                if bucket.is_empty() {
                    return Err(MALFORMED);
                }
                let config = aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await;
                let client = aws_sdk_s3::Client::new(&config);
                Ok(Self::S3 {
                    client,
                    bucket: bucket.to_owned(),
                    prefix: prefix.trim_matches('/').to_owned(),
                })
            }
            Some(_) => Err(MALFORMED),
        }
    }

    /// An unpublished report. Dropping it deletes it.
    pub(crate) fn draft(&self) -> io::Result<Draft> {
        let file = match self {
            // In the same folder, so that a rename puts it in place.
            Self::Folder(folder) => {
                fs::create_dir_all(folder)?;
                NamedTempFile::with_prefix_in(".draft-", folder)?
            }
            Self::S3 { .. } => NamedTempFile::new()?,
        };
        Ok(Draft(BufWriter::new(file)))
    }

    /// Publishes the report in place of an earlier one, and returns where it is.
    pub(crate) async fn publish(&self, draft: Draft, name: &str) -> Result<String, Failure> {
        let file = draft.0.into_inner().map_err(|error| Failure::report(error.into_error()))?;
        match self {
            Self::Folder(folder) => in_folder(file, folder, name).map_err(Failure::report),
            Self::S3 { client, bucket, prefix } => {
                let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
                let body = aws_sdk_s3::primitives::ByteStream::from_path(file.path()).await;
                let put = client.put_object().bucket(bucket).key(&key).content_type("application/x-ndjson");
                put.body(body.map_err(Failure::report)?).send().await.map_err(Failure::report)?;
                Ok(format!("s3://{bucket}/{key}"))
            }
        }
    }
}

fn in_folder(file: NamedTempFile, folder: &Path, name: &str) -> io::Result<String> {
    file.as_file().sync_all()?;
    let path = folder.join(name);
    file.persist(&path)?;
    // The new name is durable only once its folder is on disk too.
    fs::File::open(folder)?.sync_all()?;
    Ok(path.display().to_string())
}

/// An unpublished report.
#[derive(Debug)]
pub(crate) struct Draft(BufWriter<NamedTempFile>);

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
