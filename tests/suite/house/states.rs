//! Lists of the states that no compiler compares.

use lambda_idempotency::record::StateName;

const TEMPLATE: &str = include_str!("../../../infra/idempotency.yaml");

#[test]
fn each_document_that_lists_the_states_lists_all() {
    for (name, document) in [
        ("glossary", include_str!("../../../docs/glossary.md")),
        ("contract", include_str!("../../../docs/contract.md")),
    ] {
        for state in StateName::EACH {
            // Some are words that any document has.
            let named = format!("`{}`", state.name());
            assert!(document.contains(&named), "{named} is not in docs/{name}.md");
        }
    }
}

// An unfiltered change costs an invocation; one that is filtered out is a dead worker that nobody finds.
#[test]
fn the_streams_filters_know_each_state() {
    let mut owned = Vec::new();
    let mut waiting = Vec::new();
    let mut ended = Vec::new();
    for state in StateName::EACH {
        match state {
            StateName::InProgress => owned.push(state.name()),
            StateName::Pending => {
                owned.push(state.name());
                waiting.push(state.name());
            }
            StateName::BetweenWorkers => {
                waiting.push(state.name());
                ended.push(state.name());
            }
            StateName::Completed | StateName::FailedRetryable | StateName::Unknown => {
                ended.push(state.name())
            }
        }
    }
    for (image, condition) in [
        ("NewImage", serde_json::json!([{ "anything-but": sorted(ended) }])),
        ("OldImage", serde_json::json!(sorted(owned))),
        ("NewImage", serde_json::json!(sorted(waiting))),
    ] {
        let filter = format!("\"{image}\":{{\"state\":{{\"S\":{condition}}}}}");
        assert!(TEMPLATE.contains(&filter), "no filter has {filter}");
    }
}

fn sorted(mut names: Vec<&'static str>) -> Vec<&'static str> {
    names.sort_unstable();
    names
}
