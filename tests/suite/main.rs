//! What the library promises, shown on real stores.
