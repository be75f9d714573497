//! JSON Pointers (RFC 6901): to values that are left out of a fingerprint, and to the key in a message.

#[cfg(any(feature = "http", feature = "lambda"))]
use std::fmt;

#[cfg(any(feature = "http", feature = "lambda"))]
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Points at a value in a JSON document (RFC 6901), other than the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPointer {
    text: Box<str>,
    pub(super) steps: Box<[Step]>,
}

/// A step to a member or to an element. Only the document shows which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: Box<str>,
    pub(super) index: Option<usize>,
}

impl JsonPointer {
    /// Reads a pointer such as `/order/clientTime` or `/items/0`; `~0` means `~` and `~1` means `/`.
    ///
    /// # Errors
    /// The reason, if the text is not an RFC 6901 pointer, or is the empty one: nothing would be left to tell one request from
    /// another.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("the empty JSON pointer refers to the whole document");
        }
        let steps = text.strip_prefix('/').ok_or("a JSON pointer must begin with `/`")?;
        let steps = steps.split('/').map(Step::parse).collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), steps })
    }

    /// The value that it points at, without a look at the others; `None` if there is none.
    ///
    /// # Errors
    /// If the document is not JSON, or an object on the way has two members of the name: which one counts would depend on the reader.
    #[cfg(any(feature = "http", feature = "lambda"))]
    pub fn find(&self, json: &str) -> serde_json::Result<Option<serde_json::Value>> {
        let mut document = serde_json::Deserializer::from_str(json);
        let found = Find(&self.steps).deserialize(&mut document)?;
        document.end()?;
        Ok(found)
    }

    /// The pointer as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Finds the value behind these steps.
#[cfg(any(feature = "http", feature = "lambda"))]
struct Find<'a>(&'a [Step]);

#[cfg(any(feature = "http", feature = "lambda"))]
impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = Option<serde_json::Value>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => serde_json::Value::deserialize(value).map(Some),
            _ => value.deserialize_any(self),
        }
    }
}

#[cfg(any(feature = "http", feature = "lambda"))]
impl<'de> Visitor<'de> for Find<'_> {
    type Value = Option<serde_json::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (step, rest) = self.0.split_first().ok_or_else(|| A::Error::custom("no step is left"))?;
        let mut found = None;
        while let Some(is_step) = members.next_key_seed(Named(&step.name))? {
            if !is_step {
                members.next_value::<IgnoredAny>()?;
            } else if found.is_some() {
                return Err(A::Error::custom("two members of one name"));
            } else {
                found = Some(members.next_value_seed(Find(rest))?);
            }
        }
        Ok(found.flatten())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let (step, rest) = self.0.split_first().ok_or_else(|| A::Error::custom("no step is left"))?;
        let mut found = None;
        for place in 0.. {
            let more = if step.index == Some(place) {
                let element = elements.next_element_seed(Find(rest))?;
                let more = element.is_some();
                found = element.flatten();
                more
            } else {
                elements.next_element::<IgnoredAny>()?.is_some()
            };
            if !more {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a member has this name, which is compared where it lies.
#[cfg(any(feature = "http", feature = "lambda"))]
struct Named<'a>(&'a str);

#[cfg(any(feature = "http", feature = "lambda"))]
impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        name.deserialize_str(self)
    }
}

#[cfg(any(feature = "http", feature = "lambda"))]
impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

impl Step {
    fn parse(escaped: &str) -> Result<Self, &'static str> {
        if escaped.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            return Err("in a JSON pointer, `~` must be followed by `0` (for `~`) or `1` (for `/`)");
        }
        let name = escaped.replace("~1", "/").replace("~0", "~");
        // An index has one spelling: `01` and `+1` are names of members only.
        let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
        Ok(Self { name: name.into(), index })
    }
}
