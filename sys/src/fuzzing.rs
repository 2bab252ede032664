//! Private parsers, for fuzz targets only.

pub use crate::accessor::fuzzing::{resend_reply, resend_request};
pub use crate::actor::fuzzing::{DESCRIPTORS_MAX, Direction, Received, receive_packet};
