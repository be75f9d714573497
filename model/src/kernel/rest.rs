//! Where every state ends if nothing else goes wrong, and what must be true there.

use std::collections::HashSet;

use protocol::record::Record;
use rustc_hash::FxBuildHasher;

use super::{
    action::Action,
    facts::combination,
    protocol::Protocol,
    setting::Setting,
    steps::{Steps, Successor},
    violation::Violation,
    world::{Kind, World},
};

/// How a world goes on.
pub trait Moves: Kind {
    /// How many steps it takes at most.
    const MAX_STEPS: usize = 120;

    /// The ways in which nothing else goes wrong, and what a story says of each.
    fn ways(_: &Setting) -> &'static [(bool, &'static str)] {
        &[(true, "")]
    }

    /// The names of a record's fields that decide, for a count of their combinations.
    fn combination(record: &Record) -> String {
        combination(record)
    }

    /// What a story tells besides the record.
    fn tell(_: &World<Self>) -> String {
        String::new()
    }

    /// Adds all that can happen next.
    fn successors(steps: &mut Steps<'_, Self>);

    /// What is over as soon as nothing else goes wrong.
    fn ends(_: &Setting, _: &mut Protocol, _: &mut World<Self>) {}

    /// The next step on this way, or nothing at rest.
    fn calm(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World<Self>,
        way: bool,
    ) -> Option<Successor<Self>>;

    /// What does not hold at rest.
    fn at_rest(
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World<Self>,
        way: bool,
    ) -> Option<Violation>;
}

/// The states that are known to end well, on each way.
pub struct Rest<K: Moves> {
    good: [HashSet<World<K>, FxBuildHasher>; 2],
}

/// Actions, each with the state after it.
pub type Way<K> = Vec<(Action, World<K>)>;

impl<K: Moves> Default for Rest<K> {
    fn default() -> Self {
        Self { good: [(); 2].map(|()| HashSet::default()) }
    }
}

impl<K: Moves> Rest<K> {
    /// The property that does not hold once this state has come to rest.
    pub fn check(
        &mut self,
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World<K>,
    ) -> Option<Violation> {
        let mut ways = K::ways(setting).iter();
        ways.find_map(|(way, _)| self.runs(setting, protocol, world, *way, &mut Vec::new()))
    }

    /// How this state comes to rest, if that is where a property falls.
    pub fn story(setting: &Setting, protocol: &mut Protocol, world: &World<K>) -> Option<(String, Way<K>)> {
        K::ways(setting).iter().find_map(|(way, name)| {
            let mut story = Vec::new();
            Self::default().runs(setting, protocol, world, *way, &mut story)?;
            Some((format!("     and from here on nothing else goes wrong{name}:"), story))
        })
    }

    fn runs(
        &mut self,
        setting: &Setting,
        protocol: &mut Protocol,
        world: &World<K>,
        way: bool,
        story: &mut Way<K>,
    ) -> Option<Violation> {
        let mut world = *world;
        // Its tenant is within its bounds for good.
        world.standing = 0;
        K::ends(setting, protocol, &mut world);
        let (mut world, mut visited, good) =
            (world.canonical(), Vec::new(), &mut self.good[usize::from(way)]);
        for _ in 0..K::MAX_STEPS {
            if good.contains(&world) {
                good.extend(visited);
                return None;
            }
            visited.push(world);
            let Some((action, next, violation)) = K::calm(setting, protocol, &world, way) else {
                let violation = K::at_rest(setting, protocol, &world, way);
                if violation.is_none() {
                    good.extend(visited);
                }
                return violation;
            };
            story.push((action, next));
            if violation.is_some() {
                return violation;
            }
            world = next;
        }
        Some(Violation::NoRest)
    }
}
