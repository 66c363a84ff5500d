//! Power loss and disks that fail, at every operation of the disk.

#[path = "../common/mod.rs"]
mod common;
mod powerloss;
mod powerloss_faults;
mod powerloss_regressions;
