//! One file for each target, in the order of this table.

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(mod $name;)+

        /// All targets.
        pub const TARGETS: &[crate::Target] = &[$(crate::Target { name: stringify!($name), run: $name::run }),+];
    };
}

targets! {
    accessor_wire,
    actor_wire,
    answers,
    btf,
    config_toml,
    event_stream,
    http,
    journal,
    node_files,
    override_json,
    override_toml,
    pages,
    plan_memory,
    planner_answers,
    plans,
    recordings,
    records,
    tools_counts,
    tools_queue,
    tools_records,
    trace,
    machine_toml,
    web_config,
}

/// Input before a separator and after it; `None` without one.
fn split_once<'a>(input: &'a [u8], separator: &[u8]) -> (&'a [u8], Option<&'a [u8]>) {
    match input.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (&input[..at], Some(&input[at + separator.len()..])),
        None => (input, None),
    }
}

/// Checks that text for a terminal contains no control sequences, nor characters that reorder the
/// text around them.
fn check_printable(text: &str) {
    let is_unsafe = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if let Some(found) = text.chars().find(is_unsafe) {
        panic!("{found:?} is printed: {text:?}");
    }
}

/// Checks that a mistake in a file is one line, with a place in the file.
fn check_mistake(text: &str, mistake: &config::Mistake) {
    let text_of_mistake = mistake.to_string();
    assert!(!text_of_mistake.is_empty() && !text_of_mistake.contains('\n'), "{text_of_mistake:?}");
    assert!((1..=text.matches('\n').count() + 1).contains(&mistake.line), "{mistake:?}");
}
