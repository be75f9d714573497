//! Writes a value as JSON, if JSON can carry it.
//!
//! `serde_json` writes two things as `null` without an error: a number that is not finite, and a `Some` of what is `null` itself, such as
//! `Some(())`. A reader of that gets another value, and as inputs two different ones would be one. So both are counted while the value is
//! written.
//!
//! A type may read its own `null` back, such as an `Option<Option<T>>` of which `None` is left out, or may read nothing as `Some(None)`. What
//! comes back is therefore written once more: it is the same value if the counts are the same.

use std::{
    cell::{Cell, RefCell},
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::{
    Serialize, Serializer,
    de::DeserializeOwned,
    ser::{
        Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use crate::error_chain::json_error;

/// Why JSON cannot carry a value. A mistake in the program.
#[derive(derive_more::Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// A number in it is NaN or infinite: JSON has none of these.
    #[error("a number in it is NaN or infinite")]
    NotFinite,
    /// A `Some` in it is written as `null`, such as `Some(())` or `Some(None)`: it is read as `None`.
    #[error("a `Some` in it is written as null, as `None` is")]
    SomeNull,
    /// It cannot be written, such as a map whose keys are tuples.
    #[error("it cannot be written as JSON: {0}")]
    Unwritable(#[source] serde_json::Error),
    /// What is written cannot be read as its type.
    // The error's own text may quote a value, so it is no source either.
    #[error("what is written cannot be read as its type: {}", json_error(.0))]
    #[debug("Unreadable({})", json_error(_0))]
    Unreadable(serde_json::Error),
}

/// The JSON of a value.
///
/// # Errors
/// If JSON cannot carry it, as far as its writer can see.
pub(crate) fn to_string(value: &impl Serialize) -> Result<String, JsonError> {
    let (json, lost) = write(value)?;
    lost.error().map_or(Ok(json), Err)
}

/// The JSON of a value, and the value that is read from it: what everybody gets who reads it.
///
/// # Errors
/// If that is not the same value, or there is none: also if the type's own code panics, because then an effect has happened already.
pub(crate) fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> Result<(String, T), JsonError> {
    catch_unwind(AssertUnwindSafe(|| written_and_read(value)))
        .unwrap_or_else(|_| Err(JsonError::Unwritable(Error::custom("its Serialize or Deserialize panics"))))
}

fn written_and_read<T: Serialize + DeserializeOwned>(value: &T) -> Result<(String, T), JsonError> {
    let (json, lost) = write(value)?;
    let read: T = match serde_json::from_str(&json) {
        Ok(read) => read,
        Err(error) => return Err(lost.error().unwrap_or(JsonError::Unreadable(error))),
    };
    let (_, again) = write(&read)?;
    let differs = if again == lost { None } else { lost.error().or(again.error()) };
    differs.map_or(Ok((json, read)), Err)
}

fn write(value: &impl Serialize) -> Result<(String, Lost), JsonError> {
    // As serde_json's own writers begin; most inputs and results are short.
    let written = Written { json: RefCell::new(Vec::with_capacity(128)), lost: Cell::default() };
    let mut to = serde_json::Serializer::new(&written);
    value.serialize(Writer { to: &mut to, written: &written }).map_err(JsonError::Unwritable)?;
    let json = String::from_utf8(written.json.into_inner());
    let json = json.map_err(|error| JsonError::Unwritable(Error::custom(error)))?;
    Ok((json, written.lost.get()))
}

/// How often `null` stands for what is not nothing.
#[derive(Clone, Copy, Default, PartialEq)]
struct Lost {
    nan: usize,
    infinite: usize,
    negative_infinite: usize,
    some_null: usize,
}

impl Lost {
    fn error(self) -> Option<JsonError> {
        let Self { nan, infinite, negative_infinite, some_null } = self;
        match (nan + infinite + negative_infinite, some_null) {
            (0, 0) => None,
            (0, _) => Some(JsonError::SomeNull),
            _ => Some(JsonError::NotFinite),
        }
    }
}

/// What is written so far.
struct Written {
    json: RefCell<Vec<u8>>,
    lost: Cell<Lost>,
}

impl Written {
    fn lost(&self, count: impl FnOnce(&mut Lost)) {
        let mut lost = self.lost.get();
        count(&mut lost);
        self.lost.set(lost);
    }

    fn number(&self, number: f64) {
        if number.is_nan() {
            self.lost(|lost| lost.nan += 1);
        } else if number == f64::INFINITY {
            self.lost(|lost| lost.infinite += 1);
        } else if number == f64::NEG_INFINITY {
            self.lost(|lost| lost.negative_infinite += 1);
        }
    }

    /// A `Some` was written from this place on.
    fn some(&self, from: usize) {
        if self.json.borrow()[from..] == *b"null" {
            self.lost(|lost| lost.some_null += 1);
        }
    }
}

impl io::Write for &Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.json.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes a value on to serde_json's serializer, `to`.
struct Writer<'a, S> {
    to: S,
    written: &'a Written,
}

/// A part of a value, which passes through [`Writer`] too.
struct Part<'a, T: ?Sized> {
    value: &'a T,
    written: &'a Written,
}

impl<T: Serialize + ?Sized> Serialize for Part<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Writer { to, written: self.written })
    }
}

