//! A tool of an MCP server that acts once for each key: `cargo run --example mcp_tool`.
//!
//! MCP has no key for a call. So the program around the agent puts one into `_meta`, or the model passes it as the argument
//! `idempotency_key`. A call without a key is refused: an agent repeats a call whose answer it did not get.

use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, RunError, key::Tenant};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Members of `_meta` have a prefix: your domain's name, reversed.
const KEY: &str = "com.example/idempotency-key";
const REPLAYED: &str = "com.example/replayed";
const ARGUMENT: &str = "idempotency_key";

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    text: String,
}

async fn send_email(execution: Execution, email: Email) -> Result<String, Failure> {
    if !email.to.contains('@') {
        return Err(Failure::permanent("the address has no @"));
    }
    println!("an email is sent, with the key {}", execution.downstream_key("send"));
    Ok(format!("sent to {}", email.to))
}

/// Answers one request of JSON-RPC. The guard is of one tenant: the user whom the session's token names.
async fn answer(guard: &Guard, request: &Value) -> Value {
    let params = &request["params"];
    let answered = match (request["method"].as_str(), params["name"].as_str()) {
        (Some("tools/call"), Some("send_email")) => Ok(call(guard, params).await),
        (Some("tools/call"), _) => Err((-32602, "unknown tool")),
        _ => Err((-32601, "method not found")),
    };
    match answered {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": message } })
        }
    }
}

/// A call of the tool. What is wrong with it is in the result, where the model reads it, and can do better.
async fn call(guard: &Guard, params: &Value) -> Value {
    let wrong = |text: String| json!({ "content": [{ "type": "text", "text": text }], "isError": true });
    let key = match key(params) {
        Ok(key) => key,
        Err(why) => return wrong(why.to_owned()),
    };
    // The key is no part of the input: it may be in either place.
    let mut arguments = params["arguments"].clone();
    arguments.as_object_mut().map(|arguments| arguments.remove(ARGUMENT));
    let email = match serde_json::from_value::<Email>(arguments) {
        Ok(email) => email,
        Err(error) => return wrong(format!("the arguments are no email: {error}")),
    };
    match guard.run(&[key], email, send_email).await {
        Ok(ran) => json!({
            "content": [{ "type": "text", "text": ran.value }],
            "_meta": { REPLAYED: ran.how.is_replay() },
        }),
        // Another key would be another email.
        Err(
            error @ (RunError::InFlight { .. }
            | RunError::Interrupted(_)
            | RunError::NotExecuted(_)
            | RunError::Unavailable
            | RunError::Unknown { .. }),
        ) => wrong(format!("{error}. Call again later, with the same {ARGUMENT} and arguments.")),
        Err(error) => wrong(error.to_string()),
    }
}

/// The key of a call; as an error, what to do.
fn key(params: &Value) -> Result<&str, &'static str> {
    match (&params["_meta"][KEY], &params["arguments"][ARGUMENT]) {
        (Value::String(key), Value::Null) | (Value::Null, Value::String(key)) => Ok(key),
        (Value::String(key), Value::String(same)) if key == same => Ok(key),
        (Value::String(_), Value::String(_)) => {
            Err("the key in _meta and the argument idempotency_key differ")
        }
        (Value::Null, Value::Null) => {
            Err("idempotency_key is missing: make a UUID for each email, and repeat a call with the same one")
        }
        _ => Err("the key must be a string"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Guard::new(MemoryStore::new(), Operation::new("send-email"), Tenant::parse("user-1")?);
    let (tea, coffee) =
        (json!({ "to": "a@example.com", "text": "tea" }), json!({ "to": "a@example.com", "text": "coffee" }));
    let with_key = |arguments: &Value| {
        let mut arguments = arguments.clone();
        arguments[ARGUMENT] = json!("k-1");
        arguments
    };
    for (id, params) in [
        json!({ "arguments": tea }),
        json!({ "arguments": tea, "_meta": { KEY: "k-1" } }),
        json!({ "arguments": with_key(&tea) }),
        json!({ "arguments": with_key(&coffee) }),
        json!({ "arguments": with_key(&tea), "_meta": { KEY: "k-2" } }),
        json!({ "arguments": tea, "_meta": { KEY: 1 } }),
        json!({ "arguments": { "to": "nowhere", "text": "tea" }, "_meta": { KEY: "k-3" } }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut params = params;
        params["name"] = json!("send_email");
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        println!("{}", answer(&guard, &request).await);
    }
    Ok(())
}
