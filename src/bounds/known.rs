//! What a process knows of tenants: the rules, and who is over a bound until when. Pure, but for the lock around it.

use std::{collections::HashMap, mem};

use protocol::{
    bucket::{self, Level},
    limits::Limits,
};

use crate::{
    key::{OperationName, RecordKey, Tenant},
    record::Standing,
    store::{StoreErrorKind, TenantRule, TenantRules},
    time::Timestamp,
    time_budget::OPEN_LOOK,
    world::{Term, World},
};

/// How many tenants and operations a process remembers.
pub(super) const MAX_TALLIES: usize = 10_000;

/// What a process knows.
#[derive(Default)]
pub(super) struct Known {
    rules: Option<TenantRules>,
    /// Until when the rules are fresh; `None` if they were never read.
    fresh_until: Option<Term>,
    /// Until when they may be used, if they cannot be read.
    usable_until: Option<Term>,
    /// How the last read failed, and when the next may be tried.
    failed: Option<(StoreErrorKind, Term)>,
    tallies: HashMap<(Tenant, OperationName), Tally>,
    /// How often other rules were learned. What was counted under former ones says nothing of these.
    learned: u64,
}

/// What a process knows of one tenant and operation.
struct Tally {
    /// How many new keys come before the next one that is counted.
    skip: u64,
    /// Whether the next one is counted besides, for itself: it was over a bound, and all processes begin again at once.
    counts_next: bool,
    over_until: Timestamp,
    /// When the open records were last looked at.
    looked_at: Timestamp,
}

/// A new key that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// For how many keys.
    pub(super) keys: u64,
    /// Whether the open records are looked at, too.
    pub(super) looks: bool,
    /// By which rules.
    learned: u64,
}

impl Known {
    pub(super) fn rule(&self, tenant: &Tenant) -> Option<&TenantRule> {
        self.rules.as_ref()?.of(tenant)
    }

    pub(super) fn standing(&self, key: &RecordKey, now: Timestamp) -> Standing {
        match self.rule(key.tenant()).map_or(Standing::Within, TenantRule::standing) {
            Standing::Within => {}
            stopped => return stopped,
        }
        let tally = self.tallies.get(&(key.tenant().clone(), key.operation().clone()));
        match tally.map(|tally| tally.over_until.since(now)).filter(|over| !over.is_zero()) {
            Some(over) => Standing::Over(over),
            None => Standing::Within,
        }
    }

    pub(super) fn are_fresh(&self, world: &dyn World) -> bool {
        is_ahead(self.fresh_until, world) || self.failed(world).is_some() && self.are_usable(world)
    }

    /// Whether they may be used although they could not be read.
    pub(super) fn are_usable(&self, world: &dyn World) -> bool {
        is_ahead(self.usable_until, world)
    }

    /// Until when an execution may begin by these rules.
    pub(super) fn usable_until(&self) -> Option<Term> {
        self.usable_until
    }

    /// How the last read failed, if it is too soon for another.
    pub(super) fn failed(&self, world: &dyn World) -> Option<StoreErrorKind> {
        self.failed.filter(|(_, again_at)| is_ahead(Some(*again_at), world)).map(|(kind, _)| kind)
    }

    pub(super) fn fail(&mut self, kind: StoreErrorKind, again_at: Term) {
        self.failed = Some((kind, again_at));
    }

    /// Takes the rules that were read.
    pub(super) fn learn(&mut self, rules: Option<TenantRules>, fresh_until: Term, usable_until: Term) {
        let before = self.rules.take();
        let of = |rules: &Option<TenantRules>, tenant: &Tenant| {
            rules.as_ref().and_then(|rules| rules.of(tenant)).cloned()
        };
        self.learned += u64::from(
            before.as_ref().map(|rules| rules.revision) != rules.as_ref().map(|rules| rules.revision),
        );
        // Who was over a bound may not be over the new one.
        self.tallies.retain(|(tenant, _), _| of(&before, tenant) == of(&rules, tenant));
        self.rules = rules;
        self.keep(fresh_until, usable_until);
    }

    /// Keeps the rules until then.
    pub(super) fn keep(&mut self, fresh_until: Term, usable_until: Term) {
        (self.fresh_until, self.usable_until, self.failed) = (Some(fresh_until), Some(usable_until), None);
    }

    /// Whether, and for how many, this new key is counted. Each process begins at a random place, and counts each nth from there: so the mean is
    /// exact however few keys a process has, and the error does not grow with their number.
    pub(super) fn count(&mut self, key: &RecordKey, limits: &Limits, world: &dyn World) -> Option<Counted> {
        if self.tallies.len() >= MAX_TALLIES {
            // Each of these begins again at a random place.
            self.tallies.clear();
        }
        let (now, weight) = (world.now(), bucket::weight(limits));
        let random = || u64::from_le_bytes(world.nonce()[..8].try_into().unwrap_or_default()) % weight;
        let of = (key.tenant().clone(), key.operation().clone());
        let tally = self.tallies.entry(of).or_insert_with(|| Tally {
            skip: random(),
            counts_next: false,
            over_until: Timestamp::default(),
            looked_at: Timestamp::default(),
        });
        let keys = if mem::take(&mut tally.counts_next) {
            1
        } else if tally.skip > 0 {
            tally.skip -= 1;
            0
        } else {
            tally.skip = weight - 1;
            weight
        };
        let looks = limits.open_records.is_some() && now >= tally.looked_at.plus(OPEN_LOOK);
        if looks {
            tally.looked_at = now;
        }
        (keys > 0 || looks).then_some(Counted { keys, looks, learned: self.learned })
    }

