//! What the tests are built on: real stores, clients whose network fails on demand, and meters at the wire. Only [`clock`], [`guarded`],
//! [`http`], [`messages`], [`mortal`], [`orders`], [`payments_api`], [`reports`], [`sample`] and [`seeded_world`] use the library's types.

pub mod bank;
pub mod books;
pub mod client;
pub mod clock;
pub mod closed_queue;
pub mod command;
pub mod counts;
pub mod dynamodb_local;
pub mod elasticmq;
pub mod embedded;
pub mod envelopes;
pub mod events;
pub mod faults;
pub mod function;
pub mod guarded;
pub mod http;
pub mod java;
pub mod lambda;
pub mod letters;
pub mod load;
pub mod local_cloud;
pub mod logs;
pub mod meddling;
pub mod messages;
pub mod meter;
pub mod mortal;
pub mod orders;
pub mod payments;
pub mod payments_api;
pub mod process;
pub mod proxy;
pub mod random;
pub mod reports;
pub mod returns;
pub mod s3;
pub mod sample;
pub mod seeded_world;
pub mod server;
pub mod sqs;
pub mod storm;
pub mod streams;
pub mod tables;
pub mod turns;
pub mod webhooks;

/// The attribute `#[apply(on_each_store)]` turns `async fn name(endpoint: &str)` into two tests: `name::on_embedded` and
/// `name::on_dynamodb_local`. Without Java, the second is left out with `--skip dynamodb_local`.
macro_rules! on_each_store {
    ($(#[$attribute:meta])* async fn $name:ident $($rest:tt)*) => {
        $(#[$attribute])*
        async fn $name $($rest)*

        mod $name {
            #[tokio::test]
            async fn on_embedded() {
                super::$name($crate::support::embedded::endpoint()).await;
            }

            $crate::support::test_on_dynamodb_local!($name, together);
        }
    };
}
pub(crate) use on_each_store;

/// The attribute `#[apply(alone_on_each_store)]`. It is the same for a test that loads the machine.
macro_rules! alone_on_each_store {
    ($(#[$attribute:meta])* async fn $name:ident $($rest:tt)*) => {
        $(#[$attribute])*
        async fn $name $($rest)*

        mod $name {
            #[tokio::test]
            async fn on_embedded() {
                let _turn = $crate::support::turns::alone().await;
                super::$name($crate::support::embedded::endpoint()).await;
            }

            $crate::support::test_on_dynamodb_local!($name, alone);
        }
    };
}
pub(crate) use alone_on_each_store;

/// The attribute `#[apply(on_dynamodb_local)]`. It is the same for what the embedded store cannot show.
macro_rules! on_dynamodb_local {
    ($(#[$attribute:meta])* async fn $name:ident $($rest:tt)*) => {
        $(#[$attribute])*
        async fn $name $($rest)*

        mod $name {
            $crate::support::test_on_dynamodb_local!($name, together);
        }
    };
}
pub(crate) use on_dynamodb_local;

/// The attribute `#[apply(alone_on_dynamodb_local)]`. It is the same for a test that loads the machine.
macro_rules! alone_on_dynamodb_local {
    ($(#[$attribute:meta])* async fn $name:ident $($rest:tt)*) => {
        $(#[$attribute])*
        async fn $name $($rest)*

        mod $name {
            $crate::support::test_on_dynamodb_local!($name, alone);
        }
    };
}
pub(crate) use alone_on_dynamodb_local;

macro_rules! test_on_dynamodb_local {
    ($name:ident, $turn:ident) => {
        #[tokio::test]
        #[cfg_attr(not(dynamodb_local), ignore = "DynamoDB Local needs Java 17 and Maven")]
        async fn on_dynamodb_local() {
            let _turn = $crate::support::turns::$turn().await;
            // Boxed here, because a test is a large future, and each move of it needs as much of the stack.
            let test = Box::pin(super::$name($crate::support::dynamodb_local::endpoint()));
            $crate::support::turns::ended(test).await;
        }
    };
}
pub(crate) use test_on_dynamodb_local;

/// The error of a question that is not answered.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
