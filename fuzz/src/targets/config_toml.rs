//! `config::load`: a configuration file, and one option of the command line.
//!
//! Input: a file; its first line is tried as a setting, too. What is understood reads back the same, and a mistake is one line with a place in the file.

use config::{Config, Setting, load};

pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match load::parse(text) {
        Ok(config) => {
            let written = toml::to_string(&config).expect("every configuration can be written");
            assert_eq!(load::parse(&written).expect("what was written reads"), config);
            assert!(config.warnings().iter().all(|warning| !warning.contains('\n')));
            // Again while it runs, as at SIGHUP.
            drop(Config::default().reloaded(&config));
        }
        Err(mistake) => super::check_mistake(text, &mistake),
    }
    if let Err(message) = text.lines().next().unwrap_or_default().parse::<Setting>() {
        assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
    }
}
