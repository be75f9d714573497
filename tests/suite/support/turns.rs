//! Whose turn it is. A test that loads the machine for a minute runs alone among those on DynamoDB Local, which would run into the
//! time-outs of their functions.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long a test may run in its turn. The longest needs a minute alone. One that never ends would keep all others from their turns, and
/// nobody would learn its name.
const LONGEST: Duration = Duration::from_secs(600);

static TURNS: RwLock<()> = RwLock::const_new(());

/// The turn of a test on DynamoDB Local, with others.
pub async fn together() -> RwLockReadGuard<'static, ()> {
    TURNS.read().await
}

/// The turn of a test that loads the machine.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write().await
}

/// The end of a test that has its turn. Fails if it does not come.
pub async fn ended<T>(test: impl Future<Output = T> + Unpin) -> T {
    tokio::time::timeout(LONGEST, test).await.expect("this test should have ended by now")
}
