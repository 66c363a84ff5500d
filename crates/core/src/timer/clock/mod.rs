//! The clock that slots fire by, and what fired before it was set back.

pub(super) mod fired;
pub(super) mod steady;