/// The methods that pass a value on as it is.
macro_rules! pass_on {
    ($($method:ident($value:ty))*) => {
        $(fn $method(self, value: $value) -> Result<S::Ok, S::Error> {
            self.to.$method(value)
        })*
    };
}

/// The methods that begin a list, a map or a struct.
macro_rules! begin {
    ($($method:ident($($argument:ident: $type:ty),*) -> $parts:ident)*) => {
        $(fn $method(self, $($argument: $type),*) -> Result<Self::$parts, S::Error> {
            let Self { to, written } = self;
            Ok(Writer { to: to.$method($($argument),*)?, written })
        })*
    };
}

impl<'a, S: Serializer> Serializer for Writer<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Writer<'a, S::SerializeSeq>;
    type SerializeTuple = Writer<'a, S::SerializeTuple>;
    type SerializeTupleStruct = Writer<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Writer<'a, S::SerializeTupleVariant>;
    type SerializeMap = Writer<'a, S::SerializeMap>;
    type SerializeStruct = Writer<'a, S::SerializeStruct>;
    type SerializeStructVariant = Writer<'a, S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(bool) serialize_char(char) serialize_str(&str) serialize_bytes(&[u8])
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_unit_struct(&'static str)
    }

    begin! {
        serialize_seq(length: Option<usize>) -> SerializeSeq
        serialize_tuple(length: usize) -> SerializeTuple
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeTupleVariant
        serialize_map(length: Option<usize>) -> SerializeMap
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeStructVariant
    }

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        self.written.number(value.into());
        self.to.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        self.written.number(value);
        self.to.serialize_f64(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.to.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let Self { to, written } = self;
        let from = written.json.borrow().len();
        let some = to.serialize_some(&Part { value, written })?;
        written.some(from);
        Ok(some)
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.to.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_newtype_struct(name, &Part { value, written: self.written })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.to.serialize_newtype_variant(name, index, variant, &Part { value, written: self.written })
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.to.collect_str(value)
    }
}

/// The parts of lists, maps and structs, by the methods that write one.
macro_rules! parts {
    ($($parts:ident { $($method:ident($($key:ident: $type:ty)?))* })*) => {
        $(impl<S: $parts> $parts for Writer<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            $(fn $method<T: Serialize + ?Sized>(&mut self, $($key: $type,)? value: &T) -> Result<(), S::Error> {
                self.to.$method($($key,)? &Part { value, written: self.written })
            })*

            fn end(self) -> Result<S::Ok, S::Error> {
                self.to.end()
            }
        })*
    };
}

