//! What the tests are built on: real stores, clients whose network fails on demand, and meters at the wire.
//! Only [`clock`], [`guarded`], [`http`], [`payments_api`] and [`sample`] know the library's own types.

pub mod bank;
pub mod books;
pub mod client;
pub mod clock;
pub mod command;
pub mod counts;
pub mod dynamodb_local;
pub mod embedded;
pub mod faults;
pub mod function;
pub mod guarded;
pub mod http;
pub mod lambda;
pub mod local_cloud;
pub mod logs;
pub mod meddling;
pub mod meter;
pub mod payments;
pub mod payments_api;
pub mod process;
pub mod proxy;
pub mod random;
pub mod s3;
pub mod sample;
pub mod seeded_world;
pub mod tables;

/// Turns each `async fn name(endpoint: &str)` into two tests, one on each real store. The modules' names matter: without Java, the
/// second half is left out with `--skip dynamodb_local`.
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod on_embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::embedded::endpoint()).await;
            })+
        }
        mod on_dynamodb_local {
            $(#[tokio::test]
            #[cfg_attr(not(dynamodb_local), ignore = "DynamoDB Local needs Java 17 and Maven")]
            async fn $name() {
                super::$name($crate::support::dynamodb_local::endpoint()).await;
            })+
        }
    };
}
pub(crate) use on_each_store;

/// The error of a question that is not answered.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
