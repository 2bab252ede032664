//! Arithmetic of single values.

pub(crate) mod approximate;
pub(crate) mod bits;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod round;
