//! Shell completion: commands, options, and the names that uvmd knows.
//!
//! The shell runs `uvmctl` with [`VARIABLE`] set. `uvmctl` then prints candidates only, even after
//! an error, and uses a short timeout for uvmd.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
};

use anyhow::bail;
use api::{ProcessSummaries, decision::Decisions, rule::Overrides};
use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::{
    CompleteEnv, Shell,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};

use crate::{
    Options,
    client::{self, Client},
    resource::Kind,
    text,
};

/// Environment variable by which a shell's script requests candidates.
const VARIABLE: &str = "UVMCTL_COMPLETE";
const PROGRAM: &str = "uvmctl";
/// Maximum of candidates. A shell requests them at each key press.
const COUNT_MAX: usize = 500;

/// Prints candidates and exits, if a shell requests them.
pub(crate) fn complete_if_requested() {
    CompleteEnv::with_factory(Options::command).var(VARIABLE).bin(PROGRAM).complete();
}

/// Prints the completion script of a shell.
pub(crate) fn script(shell: Shell) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(&shell.to_string()) else { bail!("there is no script for {shell}") };
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    Ok(io::stdout().write_all(&script)?)
}

/// PIDs, with the names of their processes.
pub(crate) fn processes() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let path = format!("/api/v1/processes/summary?limit={COUNT_MAX}");
        let known = fetch::<ProcessSummaries>(&path).map(|known| known.processes).unwrap_or_default();
        let names = known.into_iter().map(|process| (process.pid.to_string(), process.name));
        candidates(word, Kind::Process, names)
    })
}

/// Ids of overrides, with their modes.
pub(crate) fn overrides() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let path = format!("/api/v1/overrides?limit={COUNT_MAX}");
        let known = fetch::<Overrides>(&path).map(|known| known.overrides).unwrap_or_default();
        let names = known.into_iter().map(|known| known.r#override);
        candidates(word, Kind::Override, names.filter_map(|each| Some((each.id?, each.mode))))
    })
}

/// Ids of decisions, with their policies and processes.
pub(crate) fn decisions() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let path = format!("/api/v1/decisions?limit={COUNT_MAX}");
        let known = fetch::<Decisions>(&path).map(|known| known.decisions).unwrap_or_default();
        let help = |each: &api::decision::Decision| format!("{} for {} {}", each.policy, each.pid, each.name);
        candidates(word, Kind::Decision, known.iter().map(|each| (each.id.to_string(), help(each))))
    })
}

/// Ids that start with the word; prefixed by their kind if the word has a slash.
fn candidates(word: &OsStr, kind: Kind, names: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    let candidate = |(id, help): (String, String)| {
        let name = kind.named(&id);
        // An id must be a word of the shell, so unprintable ones are omitted.
        let value = if word.contains('/') { name } else { id };
        let is_plain = text::printable(&value) == value && !value.contains(char::is_whitespace);
        let help = text::printable(&help).into_owned();
        (is_plain && value.starts_with(word)).then(|| CompletionCandidate::new(value).help(Some(help.into())))
    };
    names.filter_map(candidate).collect()
}

/// Response of uvmd; `None` after any error.
fn fetch<T: serde::de::DeserializeOwned>(path: &str) -> Option<T> {
    let options = client_options(std::env::args_os().skip_while(|word| word != "--").skip(1))?;
    Some(Client::brief(options).ok()?.get(path).ok()?.body)
}

/// Client options of an incomplete command line; `None` if one is invalid, as another daemon's names
/// would mislead.
fn client_options(words: impl Iterator<Item = OsString>) -> Option<client::Options> {
    let line = <client::Options as clap::Args>::augment_args(Command::new(PROGRAM)).disable_help_flag(true);
    // Global options may follow the command, whose options are unknown here: parse known options
    // only.
    let words = joined(words.skip(1));
    let is_option = |word: &OsString| {
        ["--url", "--socket", "--socket-owner", "--token-file"].iter().any(|option| names_option(word, option))
    };
    let pairs = words.iter().enumerate().filter(|(_, word)| is_option(word));
    let arguments = pairs.flat_map(|(at, word)| {
        let value = if word.to_string_lossy().contains('=') { None } else { words.get(at + 1) };
        [Some(word), value].into_iter().flatten()
    });
    let line_arguments = [OsString::from(PROGRAM)].into_iter().chain(arguments.cloned());
    let matches = line.try_get_matches_from(line_arguments).ok()?;
    Some(client::Options::from_arg_matches(&matches).ok()?.by_source(&matches))
}

/// Words as typed: bash splits them at `:` and `=`.
fn joined(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let is_break = |word: &OsStr| word == ":" || word == "=";
    let mut merged: Vec<OsString> = Vec::new();
    let mut follows_break = false;
    for word in words {
        match merged.last_mut() {
            Some(last) if follows_break || is_break(&word) => last.push(&word),
            _ => merged.push(word.clone()),
        }
        follows_break = is_break(&word);
    }
    merged
}

fn names_option(word: &OsStr, option: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<client::Options> {
        client_options(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn client_options_are_found_beside_others() {
        let named = |line: &str, part: &str| format!("{:?}", parsed(line).unwrap()).contains(part);
        assert!(named("uvmctl policy set --url http : //gpu-17 --pid", "http://gpu-17"));
        assert!(named("uvmctl --socket /run/one.sock explain --full 4", "/run/one.sock"));
        assert!(named("uvmctl explain 4 --socket-owner 1234", "1234"));
    }

    #[test]
    fn an_invalid_client_option_does_not_select_the_default_daemon() {
        assert!(parsed("uvmctl --url nonsense explain 4").is_none());
        assert!(parsed("uvmctl explain 4 --url").is_none());
        assert!(parsed("uvmctl --socket-owner no-such-user explain 4").is_none());
    }
}
