use std::convert::Infallible;

use futures_util::stream;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use proptest::{collection::vec, prelude::*};

use super::*;

type Value = (u64, String);

fn entry(id: &str, cents: u64) -> Result<Entry<Value>, Infallible> {
    Ok(Entry { id: id.to_owned(), value: (cents, "EUR".to_owned()) })
}

async fn compared<E: std::fmt::Debug>(
    ours: Vec<Result<Entry<Value>, E>>,
    theirs: Vec<Result<Entry<Value>, E>>,
) -> (Result<Summary, CompareError<E>>, String) {
    let mut report = Vec::new();
    let (ours, theirs) = (stream::iter(ours), stream::iter(theirs));
    let summary = compare(ours, theirs, |difference| difference.write_line(&mut report)).await;
    (summary, String::from_utf8(report).unwrap())
}

#[tokio::test]
async fn the_order_of_the_sides_changes_neither_the_summary_nor_the_report() {
    let ours: Vec<_> = (0..1000).map(|n| entry(&format!("ch_{n}"), 100)).collect();
    let theirs: Vec<_> =
        (500..1500).map(|n| entry(&format!("ch_{n}"), 100 + u64::from(n % 2 == 0))).collect();
    let there_and_back = [
        compared(ours.clone(), theirs.clone()).await,
        compared(ours.into_iter().rev().collect(), theirs.into_iter().rev().collect()).await,
    ];
    for (summary, report) in &there_and_back {
        let expected = Summary {
            ours: 1000,
            theirs: 1000,
            equal: 250,
            only_ours: 500,
            only_theirs: 500,
            differs: 250,
            duplicates: 0,
        };
        assert_eq!(*summary.as_ref().unwrap(), expected);
        assert_eq!(report.lines().count(), 1250);
    }
    assert_eq!(there_and_back[0].1, there_and_back[1].1);
}

#[tokio::test]
async fn each_difference_is_a_line_of_json() {
    let odd = "a\"b\nc";
    let ours = vec![
        entry("only-ours", 1),
        entry("differs", u64::MAX),
        entry(odd, 3),
        entry("twice", 4),
        entry("twice", 5),
    ];
    let theirs =
        vec![entry("twice", 4), entry("only-theirs", 2), entry(odd, 3), entry("differs", u64::MAX - 1)];
    let (summary, report) = compared(ours, theirs).await;
    assert!(!summary.unwrap().agrees());
    let mut lines: Vec<_> = report.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"difference":"differs","id":"differs","ours":[18446744073709551615,"EUR"],"theirs":[18446744073709551614,"EUR"]}"#,
            r#"{"difference":"duplicate","id":"twice","side":"ours","value":[5,"EUR"]}"#,
            r#"{"difference":"only_ours","id":"only-ours","ours":[1,"EUR"]}"#,
            r#"{"difference":"only_theirs","id":"only-theirs","theirs":[2,"EUR"]}"#,
        ]
    );
}

#[tokio::test]
async fn the_same_ledgers_agree_and_so_do_empty_ones() {
    let ledger = || (0..100).map(|n| entry(&n.to_string(), n)).collect::<Vec<_>>();
    let (summary, report) = compared(ledger(), ledger()).await;
    let summary = summary.unwrap();
    assert!(summary.agrees() && summary.equal == 100 && report.is_empty(), "{summary:?} {report}");
    assert!(compared(vec![], Vec::<Result<_, Infallible>>::new()).await.0.unwrap().agrees());
    let missing = compared(ledger(), vec![]).await.0.unwrap();
    assert!(!missing.agrees() && missing.only_ours == 100, "{missing:?}");
}

