//! The recovery points of an operation that resumes: what is known of its phases.
//!
//! A phase either makes one external call, or commits domain writes. Nothing is written before a call; its result is kept after
//! it. So a record never says that a call was begun by the execution that owns it. It says since when an *earlier* execution may
//! have begun the call that follows the last kept phase.
//!
//! 1. A kept phase belongs to the record, not to the execution that kept it.
//! 2. Only the handler knows what follows, so whoever takes the record over decides at each call: see [`Phases::next`].
//! 3. What others report of a phase is noted until the handler gets there.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Reference;
use crate::{
    key::KeyHash,
    time::{ARRIVAL_TIME, Timestamp},
};

/// How long all results of an operation's phases together may be, as JSON, in bytes. Duplicates read them, and each write of the
/// record writes them. A longer result is kept without its value: an execution that resumes has to ask for it.
pub const MAX_PHASE_RESULTS: usize = 2048;

/// How many phases an operation has at most. With all that it may keep of each, its record is no longer than an item may be, its answer
/// included.
pub const MAX_PHASES: usize = 64;

/// A result of at most so many bytes is always kept.
const ALWAYS_KEPT: usize = 16;

/// How long the list of all places of a commit may be, as JSON, in bytes: it has at most 97 of them.
const ALL_PLACES: usize = 300;

/// How long a phase's name may be, in bytes.
const MAX_NAME: usize = 64;

/// Which phases an operation declares, and in which order: a hash of their names. So a deployment that declares others is recognised,
/// also if nothing of an open phase was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseList([u8; 8]);

impl PhaseList {
    /// These phases, in this order. No name has a line break.
    pub fn of(names: &[String]) -> Self {
        let hash = Sha256::digest(names.join("\n"));
        Self(std::array::from_fn(|place| hash[place]))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl From<[u8; 8]> for PhaseList {
    fn from(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }
}

/// How an operation resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumes {
    /// How long after its last recovery point a record waits for a retry before it is escalated.
    pub within: Duration,
    /// The phases that it declares.
    pub list: PhaseList,
}

/// What is known of the phases of an operation that resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phases {
    /// How long after its last recovery point the record waits for a retry before it is escalated.
    pub resume_within: Duration,
    /// The phases that the operation of its last worker declares. `None` if those of any other may follow: it is settled, or nothing is open.
    pub declared: Option<PhaseList>,
    /// The phases that are kept, in the order in which the handler made them. Of a settled record, with digests of their results.
    pub kept: Vec<Phase>,
    /// Phases that others report, and that no handler has got to.
    pub noted: Vec<Phase>,
    /// Since when an earlier execution may have begun the call that follows the last kept phase; `None` if none has.
    pub begun: Option<Timestamp>,
    /// When an operator, or a denial, last let it wait for a retry as long again. [`Timestamp::MAX`] once it is escalated, until one does,
    /// or one more phase is known.
    pub granted: Option<Timestamp>,
}

/// A phase whose result is known.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
// Without the result: it does not belong in logs.
#[debug("Phase({name:?})")]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Its result; `None` if it was too long to be kept, or JSON cannot carry it.
    pub result: Option<PhaseResult>,
    /// When it was kept or noted.
    pub at: Timestamp,
    /// The provider's own ids for what it did.
    pub references: Vec<Reference>,
}

/// The result of a phase: its JSON, or of a settled record, its digest alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PhaseResult {
    text: String,
    digest: String,
}

/// What a handler does about its next phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// It is kept, with this result.
    Kept(&'a str),
    /// It is not kept, but others report this result. If the handler can read it, it is kept without a call.
    Noted(&'a str),
    /// It is called, with the same downstream key as ever.
    Call,
    /// An earlier execution may have made the call, and the provider may have forgotten its key. Or it was certainly `made`, and its
    /// result is not known here. So the provider is asked.
    Ask {
        /// Whether it was certainly made.
        made: bool,
    },
    /// Another phase is kept in its place: the record was written by another version of the handler.
    Mismatch,
}

impl Phase {
    /// A phase of this result. A result that is too long is left out when the record takes it.
    pub const fn new(name: String, result: Option<PhaseResult>, at: Timestamp) -> Self {
        Self { name, result, at, references: Vec::new() }
    }

    /// Whether it has another result than `other`, as far as both are kept.
    pub(super) fn differs(&self, other: &Self) -> bool {
        match (&self.result, &other.result) {
            (Some(ours), Some(theirs)) => ours.digest != theirs.digest,
            _ => false,
        }
    }

    /// The digest of its result, by which operators compare it: `sha256:` and 16 hex digits. `None` if the result is not kept.
    pub fn digest(&self) -> Option<&str> {
        self.result.as_ref().map(PhaseResult::digest)
    }

    /// Whether this can be the name of a phase: 1 to 64 letters, digits, `-`, `_` or `.`.
    pub fn is_name(name: &str) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_valid)
    }
}

impl PhaseResult {
    /// How a digest begins.
    pub const DIGEST: &str = "sha256:";

    /// A result as JSON, and its canonical form, which is the same for each JSON text of one value.
    pub fn new(text: String, canonical: &str) -> Self {
        Self { text, digest: format!("{}{}", Self::DIGEST, KeyHash::of(canonical)) }
    }

