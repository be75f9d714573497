//! The page of the local cloud in a browser, as somebody sees it who opens it for the first time.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, Locator, key::Key};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::support::{local_cloud::LocalCloud, process::Process};

/// Chromium needs no network but the loopback, and no sandbox of its own where it may not make one.
const ARGUMENTS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    // Containers have little of it.
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
];

/// The element with the focus.
const FOCUSED: Locator<'static> = Locator::Css(":focus");

/// What is done to an element.
#[derive(Clone, Copy)]
enum Act<'a> {
    Click,
    Write(&'a str),
    Key(Key),
}

struct Browser {
    client: Client,
    driver: Process,
    /// Where the driver listens.
    address: String,
}

impl Drop for Browser {
    /// Ends the browser too: without this, it would outlive its driver.
    fn drop(&mut self) {
        let shutdown = TcpStream::connect(&self.address).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            write!(stream, "GET /shutdown HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
            stream.read_to_end(&mut Vec::new())
        });
        if let Err(error) = shutdown {
            eprintln!("chromedriver {} was not asked to end: {error}", self.driver.id());
        }
    }
}

impl Browser {
    /// A driver, and its port. It ends at once if another process takes the port for IPv6 that it has for IPv4: then it is started anew.
    fn driver() -> (Process, String) {
        let start = || {
            let mut driver = Process::start("chromedriver", |program| {
                program.arg("--port=0").stdout(Stdio::piped());
            })
            .expect("chromedriver can be run");
            let mut lines = driver.output().next().map(BufReader::new).expect("its output is piped").lines();
            let port = lines.find_map(|line| {
                let line = line.expect("text");
                Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned())
            })?;
            // Its pipe must not be full.
            std::thread::spawn(move || lines.for_each(drop));
            Some((driver, port))
        };
        (0..5).find_map(|_| start()).expect("it says its port")
    }

    async fn open(url: &str) -> Self {
        let (driver, port) = Self::driver();
        let options = json!({ "args": ARGUMENTS });
        let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let address = format!("127.0.0.1:{port}");
        let driver_url = format!("http://{address}");
        let connect =
            ClientBuilder::new(HttpConnector::new()).capabilities(capabilities).connect(&driver_url).await;
        let client = connect.expect("a browser");
        let browser = Self { client, driver, address };
        browser.client.goto(url).await.expect("the page");
        browser
    }

    /// Presses the button with this text.
    async fn press(&self, text: &str) {
        let button = format!("//button[normalize-space()={text:?}]");
        self.on(Locator::XPath(&button), Act::Click).await;
    }

    /// Does something to an element. The page may replace it just now.
    async fn on(&self, locator: Locator<'_>, act: Act<'_>) {
        for _ in 0..50 {
            let done = async {
                let element = self.client.find(locator).await?;
                match act {
                    Act::Click => element.click().await,
                    Act::Write(text) => {
                        element.clear().await?;
                        element.send_keys(text).await
                    }
                    Act::Key(key) => element.send_keys(&char::from(key).to_string()).await,
                }
            };
            match done.await {
                Err(error) if error.is_stale_element_reference() || error.is_element_not_interactable() => {}
                done => return done.unwrap_or_else(|error| panic!("{locator:?}: {error}")),
            }
        }
        panic!("{locator:?} is replaced all the time");
    }

    async fn text(&self, id: &str) -> String {
        self.client.find(Locator::Id(id)).await.expect(id).text().await.expect(id)
    }

    /// Waits until a part of the page has all of this.
    async fn sees(&self, id: &str, texts: &[&str]) -> String {
        let mut seen = String::new();
        for _ in 0..300 {
            seen = self.text(id).await;
            if texts.iter().all(|text| seen.contains(text)) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{id} lacks one of {texts:?}: {seen}");
    }

    async fn script(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.expect(script)
    }
}

