//! The message store in its parts: on real disks, on one that fails, and with other forms behind its seams.

#[path = "../common/mod.rs"]
mod common;
mod light_queues;
mod replica;
mod roles;
mod seam_help;
mod store_basic;
mod store_damage;
mod store_deleted;
mod store_faults;
mod store_help;
mod store_java;
mod store_queue_ends;
mod store_recovery;
mod store_seams;
mod store_torn;
mod store_upkeep;
