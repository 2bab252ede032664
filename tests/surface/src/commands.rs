//! A command line as text: each command with its arguments, their values and defaults. Descriptions are no surface.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

/// The surface of a command and all its subcommands, one line for each argument.
#[must_use]
pub fn commands(command: &Command) -> String {
    let mut built = command.clone();
    built.build();
    let mut text = String::new();
    add(&mut text, &built, "");
    text
}

fn add(text: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent}{}", command.get_name());
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name}");
    let is_shown = |arg: &&Arg| {
        let is_inherited = arg.is_global_set() && !parent.is_empty();
        !arg.is_hide_set() && !is_inherited && !matches!(arg.get_id().as_str(), "help" | "version")
    };
    for arg in command.get_arguments().filter(is_shown) {
        let _ = writeln!(text, "  {}", argument(arg));
    }
    if let Some(codes) = exit_codes(command) {
        let _ = writeln!(text, "  {codes}");
    }
    for each in command.get_subcommands().filter(|each| each.get_name() != "help" && !each.is_hide_set()) {
        add(text, each, &format!("{name} "));
    }
}

/// One argument: its names, the names of its values, its default and the choice there is.
fn argument(arg: &Arg) -> String {
    let mut text = match (arg.get_long(), arg.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
    if matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) {
        let names = arg.get_value_names().unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| format!("<{name}>")).collect();
        let names = names.join(" ");
        text = if text.is_empty() { names } else { format!("{text} {names}") };
    }
    if matches!(arg.get_action(), ArgAction::Append) {
        text += " repeated";
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::Count) {
        let _ = write!(text, " = {}", defaults.join(" "));
    }
    let choice: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !choice.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
        let _ = write!(text, " of {}", choice.join("|"));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " ${}", variable.to_string_lossy());
    }
    if arg.is_global_set() {
        text += " global";
    }
    if arg.is_required_set() {
        text += " required";
    }
    text
}

/// The sentence of the help that lists the exit codes.
fn exit_codes(command: &Command) -> Option<String> {
    let help = command.get_after_long_help().or(command.get_after_help())?.to_string().replace('\n', " ");
    let start = help.find("Exit codes:")?;
    Some(help.get(start..)?.split(". ").next()?.to_owned())
}
