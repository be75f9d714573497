//! The writes of one operation.

use super::{DomainWrite, DomainWriteError, write::is_same_table};

/// The largest transaction, less the space of the record.
const MAX_TRANSACTION: usize = (4 * 1024 - 400) * 1024;

/// The writes of one operation, each checked against the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Vec<DomainWrite>);

impl Writes {
    /// Adds a write. `records` is the table of records, if they are in one.
    ///
    /// # Errors
    /// If DynamoDB would refuse it. It is not added.
    pub(crate) fn add(&mut self, write: DomainWrite, records: Option<&str>) -> Result<(), DomainWriteError> {
        write.check()?;
        if write.message().is_none() && records.is_some_and(|records| is_same_table(&write.table, records)) {
            return Err(DomainWriteError::TableOfRecords(write.table));
        }
        if self.0.iter().any(|other| other.is_of_same_item(&write)) {
            return Err(DomainWriteError::SameItem(write.table));
        }
        let size: usize = self.0.iter().chain([&write]).map(DomainWrite::size).sum();
        if self.0.len() >= DomainWrite::MAX || size > MAX_TRANSACTION {
            return Err(DomainWriteError::TooMany);
        }
        self.0.push(write);
        Ok(())
    }

    /// Adds all of these.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn of(writes: Vec<DomainWrite>, records: Option<&str>) -> Result<Self, DomainWriteError> {
        let mut all = Self::default();
        writes.into_iter().try_for_each(|write| all.add(write, records))?;
        Ok(all)
    }

    pub(crate) fn into_vec(self) -> Vec<DomainWrite> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_dynamo::AttributeValue;
    use serde_json::json;

    use super::*;
    use crate::domain::Table;

    fn table() -> Table {
        Table::new("accounts", "id")
    }

    fn added(writes: impl IntoIterator<Item = DomainWrite>) -> Result<Writes, DomainWriteError> {
        let mut all = Writes::default();
        writes.into_iter().try_for_each(|write| all.add(write, Some("records")))?;
        Ok(all)
    }

    fn refused(writes: impl IntoIterator<Item = DomainWrite>) -> DomainWriteError {
        added(writes).expect_err("refused")
    }

    #[test]
    fn a_write_that_dynamodb_would_refuse_is_refused_at_once() {
        let item = |id: &str| json!({ "id": id });
        for wrong in [json!({}), json!({ "id": "" }), json!({ "id": true }), json!({ "ID": "a" })] {
            assert!(matches!(refused([table().put(&wrong)]), DomainWriteError::Key { .. }), "{wrong}");
            assert!(matches!(refused([table().delete(&wrong)]), DomainWriteError::Key { .. }), "{wrong}");
        }
        let too_much = json!({ "id": "a", "name": "b" });
        assert!(added([table().put(&too_much)]).is_ok());
        assert!(matches!(refused([table().update(&too_much, "REMOVE a")]), DomainWriteError::Key { .. }));
        assert!(matches!(refused([table().put(json!([1]))]), DomainWriteError::Shape { .. }));
        assert!(matches!(refused([table().check(item("a"))]), DomainWriteError::NoCondition(_)));
        let large = json!({ "id": "a", "text": "x".repeat(400 * 1024) });
        assert!(matches!(refused([table().put(large)]), DomainWriteError::TooLarge(_)));
        for number in [
            "1e126",
            "1e-131",
            "10e9223372036854775807",
            "0.1e-9223372036854775808",
            "123456789012345678901234567890123456789",
            "NaN",
            "",
        ] {
            let value = AttributeValue::N(number.to_owned());
            let mut write = table().put(item("a"));
            write.item.inner_mut().insert("n".to_owned(), value);
            assert!(matches!(refused([write]), DomainWriteError::Shape { .. }), "{number}");
        }
        assert!(
            added(
                [table().put(json!({ "id": "a", "n": [1.5e-7, -0.0, 12345678901234567890_u64, 9.9e125] }))]
            )
            .is_ok()
        );
        assert!(matches!(refused([table().put(item(&"k".repeat(2049)))]), DomainWriteError::TooLarge(_)));
        for set in [
            AttributeValue::Ss(Vec::new()),
            AttributeValue::Ss(vec!["a".into(), "b".into(), "a".into()]),
            AttributeValue::Ns(vec!["1".into(), "0.10e1".into()]),
            AttributeValue::Bs(vec![vec![1], vec![1]]),
        ] {
            let mut write = table().put(item("a"));
            write.item.inner_mut().insert("set".to_owned(), set.clone());
            assert!(matches!(refused([write]), DomainWriteError::Shape { .. }), "{set:?}");
        }
        let mut sets = table().put(item("a"));
        for (name, set) in [
            ("texts", AttributeValue::Ss(vec!["a".into(), "b".into()])),
            (
                "numbers",
                AttributeValue::Ns(vec!["1".into(), "-1".into(), "10".into(), "0.1".into(), "0".into()]),
            ),
        ] {
            sets.item.inner_mut().insert(name.to_owned(), set);
        }
        assert!(added([sets]).is_ok());
        let large = table().update(item("a"), "SET note = :note").value(":note", "x".repeat(400 * 1024 + 1));
        assert!(matches!(refused([large]), DomainWriteError::TooLarge(_)));
        let swapped = table()
            .update(item("a"), "SET doc = :new")
            .condition("doc = :old")
            .value(":new", "x".repeat(250 * 1024))
            .value(":old", "y".repeat(250 * 1024));
        assert!(added([swapped]).is_ok());
        let round: Vec<u64> = (0..100_000).map(|_| 1_000_000).collect();
        assert!(added([table().put(json!({ "id": "a", "cents": round }))]).is_ok());
        let deep = (0..33).fold(json!(1), |inner, _| json!([inner]));
        assert!(matches!(
            refused([table().put(json!({ "id": "a", "deep": deep }))]),
            DomainWriteError::Shape { .. }
        ));
        for wrong in [
            table().delete(item("a")).condition("n = :n"),
            table().delete(item("a")).condition("#n = n"),
            table().delete(item("a")).value(":n", 1),
            table().update(item("a"), "SET n = :n").value(":n", 1).value(":n", 2),
            table().delete(item("a")).condition("#n = #n").name("#n", "a").name("#n", "b"),
        ] {
            assert!(matches!(refused([wrong]), DomainWriteError::Placeholder { .. }));
        }
        assert!(matches!(refused([table().update(item("a"), " ")]), DomainWriteError::EmptyExpression(_)));
        let half_empty = table().delete(item("a")).condition("").condition("a = a");
        assert!(matches!(refused([half_empty]), DomainWriteError::EmptyExpression(_)));
        let usual = table()
            .update(item("a"), "SET #m.#k[0] = :n, size_of = :n ADD c :n")
            .condition("size(#m) > :n OR begins_with(#k, :p)")
            .name("#m", "map")
            .name("#k", "key")
            .value(":n", 1)
            .value(":n", 1)
            .value(":p", "p");
        assert!(added([usual]).is_ok());
        let odd = table().delete(item("a")).or_answer(crate::record::Answer::http(42, Vec::new(), ""));
        assert!(matches!(refused([odd]), DomainWriteError::Answer(_)));
        let long = "a".repeat(5_000);
        assert!(matches!(
            refused([table().delete(item("a")).condition(&long)]),
            DomainWriteError::TooLarge(_)
        ));
        assert!(matches!(refused([table().update(item("a"), long)]), DomainWriteError::TooLarge(_)));
    }

    #[test]
    fn a_transaction_writes_each_item_once_and_at_most_97() {
        let put = |id: usize| table().put(json!({ "id": format!("a-{id}") }));
        assert!(matches!(
            refused([put(1), table().delete(json!({ "id": "a-1" }))]),
            DomainWriteError::SameItem(_)
        ));
        let by_arn =
            Table::new("arn:aws:dynamodb:eu-central-1:1:table/accounts", "id").put(json!({ "id": "a-1" }));
        assert!(matches!(refused([put(1), by_arn]), DomainWriteError::SameItem(_)));
        let arn =
            |account: u8| Table::new(format!("arn:aws:dynamodb:eu-central-1:{account}:table/accounts"), "id");
        assert!(added([1, 2].map(|account| arn(account).put(json!({ "id": "a-1" })))).is_ok());
        let others = Table::new("others", "id");
        assert!(added([put(1), others.put(json!({ "id": "a-1" }))]).is_ok());
        let sorted = Table::new("sorted", "pk").sort_key("sk");
        let of = |sk: &str| sorted.put(json!({ "pk": "a", "sk": sk }));
        assert!(added([of("1"), of("2")]).is_ok());
        assert!(added((0..DomainWrite::MAX).map(put)).is_ok());
        assert_eq!(refused((0..=DomainWrite::MAX).map(put)), DomainWriteError::TooMany);
        let large =
            |id: usize| table().put(json!({ "id": format!("a-{id}"), "text": "x".repeat(390 * 1024) }));
        assert_eq!(refused((0..10).map(large)), DomainWriteError::TooMany);
    }

    // DynamoDB keeps a number, and not its text.
    #[test]
    fn a_number_in_a_key_is_one_item_however_it_is_written() {
        let of = |text: &str| {
            let mut write = table().delete(json!({ "id": 0 }));
            write.item.inner_mut().insert("id".to_owned(), AttributeValue::N(text.to_owned()));
            write
        };
        for equal in [["1", "1.0"], ["1", "1e0"], ["+1", "01"], ["0", "-0"], ["120", "1.2E2"]] {
            assert!(matches!(refused(equal.map(of)), DomainWriteError::SameItem(_)), "{equal:?}");
        }
        assert!(added(["1", "10", "-1", "0.1", "0"].map(of)).is_ok());
        // Text is compared by its characters.
        assert!(added(["1", "1.0"].map(|id| table().delete(json!({ "id": id })))).is_ok());
        assert!(added([table().delete(json!({ "id": "1" })), of("1")]).is_ok());
        let zeros = [json!({ "id": 0 }), json!({ "id": -0.0 })].map(|key| table().delete(key));
        assert!(matches!(refused(zeros), DomainWriteError::SameItem(_)));
    }

    #[test]
    fn conditions_are_joined_without_a_second_pair_of_parentheses() {
        let joined = |first: &str| {
            let write = table().delete(json!({ "id": "a" })).condition(first).condition("b = b");
            write.condition.unwrap()
        };
        assert_eq!(joined("a = a"), "(a = a) AND (b = b)");
        assert_eq!(joined("(a = a OR c = c)"), "(a = a OR c = c) AND (b = b)");
        assert_eq!(joined("(a = a) OR (c = c)"), "((a = a) OR (c = c)) AND (b = b)");
    }

    #[test]
    fn the_table_of_records_takes_no_domain_writes_under_any_name() {
        for name in ["records", "arn:aws:dynamodb:eu-central-1:1:table/records"] {
            let write = Table::new(name, "pk").put(json!({ "pk": "a" }));
            assert_eq!(refused([write]), DomainWriteError::TableOfRecords(name.to_owned()));
        }
    }
}
