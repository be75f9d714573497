//! The overview on the page of the local cloud: the keys, the functions' own tables, the outbox.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::support::local_cloud::LocalCloud;

/// A page that waits for this is replaced until it has it.
async fn page_with(cloud: &LocalCloud, path: &str, texts: &[&str]) -> String {
    let mut page = String::new();
    for _ in 0..300 {
        page = cloud.get(path).send().await.expect("an answer").text().await.expect("text");
        if texts.iter().all(|text| page.contains(text)) {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the page lacks one of {texts:?}:\n{page}");
}

/// The part of the page with this id.
fn part<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<div id=\"{id}\">")).expect(id);
    rest.split("</section>")
        .next()
        .expect("there is a first")
        .split("</nav>")
        .next()
        .expect("there is a first")
}

fn order(cloud: &LocalCloud, key: &str, customer: &str) -> RequestBuilder {
    let order = json!({
        "customerId": customer, "sku": "tea", "quantity": 1, "amountCents": 1999, "currency": "EUR", "source": "tok_ok",
    });
    cloud.post("/orders").bearer_auth("acme").header("idempotency-key", key).json(&order)
}

fn pay(cloud: &LocalCloud, key: &str, source: &str) -> RequestBuilder {
    let order = json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": source });
    cloud.post("/payments").bearer_auth("acme").header("idempotency-key", key).json(&order)
}

#[tokio::test]
async fn keys_of_clients_messages_and_look_ups_are_told_apart() {
    let cloud = LocalCloud::start(&[("POLL_MS", "86400000")]).await;
    assert_eq!(order(&cloud, "order-1", "c-1").send().await.unwrap().status(), 201);
    let looked_up = cloud.get("/operations/never-sent").bearer_auth("acme").send().await.unwrap();
    assert_eq!(looked_up.status(), 404);
    // Its event's key is a hash.
    let page = page_with(&cloud, "/", &["acme · sha256:", "acme · never-sent"]).await;
    let keys = part(&page, "keys");
    let (clients, rest) = keys.split_once("<h3>Of messages and events</h3>").expect("a group");
    let (messages, looked_up) = rest.split_once("<h3>Only looked up</h3>").expect("a group");
    assert!(clients.contains("acme · order-1") && clients.contains("create-order"), "{clients}");
    assert!(messages.contains("acme · sha256:") && messages.contains("ship"), "{messages}");
    assert!(looked_up.contains("acme · never-sent") && !looked_up.contains("class=\"state"), "{looked_up}");
    assert!(clients.contains("aria-current=\"true\">acme · order-1</a>"), "the client's newest: {clients}");
    assert!(!keys.contains("unknown"), "{keys}");

    // Its provider does not answer, and is never asked.
    assert_eq!(pay(&cloud, "lost", "tok_timeout_charged").send().await.unwrap().status(), 504);
    let page = page_with(&cloud, "/", &["<b>1 unknown</b>"]).await;
    assert!(part(&page, "keys").contains("<span class=\"state unknown\">unknown</span>"), "{page}");
}

#[tokio::test]
async fn rows_and_messages_are_shown_as_text() {
    let cloud = LocalCloud::start(&[]).await;
    let none = page_with(&cloud, "/", &["No operation has published a message yet."]).await;
    assert!(!part(&none, "tables").contains("local-idempotency"), "it is no table of their own: {none}");
    let hostile = "<script>alert(1)</script>";
    assert_eq!(order(&cloud, hostile, hostile).send().await.unwrap().status(), 201);
    let shown = ["publishes order.placed", "has delivered order.placed", "<code>stock#tea</code>"];
    let page = page_with(&cloud, "/", &shown).await;
    assert!(!page.contains("<script>alert"), "{page}");
    let tables = part(&page, "tables");
    assert!(
        tables.contains("<code>local-orders</code>") && tables.contains("&#60;script&#62;alert(1)"),
        "{tables}"
    );
    let outbox = part(&page, "outbox");
    let numbers = ["1", "0", "1"].map(|number| format!("<td class=\"number\">{number}</td>")).concat();
    assert!(outbox.contains(&format!("<td>order.placed</td>{numbers}")), "{outbox}");
    assert!(outbox.contains("of <a href=\"?timeline=") && outbox.contains(">delivered</span>"), "{outbox}");
}

#[tokio::test]
async fn another_route_has_the_body_that_curl_sent_to_it_last() {
    let cloud = LocalCloud::start(&[]).await;
    let page = page_with(&cloud, "/", &["<option value=\"POST /orders\""]).await;
    assert!(page.contains("&#34;sku&#34;:&#34;tea&#34;"), "an example: {page}");
    order(&cloud, "order-1", "by-curl").send().await.unwrap();
    // The newest key is of another route.
    pay(&cloud, "pay-1", "tok_ok").send().await.unwrap();
    let page = page_with(&cloud, "/", &["value=\"POST /payments\" required", "by-curl"]).await;
    let (_, of_orders) = page.split_once("<option value=\"POST /orders\" data-body=\"").expect("the route");
    let body = of_orders.split('"').next().expect("its body").replace("&#34;", "\"");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(body["customerId"], "by-curl");
}

#[tokio::test]
async fn each_address_that_the_page_names_is_there() {
    let cloud = LocalCloud::start(&[]).await;
    let page = page_with(&cloud, "/", &["Addresses of this cloud"]).await;
    let links = page.split("href=\"/").skip(1).map(|rest| rest.split('"').next().expect("an end"));
    let links: Vec<_> = links.map(|path| format!("/{path}")).collect();
    for named in ["/operate", "/metrics", "/environments", "/outbox/delivered"] {
        assert!(links.iter().any(|link| link == named), "{named}: {links:?}");
    }
    for link in links {
        assert_eq!(cloud.get(&link).send().await.unwrap().status(), 200, "{link}");
    }
}
