//! Metrics as scraped.

/// Series of an exposition without `hostname`, which is a label of every metric.
///
/// # Panics
///
/// If a series lacks it.
#[must_use]
pub fn without_hostname(exposition: &str) -> String {
    let mut text = String::with_capacity(exposition.len());
    for line in exposition.lines() {
        match line.split_once("{hostname=\"") {
            Some((name, rest)) if !line.starts_with('#') => {
                let (_, rest) = rest.split_once('"').unwrap_or_else(|| panic!("not a label: {line}"));
                text += name;
                match rest.strip_prefix(',') {
                    Some(labels) => {
                        text.push('{');
                        text += labels;
                    }
                    None => text += rest.strip_prefix('}').unwrap_or_else(|| panic!("not a label: {line}")),
                }
            }
            _ => {
                assert!(line.starts_with('#'), "a series without hostname: {line}");
                text += line;
            }
        }
        text.push('\n');
    }
    text
}
