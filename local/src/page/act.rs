//! What the page does to the provider, to environments, and to unknown outcomes.

use crate::{cloud::Cloud, gateway};
use axum::{
    Form, Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    Answer, DynamoDbStore, Store,
    key::RecordKey,
    operator::{Correction, Operator},
    record::{AnswerKind, Evidence},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// As slow as the page makes the provider: slower than callers wait.
const SLOW: Duration = Duration::from_secs(8);
/// Who settles, stops and resumes by the page, in audit lines.
pub const WHO: &str = "the page";

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    Up,
    Slow,
    Away,
}

#[derive(Deserialize)]
pub struct ProviderForm {
    provider: Condition,
}

pub async fn provider(State(cloud): State<Arc<Cloud>>, Form(form): Form<ProviderForm>) -> Response {
    let slowness = if matches!(form.provider, Condition::Slow) { SLOW } else { Duration::ZERO };
    cloud.provider.slowness.set(slowness);
    let moved = match form.provider {
        Condition::Away => {
            cloud.provider.leave().await;
            Ok(())
        }
        Condition::Up | Condition::Slow => cloud.provider.come_back().await,
    };
    cloud.journal.notice();
    done(moved.map_err(|error| format!("provider: {error}")))
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Kill,
    Freeze,
    Thaw,
}

#[derive(Deserialize)]
pub struct EnvironmentForm {
    r#do: What,
}

pub async fn environment(
    State(cloud): State<Arc<Cloud>>,
    Path((function, number)): Path<(String, usize)>,
    Form(form): Form<EnvironmentForm>,
) -> Response {
    let found = cloud.functions.iter().find(|known| known.definition.name == function);
    let Some(status) = found.and_then(|function| function.environment(number)) else {
        return gateway::message(
            StatusCode::NOT_FOUND,
            &format!("there is no environment {number} of {function}"),
        );
    };
    done(match form.r#do {
        What::Kill => status.kill(),
        What::Freeze => status.freeze(true),
        What::Thaw => status.freeze(false),
    })
}

#[derive(Deserialize)]
pub struct Settle {
    record: String,
    /// The execution that was shown as unknown.
    attempt: String,
    executed: Executed,
    #[serde(default)]
    answer: String,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Executed {
    Yes,
    No,
}

/// Settles an unknown outcome, as an operator does by the command line.
pub async fn settle(State(cloud): State<Arc<Cloud>>, Form(form): Form<Settle>) -> Response {
    done(settled(&cloud, &form).await)
}

async fn settled(cloud: &Cloud, form: &Settle) -> Result<(), String> {
    let table = cloud.journal.table().ok_or("there is no table of records")?;
    let key = RecordKey::from_partition_key(&form.record).ok_or("there is no such record")?;
    let answer = match form.executed {
        Executed::Yes => Some(
            serde_json::from_str::<Value>(&form.answer)
                .map_err(|error| format!("the answer must be JSON: {error}"))?,
        ),
        Executed::No => None,
    };
    let store = DynamoDbStore::from_client(cloud.operators.clone(), table);
    let seen = store.load(&key).await.map_err(|error| error.to_string())?;
    let seen = seen.ok_or("there is no such record")?;
    if seen.attempt.to_string() != form.attempt {
        return Err("there was another execution since it was shown: look again".to_owned());
    }
    if form.executed == Executed::No && seen.reported == Some(Evidence::Effect) {
        return Err(
            "an effect was reported: settle it by the command line, with --overrule-effect".to_owned()
        );
    }
    let correction = match answer {
        Some(answer) => {
            let answer = match seen.answer_kind {
                AnswerKind::Http => Answer::json(201, answer.to_string()),
                AnswerKind::Function => Answer::payload(&answer).map_err(|error| error.to_string())?,
            };
            Correction::Executed { answer, retain: None, messages: Vec::new() }
        }
        None => Correction::NotExecuted { retain: None },
    };
    let settled = Operator::new(store).correct(&seen, &correction, WHO, "settled by hand").await;
    settled.map(drop).map_err(|error| error.to_string())
}

fn done(outcome: Result<(), String>) -> Response {
    match outcome {
        Ok(()) => Json(json!({})).into_response(),
        Err(error) => gateway::message(StatusCode::CONFLICT, &error),
    }
}
