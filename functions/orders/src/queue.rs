//! A queue as another front of `POST /orders`. A message is the request's body with one member more, `orderId`, which is the idempotency
//! key. So an order that comes by both fronts is placed once.

use std::fmt;

use lambda_http::{Body, Request, http::request::Parts, request::from_str};
use lambda_idempotency::{event::Message, key::Tenant};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::{json, value::RawValue};

/// The member of a message that is its key.
const ORDER_ID: &str = "orderId";

/// The requests that an HTTP API would make of messages.
#[derive(Clone, Debug)]
pub struct Requests {
    /// All but the body.
    parts: Parts,
}

impl Requests {
    /// The requests of this tenant: everything in a message can be set by its sender, so the tenant is not there.
    ///
    /// # Errors
    /// If `lambda_http` cannot read such a request.
    pub fn of(tenant: &Tenant) -> Result<Self, serde_json::Error> {
        let event = json!({
            "version": "2.0",
            "routeKey": "POST /orders",
            "rawPath": "/orders",
            "rawQueryString": "",
            "headers": { "content-type": "application/json" },
            "requestContext": {
                "accountId": "",
                "apiId": "",
                "http": { "method": "POST", "path": "/orders", "protocol": "HTTP/1.1", "sourceIp": "", "userAgent": "" },
                "requestId": "",
                "routeKey": "POST /orders",
                "stage": "$default",
                "time": "",
                "timeEpoch": 0,
                "authorizer": { "jwt": { "claims": { "sub": tenant.as_str() }, "scopes": [] } },
            },
            "isBase64Encoded": false,
        });
        let (parts, _) = from_str(&event.to_string())?.into_parts();
        Ok(Self { parts })
    }

    /// The request of this message.
    ///
    /// # Errors
    /// Why there is none.
    pub fn request(&self, message: &Message) -> Result<Request, String> {
        let order: Members<'_> = serde_json::from_str(&message.body)
            .map_err(|error| format!("the message is not a JSON object ({:?} error)", error.classify()))?;
        let order = Members(order.0.into_iter().filter(|(name, _)| name != ORDER_ID).collect());
        let body = serde_json::to_string(&order).map_err(|error| error.to_string())?;
        Ok(Request::from_parts(self.parts.clone(), Body::from(body)))
    }
}

/// The members of an object, in their order and as they are written: a number or a repeated name means what it means by HTTP.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
