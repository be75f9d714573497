use std::time::Duration;

use futures_util::future::BoxFuture;

use super::*;
use crate::{
    key::{IdempotencyKey, OperationName},
    store::{Stop, TenantRule, TenantRules, memory::MemoryStore},
    time::Timestamp,
    time_budget::COUNT_TIME,
    world::ManualWorld,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const MINUTE: Duration = Duration::from_secs(60);

fn key() -> RecordKey {
    let (tenant, operation) = (Tenant::parse("acme").unwrap(), OperationName::parse("pay").unwrap());
    RecordKey::new(tenant, operation, IdempotencyKey::parse("k").unwrap())
}

/// A world whose randomness can be repeated.
#[derive(Clone, Debug)]
struct Seeded(ManualWorld, Arc<Mutex<fastrand::Rng>>);

impl World for Seeded {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn running(&self) -> Duration {
        self.0.running()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }

    fn nonce(&self) -> [u8; 16] {
        self.1.lock().unwrap().u128(..).to_le_bytes()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

/// Processes that share a table, and a tenant's requests to them.
struct Fleet {
    world: Seeded,
    processes: Vec<Bounds>,
    random: fastrand::Rng,
}

impl Fleet {
    fn new(processes: usize, rate: Rate) -> Self {
        let store = MemoryStore::new();
        let process = || Bounds::of(store.clone()).new_keys(rate);
        Self {
            world: Seeded(ManualWorld::at(START), Arc::new(Mutex::new(fastrand::Rng::with_seed(11)))),
            processes: (0..processes).map(|_| process()).collect(),
            random: fastrand::Rng::with_seed(7),
        }
    }

    /// A new key comes to one of the processes, after a wait of this mean. Returns whether it is admitted.
    async fn request(&mut self, mean: Duration) -> bool {
        // As independent clients send them.
        self.world.0.advance(mean.mul_f64(-(1.0 - self.random.f64()).ln()));
        let process = &self.processes[self.random.usize(..self.processes.len())];
        let is_admitted = process.standing(&key(), &self.world) == Standing::Within;
        if is_admitted {
            process.count(&key(), 0, COUNT_TIME, &self.world).await;
        }
        is_admitted
    }
}

#[tokio::test]
async fn honest_traffic_below_four_fifths_of_its_bound_is_never_refused() {
    for (rate, every) in [(Rate::per_minute(100), MINUTE / 100), (Rate::per_second(100), MINUTE / 6_000)] {
        for processes in [1, 8, 100] {
            let mut fleet = Fleet::new(processes, rate);
            for number in 0..100_000 {
                assert!(
                    fleet.request(every.mul_f64(1.25)).await,
                    "request {number} of {processes} processes"
                );
            }
        }
    }
}

/// How many are admitted in these minutes of a flood of ten times the bound, besides the burst.
async fn admitted(fleet: &mut Fleet, every: Duration, minutes: u32) -> u32 {
    let mut admitted = 0;
    while fleet.world.now() < START.plus(minutes * MINUTE) {
        admitted += u32::from(fleet.request(every / 10).await);
    }
    admitted
}

#[tokio::test]
async fn a_flood_gets_its_rate_whatever_the_number_of_processes() {
    for processes in [1, 8, 100] {
        let (every, burst) = (MINUTE / 600, 1_200);
        let rate = Rate::per_second(10).burst(burst);
        let mut fleet = Fleet::new(processes, rate);
        let admitted = admitted(&mut fleet, every, 60).await;
        let (allowed, admitted) = (f64::from(60 * 600 + u32::try_from(burst).unwrap()), f64::from(admitted));
        let error = (admitted - allowed) / allowed;
        println!(
            "{processes} processes: {admitted} of {allowed} admitted, an error of {:.2} %",
            100.0 * error
        );
        // What each process admits before its first count.
        let unseen = f64::from(u32::try_from(processes).unwrap()) * 10.0 / allowed;
        assert!(error.abs() < 6.0 / allowed.sqrt() + unseen, "{processes} processes: {error}");
    }
}

/// Has this process meet so many others that it forgets all tenants.
fn forget(process: &Bounds, world: &dyn World) {
    let of = |number: usize| {
        let (tenant, key) = (Tenant::parse(&format!("t-{number}")).unwrap(), key());
        RecordKey::new(tenant, key.operation().clone(), key.idempotency_key().clone())
    };
    for number in 0..=known::MAX_TALLIES {
        process.shared.known().count(&of(number), &process.limits, world);
    }
}

#[tokio::test]
async fn a_process_that_forgets_tenants_admits_a_few_more_at_most() {
    let (every, burst, hour, forgets) = (MINUTE / 600, 1_200, 60, 20);
    let mut fleet = Fleet::new(1, Rate::per_second(10).burst(burst));
    let mut all = 0;
    for time in 1..=forgets {
        all += admitted(&mut fleet, every, time * hour / forgets).await;
        assert!(matches!(fleet.processes[0].standing(&key(), &fleet.world), Standing::Over(_)));
        forget(&fleet.processes[0], &fleet.world);
        assert_eq!(fleet.processes[0].standing(&key(), &fleet.world), Standing::Within);
    }
    let allowed = f64::from(hour * 600 + u32::try_from(burst).unwrap());
    let error = (f64::from(all) - allowed) / allowed;
    // What it admits before it counts the next one.
    let unseen = f64::from(forgets) * 10.0 / allowed;
    assert!(error.abs() < 6.0 / allowed.sqrt() + unseen, "{all} of {allowed}: {error}");
}

#[tokio::test]
async fn a_tenant_that_was_away_has_its_burst_twice_at_most() {
    let mut fleet = Fleet::new(1, Rate::per_minute(10).burst(100));
    assert!(fleet.request(Duration::ZERO).await);
    fleet.world.0.advance(1_000 * MINUTE);
    let mut admitted = 0;
    while fleet.request(Duration::ZERO).await {
        admitted += 1;
    }
    assert!((100..=201).contains(&admitted), "{admitted}");
}

// T86
#[tokio::test]
async fn one_tenant_over_its_bound_leaves_the_others_as_they_were() {
    let store = MemoryStore::new();
    let world = ManualWorld::at(START);
    let bounds = Bounds::of(store).new_keys(Rate::per_minute(1).burst(1));
    for _ in 0..3 {
        bounds.count(&key(), 0, COUNT_TIME, &world).await;
    }
    let other = RecordKey::new(
        Tenant::parse("other").unwrap(),
        key().operation().clone(),
        key().idempotency_key().clone(),
    );
    assert!(matches!(bounds.standing(&key(), &world), Standing::Over(_)));
    assert_eq!(bounds.standing(&other, &world), Standing::Within);
    world.advance(3 * MINUTE);
    assert_eq!(bounds.standing(&key(), &world), Standing::Within);
}

#[tokio::test]
async fn another_limit_of_operators_counts_at_once_and_from_nothing() {
    let (store, world) = (MemoryStore::new(), ManualWorld::at(START));
    let bounds = Bounds::of(store.clone()).new_keys(Rate::per_minute(1).burst(1));
    for _ in 0..100 {
        bounds.count(&key(), 0, COUNT_TIME, &world).await;
    }
    bounds.refresh(&world).await.unwrap();
    assert!(matches!(bounds.standing(&key(), &world), Standing::Over(_)));
    let limits = Limits { new_keys: Some(Rate::per_minute(1).burst(5)), ..Limits::default() };
    let rule = TenantRule { limits: [("pay".to_owned(), limits)].into(), ..TenantRule::default() };
    set(&store, rule).await;
    world.advance(RULES_FOR);
    bounds.refresh(&world).await.unwrap();
    for _ in 0..5 {
        assert_eq!(bounds.standing(&key(), &world), Standing::Within);
        bounds.count(&key(), 0, COUNT_TIME, &world).await;
    }
    bounds.count(&key(), 0, COUNT_TIME, &world).await;
    assert!(matches!(bounds.standing(&key(), &world), Standing::Over(_)));
}

async fn set(store: &MemoryStore, rule: TenantRule) {
    let seen = store.rules().await.unwrap();
    let revision = seen.as_ref().map(|rules| rules.revision);
    let rules = seen.unwrap_or(TenantRules { revision: [0; 16].into(), tenants: [].into() });
    let rules = TenantRules { revision: [revision.map_or(1, |_| 2); 16].into(), ..rules };
    let line = crate::store::AuditLine::new(["op", "limit", "a test"], START, None, None);
    assert!(store.write_rules(revision, &rules.with(key().tenant(), rule), &line).await.unwrap());
}

#[tokio::test]
async fn a_stop_is_known_once_the_rules_are_read_again() {
    let (store, world) = (MemoryStore::new(), ManualWorld::at(START));
    let bounds = Bounds::of(store.clone());
    assert!(!bounds.are_fresh(&world), "they were never read");
    bounds.refresh(&world).await.unwrap();
    set(&store, TenantRule { stop: Some(Stop::New), ..TenantRule::default() }).await;
    bounds.refresh(&world).await.unwrap();
    assert_eq!(bounds.standing(&key(), &world), Standing::Within, "they are fresh");
    world.advance(RULES_FOR);
    assert!(!bounds.are_fresh(&world));
    bounds.refresh(&world).await.unwrap();
    assert_eq!(bounds.standing(&key(), &world), Standing::Stopped);
    set(&store, TenantRule { stop: Some(Stop::NewAndWork), ..TenantRule::default() }).await;
    // A process that was frozen: its monotonic clock stood still.
    world.set(world.now().plus(RULES_FOR));
    assert!(!bounds.are_fresh(&world));
    bounds.refresh(&world).await.unwrap();
    assert_eq!(bounds.standing(&key(), &world), Standing::WorkStopped);
    set(&store, TenantRule::default()).await;
    world.advance(RULES_FOR);
    bounds.refresh(&world).await.unwrap();
    assert_eq!(bounds.standing(&key(), &world), Standing::Within);
    assert!(store.rules().await.unwrap().unwrap().tenants.is_empty());
}

/// A process that is frozen while it reads: its monotonic clock stands still.
#[derive(Clone, Debug)]
struct Freezes(ManualWorld, Arc<Mutex<u32>>);

impl World for Freezes {
    fn now(&self) -> Timestamp {
        let mut asked = self.1.lock().unwrap();
        *asked += 1;
        // Before it reads, it looks until when the rules may be used.
        if *asked == 3 {
            self.0.set(self.0.now().plus(2 * RULES_FOR));
        }
        self.0.now()
    }

    fn running(&self) -> Duration {
        self.0.running()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }

    fn nonce(&self) -> [u8; 16] {
        self.0.nonce()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

#[tokio::test]
async fn rules_that_a_frozen_process_has_read_are_too_old() {
    let (bounds, world) = (Bounds::of(MemoryStore::new()), Freezes(ManualWorld::at(START), Arc::default()));
    let unread = bounds.refresh(&world).await.expect_err("they are too old");
    assert!(unread.is_cut_short(), "{unread:?}");
    bounds.refresh(&world).await.expect("it is not frozen again");
}

#[test]
fn a_count_under_former_rules_says_nothing_of_these() {
    let world = ManualWorld::at(START);
    let term = || (&world as &dyn World).term(RULES_FOR);
    let limits = Limits { new_keys: Some(Rate::per_minute(1).burst(1)), ..Limits::default() };
    let mut known = Known::default();
    let counted = known.count(&key(), &limits, &world).expect("each is counted");
    let over = bucket::risen(bucket::full(START), bucket::cost(Rate::per_minute(1), 5));
    let rules = |revision| Some(TenantRules { revision: [revision; 16].into(), tenants: [].into() });
    known.learn(rules(1), term(), term());
    let again = known.count(&key(), &limits, &world).expect("each is counted");
    known.see(&key(), counted, (Some(over), None), START);
    assert_eq!(known.standing(&key(), START), Standing::Within);
    known.see(&key(), again, (Some(over), None), START);
    assert!(matches!(known.standing(&key(), START), Standing::Over(_)));
}

#[test]
fn limits_that_bound_nothing_or_everything_are_refused() {
    let rate = |rate| Limits { new_keys: Some(rate), ..Limits::default() }.check();
    assert!(rate(Rate::per_second(1).burst(1)).is_ok());
    for wrong in
        [Rate::per_second(0), Rate::per_minute(0), Rate::per_second(5).burst(0), Rate::per_second(u64::MAX)]
    {
        assert!(rate(wrong).is_err(), "{wrong:?}");
    }
    let wrong = [
        "",
        "10",
        "10/h",
        "/s",
        "-1/s",
        "10/s+",
        "10/s+x",
        "1.5/s",
        "0/s",
        "1/s+0",
        "99999999999999999999/s",
    ];
    for wrong in wrong {
        assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
    }
    for rate in [Rate::per_second(10), Rate::per_minute(100).burst(50)] {
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }
    let open = |open_records| Limits { open_records: Some(open_records), ..Limits::default() }.check();
    assert_eq!([0, 1, 100_000, 100_001].map(|number| open(number).is_ok()), [false, true, true, false]);
}
