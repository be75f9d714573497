//! What was chosen for one guard.

use std::sync::Arc;

use http::Method;

use super::{Profile, TenantResolver};
use crate::{engine::Executor, operation::Operation, world::World};

/// What was chosen for one guard.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) executor: Executor,
    pub(super) profile: Profile,
    pub(super) methods: Vec<Method>,
    pub(super) status_path: String,
}

/// The guard of one operation. Cheap to clone.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) settings: Arc<Settings>,
    pub(super) tenant: Arc<dyn TenantResolver>,
}

impl Guard {
    pub(super) fn guards(&self, method: &Method) -> bool {
        self.settings.methods.contains(method)
    }

    pub(super) fn world(&self) -> &Arc<dyn World> {
        self.settings.executor.in_world()
    }

    pub(super) fn operation(&self) -> &Operation {
        self.settings.executor.operation()
    }
}
