//! `config::load`: a configuration file, and an option of the command line.
//!
//! Input: a file, whose first line is also tried as a setting. A valid configuration round-trips,
//! and a mistake is one line with a place in the file.

use config::{Config, Setting, load};

pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match load::parse(text) {
        Ok(config) => {
            let written = toml::to_string(&config).expect("every configuration can be written");
            assert_eq!(load::parse(&written).expect("what was written reads"), config);
            assert!(config.warnings().iter().all(|warning| !warning.contains('\n')));
            // Reload at run time, as at SIGHUP.
            drop(Config::default().reloaded(&config));
        }
        Err(mistake) => super::check_mistake(text, &mistake),
    }
    if let Err(error) = text.lines().next().unwrap_or_default().parse::<Setting>() {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
    }
}
