//! Planners: on small cases made by hand, on random ones, and on published traces where they are.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod orders;
mod placements;
mod published;
mod replay;
mod savings;
mod support;
mod swaps;
