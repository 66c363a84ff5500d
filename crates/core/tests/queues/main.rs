//! Consume queues and the index.

#[path = "../common/mod.rs"]
mod common;
mod index;
mod queue_cuts;
mod queue_gaps;
mod queues;
