//! Spans and counts with a subscriber and a recorder of your own: `cargo run --example own_telemetry`.
//!
//! For OpenTelemetry, put the layer of `tracing-opentelemetry` in place of `Spans`. Its exporter sends OTLP to the collector of ADOT's
//! Lambda layer, at `http://localhost:4318`; flush it before an invocation ends. The parent of an invocation's span is the trace
//! that Lambda names: see `traceparent`. `lambda::run` writes no metrics if a recorder is installed before.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use lambda_idempotency::{Execution, Failure, Guard, MemoryStore, Operation, key::Tenant};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tracing::{
    Instrument, Subscriber,
    field::{Field, Visit},
    info_span, span,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// As Lambda gives it to an invocation: in its `Context`, and in `_X_AMZN_TRACE_ID`.
const XRAY: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

/// X-Ray's trace and span, as a `traceparent` of W3C, which OpenTelemetry reads.
fn traceparent(header: &str) -> Option<String> {
    let part = |name| header.split(';').find_map(|part| part.strip_prefix(name));
    let (time, random) = part("Root=1-")?.split_once('-')?;
    let sampled = if part("Sampled=") == Some("1") { "01" } else { "00" };
    Some(format!("00-{time}{random}-{}-{sampled}", part("Parent=")?))
}

/// Prints each span when it closes.
struct Spans;

/// The fields of a span.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    // The guard learns the outcome later.
    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let of = |name| {
            let fields = span.extensions();
            fields.get::<Fields>().and_then(|fields| fields.0.get(name).cloned()).unwrap_or_default()
        };
        if let Some(parent) = span.parent().map(|parent| parent.name()) {
            println!("{} in {parent}: {}, {}", span.name(), of("operation"), of("outcome"));
        } else {
            println!("{} in {:?}", span.name(), traceparent(&of("xrayTraceId")));
        }
    }
}

/// Keeps counters, by name and operation.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: String = key.labels().map(|label| format!(" of {}", label.value())).collect();
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(counters.entry(key.name().to_owned() + &labels).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

async fn ship(_: Execution, to: &'static str) -> Result<String, Failure> {
    Ok(format!("shipped to {to}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let counters = Counters::default();
    metrics::set_global_recorder(counters.clone()).map_err(|error| error.to_string())?;
    tracing_subscriber::registry().with(Spans).init();
    let guard = Guard::new(MemoryStore::new(), Operation::new("ship"), Tenant::parse("shop")?);
    for _ in 0..2 {
        // Lambda's runtime enters such a span.
        let invocation = info_span!("Lambda runtime invoke", xrayTraceId = XRAY);
        guard.run(&["order-1"], "Bern", ship).instrument(invocation).await?;
    }
    for (name, count) in &*counters.0.lock().unwrap_or_else(PoisonError::into_inner) {
        println!("{name}: {}", count.load(Ordering::Relaxed));
    }
    Ok(())
}
