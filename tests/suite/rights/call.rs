//! What a request to DynamoDB asks of IAM.

use serde_json::Value;

/// The account and Region of the tables.
const TABLES: &str = "arn:aws:dynamodb:eu-central-1:123456789012:table";

/// The partition key of the table of records. Tables of domain writes here have the other one.
const KEYS: [&str; 2] = ["pk", "id"];

/// The ARN of a table.
pub fn arn(table: &str) -> String {
    format!("{TABLES}/{table}")
}

/// An action on a table or an index, with the partition keys of the items that it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Such as `dynamodb:PutItem`.
    pub action: String,
    pub resource: String,
    /// `None` if the request names no item.
    pub leading_keys: Option<Vec<String>>,
}

impl Call {
    /// The calls of a request. A transaction is authorized by its parts:
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html>
    pub fn of(operation: &str, body: &[u8]) -> Vec<Self> {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        if operation != "TransactWriteItems" {
            return vec![Self::new(operation, &body)];
        }
        let parts = body["TransactItems"].as_array().expect("parts").iter();
        let parts = parts.flat_map(|part| part.as_object().expect("a part"));
        parts.map(|(part, of)| Self::new(&format!("{part}Item"), of)).collect()
    }

    fn new(action: &str, body: &Value) -> Self {
        let table = body["TableName"].as_str().map(arn).unwrap_or_default();
        let resource = match body["IndexName"].as_str() {
            Some(index) => format!("{table}/index/{index}"),
            None => table,
        };
        let leading_keys = match action {
            "PutItem" => Some(vec![leading_key(&body["Item"])]),
            "GetItem" | "UpdateItem" | "DeleteItem" | "ConditionCheckItem" => {
                Some(vec![leading_key(&body["Key"])])
            }
            _ => None,
        };
        Self { action: format!("dynamodb:{action}"), resource, leading_keys }
    }
}

fn leading_key(item: &Value) -> String {
    let mut values = KEYS.iter().filter_map(|name| item[name]["S"].as_str());
    let value = values.next().unwrap_or_else(|| panic!("no partition key: {item}"));
    assert_eq!(values.next(), None, "two partition keys: {item}");
    value.to_owned()
}
