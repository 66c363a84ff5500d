//! What the targets share: the simulated disk of the core's tests.

#[path = "../../tests/common/mod.rs"]
pub mod common;