    /// What is left of the result of a settled record.
    pub fn digested(digest: String) -> Self {
        Self { text: digest.clone(), digest }
    }

    /// The digest, by which two results are compared.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The JSON; of a settled record, the digest.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether there is room for this result, however long the others are. That of a commit is the places of the writes that were refused: nobody can
/// be asked for it, so without it no execution could ever go on.
fn is_always_kept(result: &str) -> bool {
    let is_list = |byte: u8| byte.is_ascii_digit() || b"[,]".contains(&byte);
    let are_places = || result.len() <= ALL_PLACES && result.bytes().all(is_list);
    result.len() <= ALWAYS_KEPT || are_places()
}

impl Phases {
    /// Nothing is kept yet.
    pub const fn none(resume_within: Duration) -> Self {
        Self {
            resume_within,
            declared: None,
            kept: Vec::new(),
            noted: Vec::new(),
            begun: None,
            granted: None,
        }
    }

    /// The same, of an operation that resumes so.
    pub fn of(resumes: Resumes) -> Self {
        Self { declared: Some(resumes.list), ..Self::none(resumes.within) }
    }

    /// What a handler does about the phase of this name, its `place`-th, whose provider remembers keys for `keys_live`.
    ///
    /// `begun` is by another worker's clock, which may be ahead of ours, and our request takes time to arrive.
    pub fn next(&self, place: usize, name: &str, keys_live: Duration, now: Timestamp) -> Next<'_> {
        if let Some(kept) = self.kept.get(place) {
            return match (&kept.result, self.noted(name)) {
                _ if kept.name != name => Next::Mismatch,
                (Some(result), _) => Next::Kept(&result.text),
                (None, Some(Phase { result: Some(result), .. })) => Next::Noted(&result.text),
                (None, _) => Next::Ask { made: true },
            };
        }
        match self.noted(name) {
            Some(Phase { result: Some(result), .. }) => Next::Noted(&result.text),
            noted => self.next_unread(place, noted.is_some(), keys_live, now),
        }
    }

    /// The same, if no result can be read. If the call was `made`, the same key gives its result while the provider remembers it. Of a kept
    /// one nobody knows for how long that is.
    pub fn next_unread(
        &self,
        place: usize,
        made: bool,
        keys_live: Duration,
        now: Timestamp,
    ) -> Next<'static> {
        match self.begun {
            _ if self.kept.len() > place => Next::Ask { made: true },
            Some(begun) if begun.plus(keys_live) <= now.plus(ARRIVAL_TIME) => Next::Ask { made },
            None if made => Next::Ask { made },
            _ => Next::Call,
        }
    }

    /// These, with one more recovery point: what was escalated waits for a retry again.
    pub(super) fn recovered(&self) -> Self {
        Self { granted: self.granted.filter(|granted| *granted != Timestamp::MAX), ..self.clone() }
    }

    /// Whether the record knows, or suspects, that a phase was made.
    pub(super) fn has_any(&self) -> bool {
        !self.kept.is_empty() || !self.noted.is_empty() || self.begun.is_some()
    }

    /// The phase of this name, kept or noted.
    pub(super) fn find(&self, name: &str) -> Option<&Phase> {
        self.kept.iter().chain(&self.noted).find(|phase| phase.name == name)
    }

    /// What others report of the phase of this name.
    pub(super) fn noted(&self, name: &str) -> Option<&Phase> {
        self.noted.iter().find(|noted| noted.name == name)
    }

    /// This phase, without its result if there is no room for it.
    pub(super) fn fitted(&self, phase: Phase) -> Phase {
        let others = self.kept.iter().chain(&self.noted).filter(|other| other.name != phase.name);
        let used: usize =
            others.filter_map(|other| other.result.as_ref()).map(|result| result.text.len()).sum();
        let fits = |result: &PhaseResult| {
            is_always_kept(&result.text) || used + result.text.len() <= MAX_PHASE_RESULTS
        };
        let result = phase.result.filter(fits);
        Phase { result, ..phase }
    }

    /// The same, with the result of a phase that was kept without it, as its handler has it now: each later execution sees it. `None` if it has its
    /// result, or there is no room for it.
    pub(super) fn with_result(&self, phase: &Phase) -> Option<Self> {
        let mut next = self.clone();
        let place = next.kept.iter().position(|kept| kept.name == phase.name && kept.result.is_none())?;
        let fitted = self.fitted(phase.clone());
        let kept = &mut next.kept[place];
        kept.result = Some(fitted.result?);
        if kept.references.is_empty() {
            kept.references = fitted.references;
        }
        next.noted.retain(|noted| noted.name != phase.name);
        Some(next)
    }

    /// The kept phases of a settled record: a late report of one is no contradiction, unless its result differs.
    pub(super) fn digested(self) -> Self {
        let digested = |phase: Phase| {
            let result = phase.result.map(|result| PhaseResult::digested(result.digest));
            Phase { result, ..phase }
        };
        Self { kept: self.kept.into_iter().map(digested).collect(), ..Self::none(self.resume_within) }
    }
}