#[tokio::test]
async fn a_side_that_fails_at_its_end_hands_on_no_difference() {
    let whole = || (0..100).map(|n| Ok(entry(&n.to_string(), n).unwrap())).collect::<Vec<_>>();
    let cut = || whole().into_iter().chain([Err("cut off")]).collect::<Vec<_>>();
    for (ours, theirs, side) in [(cut(), vec![], Side::Ours), (vec![], cut(), Side::Theirs)] {
        let (failed, report) = compared(ours, theirs).await;
        match failed {
            Err(CompareError::Side(of, "cut off")) => assert_eq!(of, side),
            other => panic!("{other:?}"),
        }
        assert_eq!(report, "", "nothing that could be mistaken for a report");
    }
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_an_error() {
    let ours = stream::iter([entry("a", 1)]);
    let full = |_: Difference<'_, Value>| Err(io::Error::from(io::ErrorKind::StorageFull));
    let failed = compare(ours, stream::iter([]), full).await;
    assert!(matches!(failed, Err(CompareError::Report(_))), "{failed:?}");
}

#[test]
fn what_differs_is_counted_and_so_is_that_nothing_does() {
    let recorder = DebuggingRecorder::new();
    let counted = || {
        let counters = recorder.snapshotter().snapshot().into_vec().into_iter();
        let counted = counters.map(|(key, _, _, value)| {
            assert_eq!(key.key().labels().count(), 0);
            (key.key().name().to_owned(), value)
        });
        counted.collect::<BTreeMap<_, _>>()
    };
    let run = |ours, theirs| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        ::metrics::with_local_recorder(&recorder, || runtime.block_on(compared::<Infallible>(ours, theirs)))
            .0
            .unwrap();
    };
    let expected = |counts: [u64; 4]| {
        let names = ["only_ours", "only_theirs", "differs", "duplicates"];
        let sums = [("completed", 1), ("differences", counts.iter().sum())];
        let all = names.into_iter().zip(counts).chain(sums);
        let named = all.map(|(name, count)| {
            (format!("api.idempotency.compare.{name}.count"), DebugValue::Counter(count))
        });
        named.collect::<BTreeMap<_, _>>()
    };
    run(vec![entry("a", 1)], vec![entry("a", 1)]);
    assert_eq!(counted(), expected([0; 4]));
    let theirs = ["b", "c", "d", "d", "e", "f"].map(|id| entry(id, 1));
    run(vec![entry("a", 1), entry("b", 2), entry("c", 2)], theirs.into());
    assert_eq!(counted(), expected([1, 3, 2, 1]));
}

/// Entries of few ids and values, so that sides often agree, differ and repeat.
fn side() -> impl Strategy<Value = Vec<(u8, u64)>> {
    vec((0..6_u8, 0..3_u64), 0..12)
}

proptest! {
    #[test]
    fn each_entry_is_equal_or_a_difference_and_none_is_lost(ours in side(), theirs in side()) {
        let first = |side: &[(u8, u64)]| {
            side.iter().rev().copied().collect::<BTreeMap<u8, u64>>()
        };
        let (here, there) = (first(&ours), first(&theirs));
        let count = |is: &dyn Fn(&u8) -> bool| (0..6).filter(is).count() as u64;
        let expected = Summary {
            ours: ours.len() as u64,
            theirs: theirs.len() as u64,
            equal: count(&|id| here.contains_key(id) && here.get(id) == there.get(id)),
            only_ours: count(&|id| here.contains_key(id) && !there.contains_key(id)),
            only_theirs: count(&|id| there.contains_key(id) && !here.contains_key(id)),
            differs: count(&|id| here.contains_key(id) && there.contains_key(id) && here[id] != there[id]),
            duplicates: (ours.len() - here.len() + theirs.len() - there.len()) as u64,
        };
        let entries = |side: Vec<(u8, u64)>| {
            side.into_iter().map(|(id, cents)| entry(&id.to_string(), cents)).collect::<Vec<_>>()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (summary, report) = runtime.block_on(compared(entries(ours), entries(theirs)));
        let summary = summary.unwrap();
        prop_assert_eq!(summary, expected);
        let differences = summary.only_ours + summary.only_theirs + summary.differs + summary.duplicates;
        prop_assert_eq!(report.lines().count() as u64, differences);
        prop_assert_eq!(summary.agrees(), report.is_empty());
    }
}
