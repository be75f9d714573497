//! Ids of sixteen fresh bytes.

use crate::time::Timestamp;

macro_rules! nonce {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Its bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = ::hex::FromHexError;

            /// From 32 hex digits.
            fn from_str(digits: &str) -> Result<Self, Self::Err> {
                let mut bytes = [0; 16];
                ::hex::decode_to_slice(digits, &mut bytes)?;
                Ok(Self(bytes))
            }
        }

        impl From<[u8; 16]> for $name {
            /// From fresh bytes, or from stored ones.
            fn from(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:08x}…)"), u128::from_be_bytes(self.0) >> 96)
            }
        }
    };
}
pub(super) use nonce;

nonce! {
    /// The id of one write. It is the fence and the optimistic lock. It also shows a writer that a write whose answer was lost
    /// was applied.
    Revision
}

nonce! {
    /// The id of one execution of a handler, from reservation to its last write. It is never Lambda's request id: Lambda reuses
    /// that when it retries.
    AttemptId
}

/// What a transition may use besides records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The revision for the write that it may ask for.
    pub revision: Revision,
    /// The wall clock's time.
    pub now: Timestamp,
}
