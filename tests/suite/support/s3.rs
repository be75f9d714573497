//! A local S3-compatible server in the test process, on a temporary folder.

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(180);
/// Short, because tests wait for it.
const INITIAL_BACKOFF: Duration = Duration::from_millis(1);

/// The error that every request gets while it is set.
type Failure = Arc<Mutex<Option<(StatusCode, &'static str)>>>;

/// The server, which runs as long as the test's runtime, and a client of it.
pub struct LocalS3 {
    pub endpoint: String,
    pub client: Client,
    failure: Failure,
    _folder: TempDir,
}

impl LocalS3 {
    pub async fn with_bucket(bucket: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for objects");
        let mut service =
            S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("a file system of objects"));
        service.set_auth(SimpleAuth::from_single("tests", "tests"));
        let failure = Failure::default();
        let endpoint = serve(service.build(), failure.clone()).await;
        let client = client(endpoint.clone());
        client.create_bucket().bucket(bucket).send().await.expect("a bucket");
        Self { endpoint, client, failure, _folder: folder }
    }

    /// From now on every request fails like this.
    pub fn fail(&self, status: u16, code: &'static str) {
        let status = StatusCode::from_u16(status).expect("an HTTP status");
        *self.failure.lock().unwrap() = Some((status, code));
    }

    /// From now on requests are answered normally.
    pub fn recover(&self) {
        *self.failure.lock().unwrap() = None;
    }

    /// The keys of all objects in the bucket.
    pub async fn objects(&self, bucket: &str) -> Vec<String> {
        let listed = self.client.list_objects_v2().bucket(bucket).send().await.expect("a list");
        listed.contents().iter().map(|object| object.key().expect("a key").to_owned()).collect()
    }
}

async fn serve(service: S3Service, failure: Failure) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port for S3");
    let endpoint = format!("http://{}", listener.local_addr().expect("the server's address"));
    let answer = move |request: Request| answer(service.clone(), failure.clone(), request);
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    endpoint
}

async fn answer(service: S3Service, failure: Failure, request: Request) -> Response {
    let failure = *failure.lock().unwrap();
    if let Some((status, code)) = failure {
        // Read the request first. An answer in the middle of a request looks like a broken connection.
        let _ = request.into_body().collect().await;
        return (status, format!("<Error><Code>{code}</Code><Message>injected</Message></Error>"))
            .into_response();
    }
    match service.call(request.map(s3s::Body::http_body_unsync)).await {
        Ok(response) => response.map(Body::new),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")).into_response(),
    }
}

fn client(endpoint: String) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("tests", "tests", None, None, "tests"))
        .force_path_style(true)
        .http_client(super::client::plain_http())
        .retry_config(RetryConfig::standard().with_initial_backoff(INITIAL_BACKOFF))
        .retry_partition(RetryPartition::new(Uuid::new_v4().to_string()))
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(TIMEOUT).build());
    Client::from_conf(config.build())
}
