//! The embedded DynamoDB, one for each row, because it gets slower as it fills. It has no stream: a stream would make the raw
//! calls slower, and the guard seem cheaper.

use std::thread;

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use dynoxide::Database;
use tokio::{net::TcpListener, runtime, sync::oneshot};

/// An embedded DynamoDB behind loopback HTTP, on a separate thread and runtime, until it is dropped.
pub struct Embedded {
    pub endpoint: String,
    _stop: oneshot::Sender<()>,
}

impl Embedded {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener that tokio can take over");
        let endpoint = format!("http://{}", listener.local_addr().expect("the listener's address"));
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let database = Database::memory().expect("a database in memory");
            let stopped = async { drop(stopped.await) };
            dynoxide::server::serve_with_shutdown(listener, database, stopped).await.expect("it serves");
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        thread::spawn(move || runtime.block_on(serve));
        Self { endpoint, _stop: stop }
    }
}

/// Creates a table with the keys of an idempotency table, in place of one of that name.
pub async fn create_table(client: &Client, name: &str) {
    // Usually there is no such table.
    drop(client.delete_table().table_name(name).send().await);
    let attribute = |name| {
        let attribute =
            AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        attribute.build().expect("a whole definition")
    };
    let key = |name, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a whole key")
    };
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(vec![attribute("pk"), attribute("sk")]))
        .set_key_schema(Some(vec![key("pk", KeyType::Hash), key("sk", KeyType::Range)]))
        .send()
        .await
        .expect("the table is created");
}