#[tokio::test]
#[cfg_attr(not(browser), ignore = "the page needs Chromium and chromedriver")]
async fn the_page_shows_why_an_outcome_is_unknown_and_settles_it() {
    let cloud = LocalCloud::start(&[]).await;
    let browser = Browser::open(cloud.url()).await;

    // Once, again, and with another body.
    browser.press("is charged").await;
    browser
        .sees(
            "timeline",
            &["client POST /payments", "payments reserve: in progress 1 1", "gateway answers 201"],
        )
        .await;
    browser.sees("records", &["completed", "A retry gets this answer, and nothing runs."]).await;
    browser.press("Send the same again").await;
    browser.sees("timeline", &["payments finds it completed 1 1", "gateway answers 201, replayed"]).await;
    browser.press("Same key, other body").await;
    browser.sees("timeline", &["gateway answers 422 key-reused"]).await;
    browser.sees("provider", &["1 charge in its ledger"]).await;

    // A hundred at once are one charge.
    browser.press("A new key, 100 at once, with this body").await;
    browser.sees("timeline", &["×", "payments complete", "replayed"]).await;
    browser.sees("provider", &["2 charges in its ledger"]).await;

    // A lost answer, while the provider is away afterwards: it stays unknown, and an operator settles it.
    browser.press("is charged, and the answer is lost").await;
    browser.sees("provider", &["3 charges in its ledger"]).await;
    browser.press("away").await;
    browser.sees("provider", &["It is away"]).await;
    browser.sees("timeline", &["caller is gone", "unknown: perhaps executed", "gateway answers 504"]).await;
    browser
        .sees("records", &["unknown", "It cannot be known here whether the effect happened", "next question"])
        .await;
    browser.press("Send the same again").await;
    browser.sees("timeline", &["finds it unknown", "answers 409 outcome-unknown"]).await;
    // What is typed stays, while the page changes around it.
    let key = browser.script("return document.querySelector('[name=key]').value").await;
    let answer = format!("answer-acme#create-payment#{}", key.as_str().expect("text"));
    browser.on(Locator::Id(&answer), Act::Write("not JSON")).await;
    browser.sees("timeline", &["stays unknown"]).await;
    browser.script("document.activeElement.blur()").await;
    browser.press("Send the same again").await;
    browser.sees("timeline", &["question 2 settled nothing"]).await;
    let typed = browser.client.find(Locator::Id(&answer)).await.unwrap().prop("value").await.unwrap();
    assert_eq!(typed.as_deref(), Some("not JSON"));
    browser.press("It was executed: 201, with this answer").await;
    browser.sees("status", &["the answer must be JSON"]).await;
    browser.on(Locator::Id(&answer), Act::Write(r#"{"charge":"found"}"#)).await;
    browser.press("It was executed: 201, with this answer").await;
    browser.sees("timeline", &["operator complete, by operator"]).await;
    browser.press("Send the same again").await;
    browser.sees("timeline", &["answers 201, replayed"]).await;
    browser.press("up").await;
    browser.sees("provider", &["It is up"]).await;
}

#[tokio::test]
#[cfg_attr(not(browser), ignore = "the page needs Chromium and chromedriver")]
async fn the_page_works_by_keyboard_and_shows_text_as_text() {
    let cloud = LocalCloud::start(&[]).await;
    let hostile = "<img src=x onerror=document.title='run'>";
    let order = json!({ "customerId": "c-1", "amountCents": 1, "currency": "EUR", "source": "tok_ok" });
    let request = cloud.post("/payments").bearer_auth("acme").header("idempotency-key", hostile);
    request.json(&order).send().await.expect("an answer");

    let browser = Browser::open(cloud.url()).await;
    browser.client.set_window_size(360, 800).await.unwrap();
    let width = browser.script("return document.documentElement.scrollWidth - innerWidth").await;
    assert!(width.as_i64().is_some_and(|over| over <= 0), "{width} pixels are outside of the screen");
    let shown = browser.sees("keys", &[hostile]).await;
    assert!(shown.contains("acme"), "{shown}");
    let images = browser.script("return document.images.length + document.title").await;
    assert_eq!(images, "0lambda-idempotency: the local cloud");

    // The link of the key, by Enter: its timeline, and its key in the form.
    browser.script("document.querySelector('#keys a').focus()").await;
    browser.on(FOCUSED, Act::Key(Key::Enter)).await;
    browser.sees("timeline", &["acme · <img", "answers"]).await;
    let key = browser.script("return document.querySelector('[name=key]').value").await;
    assert_eq!(key, hostile);

    // A button keeps the focus when its part is replaced.
    browser.script("document.getElementById('freeze-payments-1').focus()").await;
    browser.on(FOCUSED, Act::Key(Key::Enter)).await;
    browser.sees("environments", &["idle, frozen"]).await;
    assert_eq!(browser.script("return document.activeElement.id").await, "freeze-payments-1");
    browser.on(FOCUSED, Act::Key(Key::Enter)).await;
    browser.on(Locator::Id("kill-payments-1"), Act::Click).await;
    browser.sees("environments", &["signal: killed"]).await;

    // Every control has a name.
    let unnamed = "return [...document.querySelectorAll('button, input:not([type=hidden]), textarea, a')]\
                   .filter(one => !one.textContent.trim() && !one.labels?.length).length";
    assert_eq!(browser.script(unnamed).await, 0);
}

#[tokio::test]
#[cfg_attr(not(browser), ignore = "the page needs Chromium and chromedriver")]
async fn what_happened_comes_first_and_a_narrow_page_cuts_nothing() {
    let cloud = LocalCloud::start(&[]).await;
    let long = "a-key-without-any-place-to-break-it-".repeat(3);
    let order = json!({ "customerId": long, "sku": "tea", "quantity": 1, "amountCents": 1, "currency": "EUR", "source": "tok_ok" });
    let request = cloud.post("/orders").bearer_auth("acme").header("idempotency-key", &long);
    request.json(&order).send().await.expect("an answer");
    let browser = Browser::open(cloud.url()).await;
    browser.client.set_window_size(1400, 900).await.unwrap();
    browser.sees("timeline", &["orders complete", "has delivered"]).await;
    let lowest = "const last = document.querySelector('#timeline tbody tr:nth-child(8)').getBoundingClientRect();\
                  return [last.bottom, document.getElementById('send-title').getBoundingClientRect().top]";
    let places = browser.script(lowest).await;
    for place in places.as_array().expect("places") {
        assert!(place.as_f64().is_some_and(|place| place < 700.0), "below the fold: {places}");
    }
    browser.client.set_window_size(400, 900).await.unwrap();
    let cut = "return [...document.querySelectorAll('body *')]\
               .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('pre, datalist'))\
               .map(one => one.outerHTML.slice(0, 80))";
    assert_eq!(browser.script(cut).await, json!([]));
}
