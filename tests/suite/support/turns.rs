//! Whose turn it is. A test that loads the machine for a minute runs alone among those on DynamoDB Local, which would run into the
//! time-outs of their functions.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::const_new(());

/// The turn of a test on DynamoDB Local, with others.
pub async fn together() -> RwLockReadGuard<'static, ()> {
    TURNS.read().await
}

/// The turn of a test that loads the machine.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().await
}
