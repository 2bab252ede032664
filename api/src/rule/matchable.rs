//! Whether a selector can match any process: what cannot is a mistake of its author.

use model::Selector;

use super::parse::{Invalid, invalid};

/// Length of a container's id.
const CONTAINER_ID_DIGITS: usize = 64;
/// Length of a pod's UID, and of the least part of it that names a pod: names of pods, such as
/// `cafe`, may have the characters of one.
const POD_UID_CHARACTERS: usize = 36;
const POD_UID_CHARACTERS_MIN: usize = 8;
/// Maximum length of a Slurm job's id.
const JOB_ID_CHARACTERS: usize = 64;
/// Maximum length of a process's short name (comm).
const NAME_CHARACTERS: usize = 15;

/// Checks that a selector can match a process.
///
/// # Errors
///
/// The first pattern that no process can have. An override that another version accepted may have one.
pub fn check_matchable(selector: &Selector) -> Result<(), Invalid> {
    let Selector { executable, container, pod, job, .. } = selector;
    if let Some(text) = container
        && !may_be(text, CONTAINER_ID_DIGITS, is_lower_hexadecimal)
    {
        let detail = "expected a container id or its beginning, in lower-case hexadecimal digits, not";
        return Err(invalid("match.container", format!("{detail} {text:?}")));
    }
    if let Some(text) = pod
        && (!may_be(text, POD_UID_CHARACTERS, |c| c == '-' || is_lower_hexadecimal(c))
            || !text.contains('*') && text.len() < POD_UID_CHARACTERS_MIN)
    {
        let detail = "expected a pod UID in lower case, or its first 8 characters or more, such as 7c1f0c0e, not";
        return Err(invalid("match.pod", format!("{detail} {text:?}")));
    }
    if let Some(text) = job
        && !may_be(text, JOB_ID_CHARACTERS, |c| c.is_ascii_alphanumeric())
    {
        let detail = "expected the id of a Slurm job without step and array index, such as 4711, not";
        return Err(invalid("match.job", format!("{detail} {text:?}")));
    }
    if let Some(text) = executable {
        let is_path = text.contains('/');
        if is_path && !text.starts_with(['/', '*']) {
            let detail = "expected an absolute path, or a name without a folder, not";
            return Err(invalid("match.executable", format!("{detail} {text:?}")));
        }
        if !is_path && text.chars().filter(|c| *c != '*').count() > NAME_CHARACTERS {
            let detail = "the short name of a process has at most 15 bytes, and none is called";
            return Err(invalid("match.executable", format!("{detail} {text:?}")));
        }
    }
    Ok(())
}

fn is_lower_hexadecimal(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, 'a'..='f')
}

/// Whether a pattern may match a text of these characters, at most `length` of them.
fn may_be(pattern: &str, length: usize, is_expected: impl Fn(char) -> bool) -> bool {
    let mut plain = pattern.chars().filter(|c| *c != '*');
    plain.clone().count() <= length && plain.all(is_expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_that_no_process_can_have_is_refused() {
        let pod = |text: &str| Selector { pod: Some(text.to_owned()), ..Selector::default() };
        let container = |text: &str| Selector { container: Some(text.to_owned()), ..Selector::default() };
        let job = |text: &str| Selector { job: Some(text.to_owned()), ..Selector::default() };
        let executable = |text: &str| Selector { executable: Some(text.to_owned()), ..Selector::default() };
        for selector in [
            pod("7c1f0c0e"),
            pod("7c1f0c0e-2b1d-4a55-9b1c-0d7c3f1f7a10"),
            pod("7c*"),
            container("4f"),
            container(&"c".repeat(64)),
            job("4711"),
            executable("/usr/bin/python3"),
            executable("*/bin/train"),
            executable("a-name-of-15-by"),
        ] {
            assert_eq!(check_matchable(&selector), Ok(()), "{selector:?}");
        }
        for (selector, field) in [
            (pod("llm-0"), "match.pod"),
            (pod("cafe"), "match.pod"),
            (pod("7C1F0C0E"), "match.pod"),
            (pod(&format!("{}-{}", "a".repeat(32), "b".repeat(4))), "match.pod"),
            (container("nginx"), "match.container"),
            (container(&"c".repeat(65)), "match.container"),
            (job("4711_3"), "match.job"),
            (job("4711.batch"), "match.job"),
            (executable("bin/python3"), "match.executable"),
            (executable("a-name-of-16-byt"), "match.executable"),
        ] {
            assert_eq!(check_matchable(&selector).unwrap_err().field, field, "{selector:?}");
        }
    }
}
