//! Timer messages.

#[path = "../common/mod.rs"]
mod common;
mod timer_clock;
mod timer_damage;
mod timer_edges;
mod timer_files;
mod timer_help;
mod timer_pauses;
mod timer_steps;
mod timers;
