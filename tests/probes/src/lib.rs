//! Test bed that runs the probes on a kernel without kprobes.
//!
//! The unmodified programs are attached to functions of this process in place of the driver's: see
//! [`driver`]. The kernel delivers the same registers, so that everything from decoding to user
//! space is real; only reads of memory go to user memory, by the layout. Needs root.

pub mod bench;
pub mod driver;
pub mod flood;
pub mod image;
mod private_file;
pub mod uprobe;
