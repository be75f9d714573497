//! Gives each variant of an enum one fixed name, for items and logs.

macro_rules! names {
    ($vis:vis $type:ident { $($variant:ident: $name:literal),+ $(,)? }) => {
        impl $type {
            /// The name in items and logs.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Reads a [`name`](Self::name).
            $vis fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Each of them.
            $vis const EACH: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}
pub(super) use names;
