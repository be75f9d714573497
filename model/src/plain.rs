//! The world of operations that are executed at once: an environment and its states.

use std::error::Error;

use crate::{
    actions::{self, Action, Violation},
    config::Config,
    explore::{Space, Successor},
    protocol::{Protocol, combination},
    rest::Rest,
    world::World,
};

/// One environment, and what is known of its states.
pub struct Plain {
    config: &'static Config,
    protocol: Protocol,
    rest: Rest,
}

impl Plain {
    /// # Errors
    /// Never: see [`Protocol::new`].
    pub fn new(config: &'static Config) -> Result<Self, Box<dyn Error>> {
        Ok(Self { config, protocol: Protocol::new(config)?, rest: Rest::default() })
    }
}

impl Space for Plain {
    type State = World;
    type Action = Action;
    type Violation = Violation;

    const WORLD: &'static str = "plain";

    fn name(&self) -> &'static str {
        self.config.name
    }

    fn start(&self) -> World {
        World::START
    }

    fn successors(&mut self, world: &World, next: &mut Vec<Successor<Self>>) {
        actions::successors(self.config, &mut self.protocol, world, next);
    }

    fn at_rest(&mut self, world: &World) -> Option<Violation> {
        self.rest.check(self.config, &mut self.protocol, world)
    }

    fn rest_story(&mut self, world: &World, violation: Violation) -> Vec<String> {
        self.rest.story(self.config, &mut self.protocol, world, violation).unwrap_or_default()
    }

    fn tell(&self, action: Action, after: &World) -> String {
        tell(&self.protocol, action, after)
    }

    fn combinations(&self) -> Vec<String> {
        self.protocol.records().iter().map(combination).collect()
    }
}

/// One line of a story: what happens, and the record after it.
pub fn tell(protocol: &Protocol, action: Action, after: &World) -> String {
    let record = after.record.map_or("no record".to_owned(), |version| {
        let owner = char::from(b'A' + protocol.facts(version.id).attempt);
        format!("{} of {owner}", combination(protocol.record(version.id)))
    });
    format!("{:>3}  {action:<60} {record}", after.now)
}