    /// Takes what a count has shown.
    pub(super) fn see(
        &mut self,
        key: &RecordKey,
        counted: Counted,
        (level, open): (Option<Level>, Option<bool>),
        now: Timestamp,
    ) {
        if counted.learned != self.learned {
            return;
        }
        let over = level.and_then(|level| bucket::over(level, now)).map(|over| now.plus(over));
        let open = open.filter(|is_over| *is_over).map(|_| now.plus(OPEN_LOOK));
        let Some(until) = over.max(open) else { return };
        if let Some(tally) = self.tallies.get_mut(&(key.tenant().clone(), key.operation().clone())) {
            tally.over_until = tally.over_until.max(until);
            tally.counts_next = true;
        }
    }
}

fn is_ahead(term: Option<Term>, world: &dyn World) -> bool {
    term.is_some_and(|term| !world.left(term).is_zero())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::limits::Rate;

    use super::*;
    use crate::{key::IdempotencyKey, world::ManualWorld};

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// By the rules that a process begins with.
    const COUNTED: Counted = Counted { keys: 1, looks: false, learned: 0 };

    fn of(tenant: &str) -> RecordKey {
        let (tenant, operation) = (Tenant::parse(tenant).unwrap(), OperationName::parse("pay").unwrap());
        RecordKey::new(tenant, operation, IdempotencyKey::parse("k").unwrap())
    }

    /// Of which each tenth key is counted.
    fn tenths() -> Limits {
        Limits { new_keys: Some(Rate::per_second(10)), ..Limits::default() }
    }

    /// For how many keys each of the next ones counts.
    fn counts(known: &mut Known, limits: &Limits, world: &ManualWorld, keys: usize) -> Vec<u64> {
        let count = |_| known.count(&of("acme"), limits, world).map_or(0, |counted| counted.keys);
        (0..keys).map(count).collect()
    }

    #[test]
    fn each_tenth_key_counts_for_ten_from_a_random_place() {
        let mut begun = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let (mut known, world) = (Known::default(), ManualWorld::at(START));
            let counted = counts(&mut known, &tenths(), &world, 30);
            let first = counted.iter().position(|keys| *keys == 10).expect("one of them counts");
            let expected = (0..30).map(|at| if at % 10 == first { 10 } else { 0 });
            assert_eq!(counted, Vec::from_iter(expected));
            begun.insert(first);
        }
        assert_eq!(begun.len(), 10, "all processes together count as many as there are");
    }

    #[test]
    fn the_first_key_after_a_bound_counts_for_itself() {
        for seen in [None, Some(Level(0)), Some(Level(START.as_millis() * 1_000))] {
            let (mut known, world) = (Known::default(), ManualWorld::at(START));
            counts(&mut known, &tenths(), &world, 20);
            known.see(&of("acme"), COUNTED, (seen, Some(false)), START);
            assert_eq!(known.standing(&of("acme"), START), Standing::Within);
            assert!(!counts(&mut known, &tenths(), &world, 10).contains(&1), "it is not over");
        }
        for (level, open) in [(Some(Level((START.as_millis() + 7_000) * 1_000)), None), (None, Some(true))] {
            let (mut known, world) = (Known::default(), ManualWorld::at(START));
            counts(&mut known, &tenths(), &world, 20);
            known.see(&of("acme"), COUNTED, (level, open), START);
            assert!(matches!(known.standing(&of("acme"), START), Standing::Over(_)));
            let counted = counts(&mut known, &tenths(), &world, 11);
            assert_eq!((counted[0], counted.iter().sum()), (1, 11), "{counted:?}");
        }
    }

    #[test]
    fn a_tenant_is_over_until_its_longest_bound_ends() {
        let (mut known, world) = (Known::default(), ManualWorld::at(START));
        let (key, after) = (of("acme"), |seconds| START.plus(Duration::from_secs(seconds)));
        counts(&mut known, &tenths(), &world, 1);
        let level = |seconds| Some(Level(after(seconds).as_millis() * 1_000));
        known.see(&key, COUNTED, (level(100), Some(true)), START);
        // What another count has shown before.
        known.see(&key, COUNTED, (level(50), None), START);
        assert_eq!(known.standing(&key, after(99)), Standing::Over(Duration::from_secs(1)));
        assert_eq!(known.standing(&key, after(100)), Standing::Within);
        assert_eq!(known.standing(&of("other"), START), Standing::Within);
        known.see(&key, COUNTED, (level(110), Some(true)), after(100));
        assert_eq!(known.standing(&key, after(100)), Standing::Over(OPEN_LOOK));
    }

    #[test]
    fn the_open_records_are_looked_at_each_half_minute() {
        let (mut known, world) = (Known::default(), ManualWorld::at(START));
        let limits = Limits { open_records: Some(5), ..tenths() };
        let mut looks = |limits: &Limits| {
            (0..20).filter(|_| known.count(&of("acme"), limits, &world).is_some_and(|of| of.looks)).count()
        };
        assert_eq!((looks(&tenths()), looks(&limits)), (0, 1));
        world.advance(OPEN_LOOK - Duration::from_millis(1));
        assert_eq!(looks(&limits), 0);
        world.advance(Duration::from_millis(1));
        assert_eq!(looks(&limits), 1);
    }

    #[test]
    fn a_process_remembers_so_many_tenants_and_no_more() {
        let (mut known, world) = (Known::default(), ManualWorld::at(START));
        for number in 0..3 * MAX_TALLIES {
            known.count(&of(&format!("t-{number}")), &tenths(), &world);
            assert!(known.tallies.len() <= MAX_TALLIES, "{number}");
        }
        assert!(known.tallies.len() > MAX_TALLIES / 2);
    }
}
