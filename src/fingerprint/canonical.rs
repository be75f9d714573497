//! The canonical form of a JSON body: one text for all the ways of writing one value.
//!
//! 1. The form is that of RFC 8785 (JCS): members sorted by the UTF-16 code units of their names, no white space,
//!    strings with the fewest escapes.
//! 2. Numbers are compared as decimals, not as doubles: two forms are equal exactly when the two values are, whatever their
//!    size and precision. A number is written in the JCS form if that has the exact value of the literal: `1`, `1.0`, `1e0`
//!    and `10e-1` are `1`, `-0` is `0`. A number that JCS would round or refuse is written exactly, as sign, digits without
//!    zeros at either end, `e` and exponent: `9007199254740993e0`, `1e400`.
//! 3. A body that is not I-JSON (RFC 7493) has no canonical form; it is fingerprinted by its bytes. That covers a syntax
//!    error, anything after the value, an empty body, a byte order mark, bytes that are not UTF-8, half of a surrogate pair
//!    in an escape, two members of one name in one object (compared after unescaping), more than [`MAX_DEPTH`] nested arrays
//!    and objects; and a number, other than zero, whose exponent, as written or in the exact form, does not fit 64 bits.
//! 4. A value at a [`JsonPointer`] to be left out is removed with its member name or its place in the array. All pointers
//!    refer to the body as sent: leaving out `/a/0` and `/a/1` removes the first two elements. A pointer that leads
//!    nowhere is ignored. Rule 3 applies to values that are left out, too.
//!
//! Caveat: I-JSON also forbids noncharacters such as U+FFFF. They are kept, since nothing about them is ambiguous.
//!
//! A canonical form is its own canonical form. So it never equals the bytes of a body that has none, and the
//! fingerprints of the two kinds cannot collide.

mod number;
mod pointer;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, cmp::Ordering, ops::Range};

use json_event_parser::{JsonEvent, SliceJsonParser};

use number::write_number;
pub(crate) use pointer::JsonPointer;
use pointer::Step;

/// How many arrays and objects may be open at once. Other JSON parsers commonly stop at the same depth, so a handler could
/// not read a deeper body anyway. It also bounds how often a byte is moved when members are sorted.
const MAX_DEPTH: usize = 128;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The canonical form of a JSON body, or `None` if the body is not I-JSON and is fingerprinted by its bytes.
pub(crate) fn canonical_json(body: &[u8], left_out: &[JsonPointer]) -> Option<Vec<u8>> {
    // The parser would skip it.
    if body.starts_with(BYTE_ORDER_MARK) {
        return None;
    }
    let mut parser = SliceJsonParser::new(body);
    let mut canonical = Canonical {
        // Sorting copies the members behind their object.
        out: Vec::with_capacity(body.len() * 2),
        open: Vec::new(),
        members: Vec::with_capacity(8),
        left_out: left_out.iter().map(|pointer| (pointer, 0)).collect(),
    };
    loop {
        match parser.parse_next().ok()? {
            JsonEvent::Eof => return Some(canonical.out),
            event => canonical.take(event)?,
        }
    }
}

/// Writes the canonical form while the body is read.
///
/// No tree is built: a body of 6 MB can hold three million values. Each value is written at once, and the members of an
/// object are sorted when it ends.
struct Canonical<'a> {
    /// Every value in an array or object is followed by a comma. The closing bracket replaces the last one.
    out: Vec<u8>,
    open: Vec<Container>,
    /// The members of all open objects, the innermost object's last.
    members: Vec<Member<'a>>,
    /// Each with the number of its leading steps that match the path to the value being read.
    left_out: Vec<(&'a JsonPointer, usize)>,
}

struct Container {
    place: Place,
    /// The place of an object's first member; `None` for an array.
    first_member: Option<usize>,
    /// How many values of an array have begun.
    elements: usize,
}

/// Where a value, with the name before it, begins in the output, and whether it stays there.
struct Place {
    start: usize,
    left_out: bool,
}

struct Member<'a> {
    name: Cow<'a, str>,
    /// Name, value and comma in the output; empty for a member that is left out.
    text: Range<usize>,
}

