//! Tests of planners on small cases made by hand, on random ones, and on published traces if these
//! are present.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test fails by panicking")]

mod orders;
mod placements;
mod published;
mod replay;
mod savings;
mod support;
mod swaps;
