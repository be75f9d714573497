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

    /// The pointer as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
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
