//! Runs the probes on a kernel without kprobes.
//!
//! The unmodified programs are attached to functions of this process that stand for the driver's: see [`driver`]. The kernel delivers
//! the same registers, so that everything from decoding to user space is the real thing; only the reading of memory is told, by
//! the layout, to look in user memory. Needs root.

pub mod bench;
pub mod driver;
pub mod flood;
pub mod image;
pub mod uprobe;
