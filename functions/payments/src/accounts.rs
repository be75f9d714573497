//! The table of accounts: partition key tenant, sort key account id. Each tenant has ten accounts, which begin with
//! [`OPENING_CENTS`]; an account is in the table once money has moved.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_idempotency::{
    domain::{DomainWrite, Table},
    record::Answer,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{error::problem, ledger};

/// The balance of a new account.
pub const OPENING_CENTS: u64 = 100_000;

/// How many accounts a tenant has: `a-0`, `a-1`, …
const ACCOUNTS: usize = 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An account with its balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Account {
    id: String,
    balance_cents: u64,
}

/// The accounts of all tenants. Each tenant has its partition.
#[derive(Clone, Debug)]
pub struct Accounts {
    client: Client,
    table: Table,
}

impl Accounts {
    /// The table, with the account and Region of the environment.
    pub async fn from_env(table: String) -> Self {
        Self::new(ledger::client().await, &table)
    }

    /// The table, through a client of your own.
    pub fn new(client: Client, table: &str) -> Self {
        Self { client, table: Table::new(table, "pk").sort_key("sk") }
    }

    /// The writes that move money. The first is refused if the balance is too low.
    pub(crate) fn moving(&self, tenant: &str, from: &str, to: &str, cents: u64) -> [DomainWrite; 2] {
        let change = |id: &str, sign: &str| {
            let expression =
                format!("SET balanceCents = if_not_exists(balanceCents, :opening) {sign} :cents");
            let write = self.table.update(json!({ "pk": tenant, "sk": id }), expression);
            write.value(":opening", OPENING_CENTS).value(":cents", cents)
        };
        let enough = match cents {
            ..=OPENING_CENTS => "attribute_not_exists(balanceCents) OR balanceCents >= :cents",
            _ => "balanceCents >= :cents",
        };
        [change(from, "-").condition(enough).or_answer(too_little()), change(to, "+")]
    }

    /// The tenant's accounts.
    pub(crate) async fn of(&self, tenant: &str) -> Result<Vec<Account>, BoxError> {
        #[derive(Deserialize)]
        struct Row {
            sk: String,
            #[serde(rename = "balanceCents")]
            balance_cents: u64,
        }
        let query = self.client.query().table_name(self.table.name()).consistent_read(true);
        let query = query.key_condition_expression("pk = :tenant");
        let query = query.expression_attribute_values(":tenant", AttributeValue::S(tenant.to_owned()));
        let rows: Vec<Row> = serde_dynamo::from_items(query.send().await?.items.unwrap_or_default())?;
        let moved: HashMap<_, _> = rows.into_iter().map(|row| (row.sk, row.balance_cents)).collect();
        let accounts = (0..ACCOUNTS).map(|number| {
            let id = format!("a-{number}");
            Account { balance_cents: moved.get(&id).copied().unwrap_or(OPENING_CENTS), id }
        });
        Ok(accounts.collect())
    }
}

/// Whether there is such an account.
pub(crate) fn is_account(id: &str) -> bool {
    id.strip_prefix("a-").is_some_and(|number| {
        number.len() == 1 && number.parse::<usize>().is_ok_and(|number| number < ACCOUNTS)
    })
}

fn too_little() -> Answer {
    let title = "There is not enough money in the account";
    let detail = "Nothing was moved. Use a new key for another transfer.";
    problem(409, "urn:payments:not-enough-money", title, detail)
}
