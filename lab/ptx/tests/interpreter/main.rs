//! Interpreter against references.

#![allow(
    clippy::cast_abs_to_unsigned,
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::float_cmp,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::many_single_char_names,
    clippy::panic,
    clippy::precedence,
    clippy::print_stdout,
    clippy::similar_names,
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::unreadable_literal,
    reason = "tests of numbers of any width and sign"
)]

mod approximate;
mod common;
mod forms;
mod grids;
mod kernels;
mod machine;
mod matrices;
