//! One file for each target, in the order of this table.

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(mod $name;)+

        /// All targets.
        pub const TARGETS: &[crate::Target] = &[$(crate::Target { name: stringify!($name), run: $name::run }),+];
    };
}

targets! {
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
    records,
    trace,
    machine_toml,
}

/// The input before a separator and behind it; `None` where there is none.
fn split_once<'a>(input: &'a [u8], separator: &[u8]) -> (&'a [u8], Option<&'a [u8]>) {
    match input.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (&input[..at], Some(&input[at + separator.len()..])),
        None => (input, None),
    }
}

/// Text for a terminal has nothing in it that commands one, nor what changes the order of the text around it.
fn check_printable(text: &str) {
    let is_unsafe = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if let Some(found) = text.chars().find(is_unsafe) {
        panic!("{found:?} is printed: {text:?}");
    }
}

/// A mistake in a file is told in one line, with a place that the file has.
fn check_mistake(text: &str, mistake: &config::Mistake) {
    let told = mistake.to_string();
    assert!(!told.is_empty() && !told.contains('\n'), "{told:?}");
    assert!((1..=text.matches('\n').count() + 1).contains(&mistake.line), "{mistake:?}");
}