impl<'a> Canonical<'a> {
    fn take(&mut self, event: JsonEvent<'a>) -> Option<()> {
        match event {
            JsonEvent::StartArray => self.open(b'[', None)?,
            JsonEvent::StartObject => self.open(b'{', Some(self.members.len()))?,
            JsonEvent::ObjectKey(name) => {
                let start = self.out.len();
                write_string(&mut self.out, &name);
                self.out.push(b':');
                self.members.push(Member { name, text: start..start });
            }
            JsonEvent::EndArray | JsonEvent::EndObject => self.close()?,
            scalar => {
                let place = self.begin_value()?;
                match scalar {
                    JsonEvent::String(value) => write_string(&mut self.out, &value),
                    JsonEvent::Number(literal) => write_number(&mut self.out, &literal)?,
                    JsonEvent::Boolean(true) => self.out.extend_from_slice(b"true"),
                    JsonEvent::Boolean(false) => self.out.extend_from_slice(b"false"),
                    _ => self.out.extend_from_slice(b"null"),
                }
                self.end_value(&place);
            }
        }
        Some(())
    }

    fn open(&mut self, bracket: u8, first_member: Option<usize>) -> Option<()> {
        if self.open.len() == MAX_DEPTH {
            return None;
        }
        let place = self.begin_value()?;
        self.open.push(Container { place, first_member, elements: 0 });
        self.out.push(bracket);
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        let Container { place, first_member, .. } = self.open.pop()?;
        let bracket = match first_member {
            None => b']',
            Some(first_member) => {
                sort_members(&mut self.out, &mut self.members[first_member..])?;
                self.members.truncate(first_member);
                b'}'
            }
        };
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        self.out.push(bracket);
        self.end_value(&place);
        Some(())
    }

    fn begin_value(&mut self) -> Option<Place> {
        let Some(depth) = self.open.len().checked_sub(1) else {
            return Some(Place { start: 0, left_out: false });
        };
        let container = &mut self.open[depth];
        let (start, name, index) = match container.first_member {
            Some(_) => {
                let member = self.members.last()?;
                (member.text.start, Some(&*member.name), None)
            }
            None => {
                container.elements += 1;
                (self.out.len(), None, Some(container.elements - 1))
            }
        };
        let mut left_out = false;
        for (pointer, steps_taken) in &mut self.left_out {
            let leads_here = |step: &Step| match name {
                Some(name) => *step.name == *name,
                None => step.index == index,
            };
            if *steps_taken == depth && pointer.steps.get(depth).is_some_and(leads_here) {
                *steps_taken += 1;
                left_out |= *steps_taken == pointer.steps.len();
            }
        }
        Some(Place { start, left_out })
    }

    fn end_value(&mut self, place: &Place) {
        let Some(depth) = self.open.len().checked_sub(1) else { return };
        for (_, steps_taken) in &mut self.left_out {
            *steps_taken = depth.min(*steps_taken);
        }
        if place.left_out {
            self.out.truncate(place.start);
        } else {
            self.out.push(b',');
        }
        if let (Some(_), Some(member)) = (self.open[depth].first_member, self.members.last_mut()) {
            member.text.end = self.out.len();
        }
    }
}

/// Sorts the members of the innermost object, which end the output, by their names; `None` if two have the same name.
fn sort_members(out: &mut Vec<u8>, members: &mut [Member<'_>]) -> Option<()> {
    if members.is_sorted_by(|a, b| utf16_order(&a.name, &b.name).is_lt()) {
        return Some(());
    }
    let unsorted = members.first()?.text.start..out.len();
    members.sort_unstable_by(|a, b| utf16_order(&a.name, &b.name));
    if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return None;
    }
    for member in members {
        out.extend_from_within(member.text.clone());
    }
    out.drain(unsorted);
    Some(())
}

/// The order of two names by their UTF-16 code units. The order of their UTF-8 bytes differs in one thing only: surrogates,
/// which encode the characters that begin with bytes from F0, sort before U+E000 to U+FFFF, which begin with EE and EF.
fn utf16_order(a: &str, b: &str) -> Ordering {
    let rank = |byte| if matches!(byte, 0xEE | 0xEF) { byte + 0x10 } else { byte };
    a.bytes().map(rank).cmp(b.bytes().map(rank))
}

fn write_string(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("writing to a Vec cannot fail");
}
