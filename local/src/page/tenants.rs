//! What each tenant uses, and the operators' brake.

use super::act::WHO;
use crate::{cloud::Cloud, gateway};
use askama::Template;
use axum::{
    Form, Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use lambda_idempotency::{
    DynamoDbStore,
    key::Tenant,
    operator::{TenantChange, TenantOperator},
    store::{Bucket, Fullness, Stop, TenantRule, Tenants as _},
};
use serde::Deserialize;
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Tenants that are shown: those with rules first, then those of the newest keys.
const MAX_SHOWN: usize = 8;
/// How many open records are counted of each.
const MAX_OPEN: usize = 100;
/// How long what was read is shown. All open pages share it.
const READ_FOR: Duration = Duration::from_secs(2);
/// How many characters of a tenant's name are shown.
const MAX_NAME: usize = 80;

#[derive(Template)]
#[template(path = "tenants.html")]
struct Part {
    tenants: Vec<Shown>,
    /// Why the rules cannot be read.
    failed: Option<String>,
    left_out: usize,
}

struct Shown {
    tenant: String,
    name: String,
    /// Names its buttons.
    id: String,
    state: &'static str,
    is_stopped: bool,
    is_work_stopped: bool,
    used: Vec<String>,
    open: String,
}

/// The part of the page.
pub async fn part(cloud: &Cloud) -> String {
    let Some(table) = cloud.journal.table() else { return String::new() };
    let mut seen = cloud.tenants.lock().await;
    if let Some((_, part)) = seen.as_ref().filter(|(at, _)| at.elapsed() < READ_FOR) {
        return part.clone();
    }
    let store = DynamoDbStore::from_client(cloud.events.client.clone(), table);
    let part = read(cloud, &store).await;
    let part = part.render().unwrap_or_else(|error| error.to_string());
    *seen = Some((Instant::now(), part.clone()));
    part
}

async fn read(cloud: &Cloud, store: &DynamoDbStore) -> Part {
    let operator = TenantOperator::new(store.clone());
    let (rules, failed) = match operator.rules().await {
        Ok(rules) => (rules.map(|rules| rules.tenants).unwrap_or_default(), None),
        Err(error) => (Default::default(), Some(format!("the rules of tenants cannot be read: {error}"))),
    };
    let mut names: Vec<_> = rules.keys().cloned().collect();
    for name in cloud.journal.tenants() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let left_out = names.len().saturating_sub(MAX_SHOWN);
    let mut tenants = Vec::new();
    for name in names.into_iter().take(MAX_SHOWN) {
        let Ok(tenant) = Tenant::parse(&name) else { continue };
        let rule = rules.get(&name).cloned().unwrap_or_default();
        tenants.push(Shown::of(&operator, store, &tenant, &rule).await);
    }
    Part { tenants, failed, left_out }
}

impl Shown {
    async fn of(
        operator: &TenantOperator,
        store: &DynamoDbStore,
        tenant: &Tenant,
        rule: &TenantRule,
    ) -> Self {
        let (used, open) = tokio::join!(operator.used(tenant), store.open_records(tenant, MAX_OPEN));
        let used = match used {
            Ok(used) => used.iter().map(used_text).collect(),
            Err(error) => vec![error.to_string()],
        };
        let open = match open {
            Ok(MAX_OPEN) => format!("{MAX_OPEN} or more"),
            Ok(open) => open.to_string(),
            Err(error) => error.to_string(),
        };
        Self { used, open, ..Self::new(tenant, rule) }
    }

    fn new(tenant: &Tenant, rule: &TenantRule) -> Self {
        let state = match rule.stop {
            None if rule.unread.is_some() => "goes on; its rule cannot be read by this version",
            None => "goes on",
            Some(Stop::New) => "stopped: nothing new begins",
            Some(Stop::NewAndWork) => "stopped: nothing new begins, and accepted work waits",
        };
        let tenant = tenant.as_str();
        let mut name: String = tenant.chars().take(MAX_NAME).collect();
        if name.len() < tenant.len() {
            name.push('…');
        }
        // Letters and digits, so that it can be part of an id.
        let id = tenant.bytes().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name,
            id,
            state,
            is_stopped: rule.stop.is_some(),
            is_work_stopped: rule.stop == Some(Stop::NewAndWork),
            tenant: tenant.to_owned(),
            used: Vec::new(),
            open: String::new(),
        }
    }
}

fn used_text((bucket, fullness): &(Bucket, Fullness)) -> String {
    let bound = bucket.bound().map(|(bounded, rate)| format!("{} {rate}", bounded.replace('_', " ")));
    let full = match fullness {
        Fullness::Percent(percent) => format!("{percent} % of its burst"),
        Fullness::Over(over) => format!("over for {} s", over.as_secs_f64().ceil()),
    };
    format!("{}: {}: {full}", bucket.operation, bound.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Stop,
    StopWork,
    Resume,
}

#[derive(Deserialize)]
pub struct TenantForm {
    tenant: String,
    r#do: What,
}

/// Stops a tenant or lets it go on, as an operator does by the command line.
pub async fn act(State(cloud): State<Arc<Cloud>>, Form(form): Form<TenantForm>) -> Response {
    match acted(&cloud, &form).await {
        Ok(()) => Json(json!({})).into_response(),
        Err(error) => gateway::message(StatusCode::CONFLICT, &error),
    }
}

async fn acted(cloud: &Cloud, form: &TenantForm) -> Result<(), String> {
    let table = cloud.journal.table().ok_or("there is no table of records")?;
    let tenant = Tenant::parse(&form.tenant).map_err(|error| format!("the tenant: {error}"))?;
    let change = match form.r#do {
        What::Stop => TenantChange::Stop(Stop::New),
        What::StopWork => TenantChange::Stop(Stop::NewAndWork),
        What::Resume => TenantChange::Resume,
    };
    let operator = TenantOperator::new(DynamoDbStore::from_client(cloud.operators.clone(), table));
    let rules = operator.rules().await.map_err(|error| error.to_string())?;
    let changed = operator.change(rules.as_ref(), &tenant, &change, WHO, "by hand").await;
    changed.map_err(|error| error.to_string())?;
    // The next look shows it.
    *cloud.tenants.lock().await = None;
    cloud.journal.notice();
    Ok(())
}
