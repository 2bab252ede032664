//! Words that names and help texts do not have.

use clap::{Arg, Command};

/// Words of everyday language that stand for a noun of the field. Each was a public name once; the second is the noun in its place.
const REFUSED_WORDS: &[(&str, &str)] = &[
    ("again", "refetched"),
    ("alternations", "bounces"),
    ("answer", "result, response"),
    ("aside", "lookup cache, log writer"),
    ("asked", "requested"),
    ("considered", "candidates"),
    ("everybody", "all"),
    ("fits", "matches"),
    ("hindrances", "restrictions"),
    ("holds", "met"),
    ("kept", "confirmed"),
    ("lost", "dropped, missing"),
    ("made", "created_at"),
    ("over", "ended"),
    ("pieces", "chunks"),
    ("pushed", "evicted"),
    ("renew", "touch"),
    ("said", "reported"),
    ("strays", "orphans"),
    ("taken", "reclaimed"),
    ("told", "reported"),
    ("trouble", "last_error"),
    ("undone", "rolled_back"),
    ("untold", "unavailable"),
    ("upkeep", "renewal, lifetime"),
    ("what", "description"),
    ("who", "owner, requester"),
    ("whom", "selector"),
    ("why", "reason"),
    ("wish", "directive"),
];

/// Names of more than one word, as far as their words alone are no mistake.
const REFUSED_NAMES: &[&str] = &[
    "asked_by",
    "batch_service_ns",
    "call_size",
    "called_off",
    "changed_at",
    "ended_max",
    "handler_ns",
    "held_back",
    "in_force",
    "left_out",
    "not_accessed_by",
    "of_ideal",
    "off_by",
    "owners_max",
    "prefer_nothing",
    "read_authority",
    "returned_bytes",
];

/// Words of [`REFUSED_WORDS`] that are right in a sentence: a window over which rates are measured, an output that fits the terminal.
const RIGHT_IN_SENTENCES: &[&str] = &["fits", "over"];

/// Identifiers of a line: letters, digits, `_` and `-` together.
pub fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !(character.is_ascii_alphanumeric() || "_-".contains(character)))
        .map(|name| name.trim_matches('-'))
        .filter(|name| !name.is_empty())
}

/// Objection to the words of a name, if any.
#[must_use]
pub fn refused(name: &str) -> Option<String> {
    let name = name.replace('-', "_").to_lowercase();
    if REFUSED_NAMES.contains(&name.as_str()) {
        return Some(format!("`{name}` is no name of the field"));
    }
    let (word, noun) = REFUSED_WORDS.iter().find(|(word, _)| name.split('_').any(|part| part == *word))?;
    Some(format!("`{name}` has the word `{word}`: {noun}?"))
}

/// Objections to the help of a command and all its subcommands.
#[must_use]
pub fn refused_in_help(command: &Command) -> Vec<String> {
    let mut built = command.clone();
    built.build();
    let mut wrong = Vec::new();
    let mut commands = vec![&built];
    while let Some(command) = commands.pop() {
        let name = command.get_name();
        let texts = [command.get_about(), command.get_long_about(), command.get_after_help()];
        let of_arguments = command.get_arguments().flat_map(help);
        for text in texts.into_iter().flatten().map(ToString::to_string).chain(of_arguments) {
            let words = text.split(|character: char| !character.is_alphanumeric());
            let refused =
                words.filter(|word| !RIGHT_IN_SENTENCES.contains(&word.to_lowercase().as_str())).filter_map(refused);
            wrong.extend(refused.map(|reason| format!("{name}: {reason} in {text:?}")));
        }
        // clap's own.
        commands.extend(command.get_subcommands().filter(|command| command.get_name() != "help"));
    }
    wrong
}

/// Of an argument and its values.
fn help(argument: &Arg) -> Vec<String> {
    let values = argument.get_possible_values();
    let of_values = values.iter().filter_map(|value| value.get_help());
    let own = [argument.get_help(), argument.get_long_help()].into_iter().flatten();
    own.chain(of_values).map(ToString::to_string).collect()
}
