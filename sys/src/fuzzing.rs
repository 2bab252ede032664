//! Private parsers, for fuzz targets; nothing else needs it.

pub use crate::actor::fuzzing::{DESCRIPTORS_MAX, Language, Received, receive_packet};
