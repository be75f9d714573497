//! Requests that the page sends, as a client would.

use crate::{
    cloud::Cloud,
    example::Example,
    gateway,
    journal::Sent,
    route::{DEFAULT, Route},
};
use axum::{
    Form, Json,
    extract::State,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// How many are "at once".
const CROWD: usize = 100;

const JSON: &str = "application/json";
/// The client of a request that nobody has sent yet.
const CLIENT: &str = "acme";

/// Bodies that the sample's routes take. Others get the next one.
const BODIES: [(&str, &str); 3] = [
    ("/payments", r#"{"customerId":"c-1","amountCents":1999,"currency":"EUR","source":"tok_ok"}"#),
    (
        "/orders",
        r#"{"customerId":"c-1","sku":"tea","quantity":1,"amountCents":1999,"currency":"EUR","source":"tok_ok"}"#,
    ),
    ("/reports", r#"{"seconds":1,"source":"tok_ok"}"#),
];
const BODY: &str = r#"{"amountCents":1999,"currency":"EUR","source":"tok_ok"}"#;

/// Cards of the provider and of the sample's functions: what they make them do.
const CARDS: [(&str, &str); 8] = [
    ("tok_ok", "is charged"),
    ("tok_declined", "is declined"),
    ("tok_slow_3000", "is charged after 3 s"),
    ("tok_timeout_charged", "is charged, and the answer is lost"),
    ("tok_timeout_not_charged", "is not charged, and nobody answers"),
    ("tok_crash_before", "kills the worker before the charge"),
    ("tok_crash_after", "kills the worker after the charge"),
    ("tok_refused", "cannot be reached"),
];

/// What the page's form says.
#[derive(Deserialize)]
pub struct Wanted {
    route: String,
    client: String,
    key: String,
    body: String,
    card: Option<String>,
    #[serde(default)]
    r#do: Do,
}

#[derive(Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Do {
    #[default]
    Once,
    Fresh,
    Again,
    Other,
    Crowd,
}

/// Routes that change something, each with a body: what was sent to it last, or its example.
pub fn routes(cloud: &Cloud) -> Vec<Sent> {
    let changes =
        |method: &Option<Method>| !matches!(method, Some(Method::GET | Method::HEAD | Method::DELETE));
    let routes = cloud.all_routes.iter().filter(|route| changes(&route.method) && route.path != DEFAULT);
    let mut shown: Vec<_> = routes.map(|route| of_route(cloud, route)).collect();
    // The simplest first.
    shown.sort_by_key(|Sent { route, .. }| {
        let path = route.split('?').next().unwrap_or_default();
        BODIES.iter().position(|(known, _)| path.ends_with(known)).unwrap_or(BODIES.len())
    });
    shown
}

fn of_route(cloud: &Cloud, route: &Route) -> Sent {
    let method = route.method.as_ref().map_or("POST", Method::as_str);
    if let Some(mut last) = cloud.journal.sent_to(&route.key()).filter(|last| last.text().is_some()) {
        // `curl -d` says that it is a form, whatever it is.
        if last.text().is_some_and(|text| serde_json::from_str::<Value>(text).is_ok()) {
            JSON.clone_into(&mut last.content_type);
        }
        return last;
    }
    let own = BODIES.iter().find(|(path, _)| cloud.is_sample && *path == route.path);
    let (content_type, body) = match (Example::of(&cloud.examples, route), own) {
        (Some(example), _) => (example.content_type(), example.body.clone()),
        (None, Some((_, body))) => (JSON, (*body).to_owned()),
        (None, None) => (JSON, if cloud.is_sample { BODY } else { "{}" }.to_owned()),
    };
    Sent {
        route: format!("{method} {}", route.path),
        client: CLIENT.to_owned(),
        content_type: content_type.to_owned(),
        body: Some(body.into()),
    }
}

/// The test cards. Functions of one's own need not know them.
pub fn cards(cloud: &Cloud) -> &'static [(&'static str, &'static str)] {
    if cloud.is_sample { &CARDS } else { &[] }
}

/// Sends a request, and returns its key and its timeline before there is an answer.
pub async fn send(State(cloud): State<Arc<Cloud>>, Form(wanted): Form<Wanted>) -> Response {
    let bad = |message: &str| gateway::message(StatusCode::BAD_REQUEST, message);
    let key = wanted.key.trim();
    let is_new = wanted.card.is_some() || [Do::Crowd, Do::Fresh].contains(&wanted.r#do) || key.is_empty();
    let key = if is_new { fresh() } else { key.to_owned() };
    let before = cloud.journal.sent((wanted.client.trim(), &key));
    let (route, content_type, body) = match (&wanted.r#do, &before) {
        (Do::Again, Some(Sent { body: None, .. })) => {
            return bad("what was sent with this key is too long to be kept here: send it again yourself");
        }
        // What was sent, whatever the form has.
        (Do::Again, Some(Sent { route, content_type, body: Some(body), .. })) => {
            (route.clone(), content_type.clone(), body.clone())
        }
        _ => {
            let body = match (&wanted.card, &wanted.r#do) {
                (Some(card), _) => with_card(&wanted.body, card),
                (None, Do::Other) => other(&wanted.body),
                (None, _) => wanted.body.clone(),
            };
            let content_type = before.map(|before| before.content_type);
            let content_type = content_type.unwrap_or_else(|| content_type_of(&cloud, &wanted.route));
            (wanted.route.clone(), content_type, body.into())
        }
    };
    let Some((method, path)) = route.trim().split_once(' ') else {
        return bad("the route must be a method and a path, such as POST /orders");
    };
    let Ok(method) = method.parse::<Method>() else { return bad("there is no such method") };
    if !path.starts_with('/') || path.contains('{') {
        return bad("the path must begin with /, and have values in place of its parameters");
    }
    let request = cloud.http.request(method, format!("{}{path}", cloud.url)).body(body.clone());
    let request = request.bearer_auth(wanted.client.trim()).header("idempotency-key", &key);
    let request = match content_type.is_empty() {
        true => request.build().ok(),
        false => request.header("content-type", content_type).build().ok(),
    };
    // As the function will see them.
    let seen = request.as_ref().and_then(|request| gateway::client(request.headers()));
    let (Some(request), Some(client), false) = (&request, &seen, wanted.client.trim().is_empty()) else {
        return bad("client and key must be text that a header can have");
    };
    let request = request.try_clone().expect("its body is in memory");
    let timeline = cloud.journal.of_page((client.0, &client.1));
    let times = if wanted.r#do == Do::Crowd { CROWD } else { 1 };
    let http = cloud.http.clone();
    // The timeline has the answers.
    tokio::spawn(async move {
        let requests = (0..times).filter_map(|_| request.try_clone());
        join_all(requests.map(|request| http.execute(request))).await;
    });
    // The form gets a card's body. Another one was sent once: "again" is the first one's.
    let shown = wanted.card.is_some().then(|| String::from_utf8_lossy(&body).into_owned());
    Json(json!({ "timeline": timeline, "key": key, "body": shown })).into_response()
}

/// The content type of bodies that this route takes.
fn content_type_of(cloud: &Cloud, route: &str) -> String {
    let (method, path) = route.trim().split_once(' ').unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let matched = method.parse().ok().and_then(|method| cloud.routes.find(&method, path));
    let route = matched.and_then(|matched| cloud.all_routes.iter().find(|route| route.key() == matched.key));
    route.map_or_else(|| JSON.to_owned(), |route| of_route(cloud, route).content_type)
}

fn fresh() -> String {
    let id = Uuid::new_v4().simple().to_string();
    format!("key-{}", &id[..8])
}

/// The body, with this card.
fn with_card(body: &str, card: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(mut json) if json["source"].is_string() => {
            json["source"] = json!(card);
            json.to_string()
        }
        _ => body.to_owned(),
    }
}

/// Another body: one of its numbers is greater, or it has a member more.
fn other(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(mut members)) => {
            let number = members.values_mut().find_map(|value| Some((value.as_u64()?, value)));
            match number {
                Some((number, value)) => *value = json!(number.wrapping_add(1)),
                None => drop(members.insert("other".to_owned(), json!(true))),
            }
            Value::Object(members).to_string()
        }
        _ => format!("{body} "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_gets_a_card_and_another_number() {
        assert_eq!(with_card(r#"{"a":1,"source":"tok_ok"}"#, "tok_x"), r#"{"a":1,"source":"tok_x"}"#);
        assert_eq!(with_card("{}", "tok_x"), "{}");
        assert_eq!(with_card("no JSON", "tok_x"), "no JSON");
        assert_eq!(other(r#"{"source":"tok_ok","n":1}"#), r#"{"n":2,"source":"tok_ok"}"#);
        assert_eq!(other("{}"), r#"{"other":true}"#);
        assert_eq!(other("text"), "text ");
    }
}