parts! {
    SerializeSeq { serialize_element() }
    SerializeTuple { serialize_element() }
    SerializeTupleStruct { serialize_field() }
    SerializeTupleVariant { serialize_field() }
    SerializeMap { serialize_key() serialize_value() }
    SerializeStruct { serialize_field(key: &'static str) }
    SerializeStructVariant { serialize_field(key: &'static str) }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use serde::Deserialize;
    use serde_json::{Value, json, value::RawValue};

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Unit;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct New<T>(T);

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Each<T> {
        Unit,
        New(T),
        Pair(T, T),
        Named { part: T },
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged<T> {
        Value(T),
        Unit,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Named<T> {
        part: T,
    }

    /// A change of a field: absent, `null`, or another value.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Patch {
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some")]
        name: Option<Option<String>>,
    }

    fn some<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
        Option::deserialize(from).map(Some)
    }

    /// Asserts that the value comes back, by the JSON that serde_json writes.
    #[track_caller]
    fn assert_carried<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: T) {
        let (json, read) = round_trip(&value).unwrap();
        assert_eq!(json, serde_json::to_string(&value).unwrap());
        assert_eq!(read, value, "{json}");
    }

    /// Asserts why the value is not carried, if it is written and if it is to come back.
    #[track_caller]
    fn assert_lost<T: Serialize + DeserializeOwned>(value: &T, why: &str) {
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(to_string(value).unwrap_err().to_string(), why, "{json}");
        assert_eq!(round_trip(value).err().expect("an error").to_string(), why, "{json}");
    }

    // T69
    #[test]
    fn whatever_json_carries_is_written_as_serde_json_does() {
        assert_carried((true, 'ß', "a \"text\"\n".to_owned(), ()));
        assert_carried((i8::MIN, i16::MIN, i32::MIN, i64::MIN, i128::MIN));
        assert_carried((u8::MAX, u16::MAX, u32::MAX, u64::MAX, u128::MAX));
        assert_carried((0.1_f32, f32::MAX, 117.633_311_394_000_17, f64::MIN_POSITIVE, -0.0));
        assert_carried((
            Unit,
            New(New(1)),
            [Each::Unit, Each::New(1), Each::Pair(1, 2), Each::Named { part: 3 }],
        ));
        assert_carried((
            BTreeMap::from([(1, 'a'), (2, 'b')]),
            HashMap::from([(true, Some("null".to_owned()))]),
        ));
        assert_carried((None::<()>, Some(Some(1)), vec![None, Some(Each::<()>::Unit)]));
        assert_carried(json!({ "null": null, "list": [null, 1.5, -2], "text": "null", "empty": [{}, []] }));
        assert_carried((Untagged::<u8>::Unit, Some(New("null".to_owned()))));
        let raw = RawValue::from_string("{ \"a\" : [1.10, null] }".to_owned()).unwrap();
        assert_eq!(round_trip(&vec![Some(raw)]).unwrap().0, "[{ \"a\" : [1.10, null] }]");
        assert_eq!(to_string(&format_args!("{}", "a\"")).unwrap(), "\"a\\\"\"");
    }

    // T69
    #[test]
    fn a_number_that_is_not_finite_is_not_carried_anywhere() {
        const WHY: &str = "a number in it is NaN or infinite";
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_lost(&number, WHY);
            assert_lost(&(number as f32), WHY);
            assert_lost(&Some(number), WHY);
            assert_lost(&New(vec![Some(number)]), WHY);
            assert_lost(&(1, Named { part: number }), WHY);
            assert_lost(&HashMap::from([("a".to_owned(), Some(number))]), WHY);
            assert_lost(&[Each::New(Some(number)), Each::Unit], WHY);
            assert_lost(&Each::Pair(Some(number), None), WHY);
            assert_lost(&Each::Named { part: Some(number) }, WHY);
        }
    }

    // T69
    #[test]
    fn a_some_that_is_null_is_not_carried_anywhere() {
        const WHY: &str = "a `Some` in it is written as null, as `None` is";
        assert_lost(&Some(()), WHY);
        assert_lost(&Some(Unit), WHY);
        assert_lost(&Some(New(Unit)), WHY);
        assert_lost(&Some(None::<u8>), WHY);
        assert_lost(&Some(Some(New(None::<u8>))), WHY);
        assert_lost(&Some(Value::Null), WHY);
        assert_lost(&Some(Untagged::<u8>::Unit), WHY);
        assert_lost(&vec![Some(RawValue::from_string("null".to_owned()).unwrap())], WHY);
        assert_lost(&BTreeMap::from([(1, Named { part: Some(()) })]), WHY);
        assert_lost(&(Each::Pair(None, Some(())), Each::Named { part: Some(()) }), WHY);
    }

    // T69
    #[test]
    fn what_cannot_be_written_or_read_is_not_carried() {
        let pairs = HashMap::from([((1, 2), 3)]);
        let error = round_trip(&pairs).unwrap_err();
        assert_eq!(error.to_string(), "it cannot be written as JSON: key must be a string");
        assert!(matches!(to_string(&pairs), Err(JsonError::Unwritable(_))));
        #[derive(Debug, Serialize, Deserialize)]
        struct Secret {
            #[serde(rename(serialize = "number"))]
            card: String,
        }
        let error = round_trip(&Secret { card: "4242".to_owned() }).unwrap_err();
        let why = "what is written cannot be read as its type: Data error in line 1, column 17";
        assert_eq!(error.to_string(), why);
        #[derive(Debug, Serialize, Deserialize)]
        struct Tea(#[serde(deserialize_with = "spilt")] u8);
        fn spilt<'de, D: serde::Deserializer<'de>>(_: D) -> Result<u8, D::Error> {
            panic!("spilt")
        }
        assert!(matches!(round_trip(&Tea(1)), Err(JsonError::Unwritable(_))));
        let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
        assert!(matches!(round_trip(&deep), Err(JsonError::Unreadable(_))));
    }

    // T69: its own reader knows the difference.
    #[test]
    fn a_type_that_reads_its_own_null_comes_back() {
        for name in [None, Some(None), Some(Some("tea".to_owned()))] {
            let patch = Patch { name };
            assert_eq!(round_trip(&patch).unwrap().1, patch);
        }
        // Nothing becomes `Some(None)`.
        #[derive(Debug, Serialize, Deserialize)]
        struct Change(#[serde(deserialize_with = "some")] Option<Option<u8>>);
        fn some<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<u8>>, D::Error> {
            Option::deserialize(from).map(Some)
        }
        assert!(matches!(round_trip(&Change(None)), Err(JsonError::SomeNull)));
        // Nobody can tell, if it is not read.
        assert!(matches!(to_string(&Patch { name: Some(None) }), Err(JsonError::SomeNull)));
        #[derive(Debug, Serialize, Deserialize)]
        struct Rate(#[serde(deserialize_with = "nan")] f64);
        fn nan<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
            Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
        }
        assert!(round_trip(&Rate(f64::NAN)).unwrap().1.0.is_nan());
        assert!(matches!(round_trip(&Rate(f64::INFINITY)), Err(JsonError::NotFinite)));
    }
}
