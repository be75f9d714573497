//! Two polls at once: one was late, or somebody invoked the function by hand (T50).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_idempotency::{
    async_trait,
    engine::Report,
    queue::MemoryQueue,
    reconcile::{Finding, Polled, Question, Reconciler, Reconciliation},
    record::{Answer, State},
};
use macro_rules_attribute::apply;
use tokio::sync::Barrier;

use crate::support::{
    BoxError,
    guarded::{Guarded, operation, owned, replayed_text, request, written},
    on_each_store,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Fewer than a poll asks at once, so that no question of the one waits for a question of the other.
const OUTCOMES: usize = 6;

/// Where both polls meet at a question, and how often it was asked.
type Asked = (Arc<Barrier>, usize);

/// A provider that answers a question once it has been asked it by both polls.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<HashMap<String, Asked>>>);

impl Provider {
    /// Returns once both polls have asked.
    async fn asked_by_both(&self, question: &Question) {
        let both = {
            let mut asked = self.0.lock().unwrap();
            let two = || (Arc::new(Barrier::new(2)), 0);
            let asked = asked.entry(question.downstream_key("charge")).or_insert_with(two);
            asked.1 += 1;
            asked.0.clone()
        };
        both.wait().await;
    }

    /// How often each question was asked.
    fn asked(&self) -> Vec<usize> {
        self.0.lock().unwrap().values().map(|(_, asked)| *asked).collect()
    }
}

/// A poll of the provider, which says this.
struct Says(Provider, Option<&'static str>);

#[async_trait]
impl Reconciler for Says {
    async fn ask(&self, question: &Question) -> Result<Finding, BoxError> {
        self.0.asked_by_both(question).await;
        Ok(Finding::Executed(Answer::json(201, self.1.ok_or("away")?)))
    }
}

/// What two polls at once do with outcomes of as many tenants: what each of them says, and the dead letters.
async fn polled_at_once(
    guarded: &Guarded,
    provider: &Provider,
    says: [Option<&'static str>; 2],
) -> ([Polled; 2], MemoryQueue) {
    let dead_letters = MemoryQueue::new();
    let [first, second] = says.map(|says| {
        Reconciliation::new(guarded.store(), dead_letters.clone())
            .world(guarded.clock.clone())
            .backoff(MINUTE, MINUTE, 3)
            .operation(operation(), Says(provider.clone(), says))
    });
    let polled = tokio::join!(first.poll(MINUTE), second.poll(MINUTE));
    ([polled.0.expect("it polls"), polled.1.expect("it polls")], dead_letters)
}

// T50: each of them finds a charge. The provider sees a question twice, and nobody else sees that there were two.
#[apply(on_each_store)]
async fn of_two_polls_at_once_one_settles_each_outcome(endpoint: &str) {
    let (guarded, provider) = (Guarded::on(endpoint).await, Provider::default());
    let executor = guarded.executor();
    let mut requests = Vec::new();
    for _ in 0..OUTCOMES {
        let request = request();
        let ours = owned(executor.reserve(&request).await);
        written(executor.finish(ours, Report::perhaps("handler_failed")).await);
        requests.push(request);
    }
    let (polled, dead_letters) = polled_at_once(&guarded, &provider, [Some("first"), Some("second")]).await;
    assert_eq!(provider.asked(), [2; OUTCOMES]);
    let sum = |count: fn(&Polled) -> usize| polled.iter().map(count).sum::<usize>();
    assert_eq!((sum(|polled| polled.due), sum(|polled| polled.resolved)), (2 * OUTCOMES, OUTCOMES));
    assert_eq!((sum(|polled| polled.failed), sum(|polled| polled.escalated)), (0, 0));
    let mut won = BTreeMap::<_, usize>::new();
    for request in &requests {
        let answer = replayed_text(executor.reserve(request).await);
        assert_eq!(replayed_text(executor.reserve(request).await), answer);
        *won.entry(answer).or_default() += 1;
    }
    let settled = ["first", "second"].map(|poll| won.remove(poll).unwrap_or_default());
    assert_eq!((settled, won), (polled.map(|polled| polled.resolved), BTreeMap::new()));
    assert!(dead_letters.take().is_empty());
}

// T50: three questions are asked before an outcome is escalated. Two polls at once ask one.
#[apply(on_each_store)]
async fn two_polls_at_once_ask_one_question(endpoint: &str) {
    let (guarded, provider) = (Guarded::on(endpoint).await, Provider::default());
    let (executor, request) = (guarded.executor(), request());
    let ours = owned(executor.reserve(&request).await);
    written(executor.finish(ours, Report::perhaps("handler_failed")).await);
    for number in 1..=3 {
        let (polled, _) = polled_at_once(&guarded, &provider, [None, None]).await;
        assert_eq!(polled.each_ref().map(|polled| (polled.due, polled.failed)), [(1, 0); 2]);
        let State::Unknown { asked, .. } = guarded.record(&request.key).await.expect("a record").state else {
            panic!("it is unknown");
        };
        let because = guarded.escalated_because(&request.key).await;
        assert_eq!((asked, because.is_some()), (number, number == 3));
        guarded.clock.advance(MINUTE);
    }
    assert_eq!(provider.asked(), [6]);
}
