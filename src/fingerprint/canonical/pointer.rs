//! JSON Pointers (RFC 6901) to values that are left out.

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

/// Why a text is not a pointer to a part of a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPointerError {
    /// The empty pointer: nothing would be left to tell one request from another.
    #[error("the empty JSON pointer refers to the whole document")]
    WholeDocument,
    /// It does not begin with a slash.
    #[error("a JSON pointer must begin with `/`")]
    NoSlash,
    /// A tilde that escapes nothing.
    #[error("in a JSON pointer, `~` must be followed by `0` (for `~`) or `1` (for `/`)")]
    Escape,
}

impl JsonPointer {
    /// Reads a pointer such as `/order/clientTime` or `/items/0`; `~0` means `~` and `~1` means `/`.
    ///
    /// # Errors
    ///
    /// If the text is not an RFC 6901 pointer, or is the empty one.
    pub fn parse(text: &str) -> Result<Self, JsonPointerError> {
        if text.is_empty() {
            return Err(JsonPointerError::WholeDocument);
        }
        let steps = text.strip_prefix('/').ok_or(JsonPointerError::NoSlash)?;
        let steps = steps.split('/').map(Step::parse).collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), steps })
    }

    /// The pointer as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Step {
    fn parse(escaped: &str) -> Result<Self, JsonPointerError> {
        if escaped.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            return Err(JsonPointerError::Escape);
        }
        let name = escaped.replace("~1", "/").replace("~0", "~");
        // An index has one spelling: `01` and `+1` are names of members only.
        let index = name.parse().ok().filter(|index: &usize| index.to_string() == name);
        Ok(Self { name: name.into(), index })
    }
}
