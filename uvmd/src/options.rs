//! Command line, which overrides the configuration file.

use std::path::PathBuf;

use clap::Parser;
use config::{
    ConfigError, Loaded, Setting,
    value::{Hostname, Interval, Listen, LogFilter, Retention, Value, of_word},
};

/// Service that counts, by process and GPU, the faults and migrations of NVIDIA's UVM driver, and
/// acts on them where enabled.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = "Waits for the driver and for kprobes; /readyz names the missing one.")]
pub(crate) struct Options {
    /// Configuration file [default: /etc/uvmd/uvmd.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, print the configuration in effect, and exit
    #[arg(long)]
    pub(crate) check_config: bool,

    /// Withdraw advice that a former uvmd left in force, report the result for each process, and
    /// exit; with 0 if none is left. Needs neither probes nor a valid configuration: the journal is
    /// in the state folder
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) withdraw: bool,

    /// Write the man page into a folder, and exit; for packages
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,

    /// Override an option of the configuration file, as in --set log.format=json
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Setting>,

    /// TCP address to serve on, or "none". Its clients can read all but command lines and addresses
    /// [default: 127.0.0.1:9477]
    #[arg(long, value_name = "ADDR:PORT", env = "UVMD_LISTEN", value_parser = of_word::<Listen>)]
    listen: Option<Listen>,

    /// Interval between readings of the counters [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = of_word::<Interval>)]
    interval: Option<Interval>,

    /// Retention of exited processes [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = of_word::<Retention>)]
    ended_retention: Option<Retention>,

    /// Name of this node in metrics and status [default: the host's name]
    #[arg(long, value_name = "NAME", env = "UVMD_HOSTNAME", value_parser = of_word::<Hostname>)]
    hostname: Option<Hostname>,

    /// Log level: off, error, warn, info, debug, trace; or by part, as in info,collector=debug
    /// [default: info]
    #[arg(long, value_name = "FILTER", env = "UVMD_LOG", value_parser = of_word::<LogFilter>)]
    log: Option<LogFilter>,

    /// Log more: -v is debug, -vv is trace
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Options {
    /// State folder, despite mistakes in other options.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, ConfigError> {
        config::state_dir(self.config.as_deref(), &self.settings)
    }

    /// Configuration from the command line and the file.
    pub(crate) fn load(&self) -> Result<Loaded, ConfigError> {
        let Self {
            config: file,
            check_config: _,
            withdraw: _,
            man: _,
            settings,
            listen,
            interval,
            ended_retention,
            hostname,
            log,
            verbose,
        } = self.clone();
        let mut loaded = config::load(file.as_deref(), &settings)?;
        let config = &mut loaded.config;
        override_with(&mut config.listen, listen);
        override_with(&mut config.collector.interval, interval);
        override_with(&mut config.collector.ended_retention, ended_retention);
        override_with(&mut config.hostname, hostname.map(Some));
        override_with(&mut config.log.filter, more_log(verbose).or(log));
        Ok(loaded)
    }
}

fn override_with<T>(value: &mut T, over: Option<T>) {
    if let Some(over) = over {
        *value = over;
    }
}

/// Filter for uvmd's own parts; debug output of libraries has to be selected by name, with --log.
fn more_log(verbose: u8) -> Option<LogFilter> {
    let level = match verbose {
        0 => return None,
        1 => "debug",
        _ => "trace",
    };
    LogFilter::of_text(&format!("info,uvmd={level},collector={level},web={level}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use config::Config;

    use super::*;

    fn load(arguments: &[&str]) -> Config {
        Options::parse_from(["uvmd", "--config", "/dev/null"].iter().chain(arguments)).load().unwrap().config
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_command_line_is_that_of_the_golden_file() {
        surface::hold("uvmd.txt", &surface::commands(&Options::command().name("uvmd")));
    }

    #[test]
    fn the_help_has_the_words_of_the_field() {
        assert_eq!(surface::refused_in_help(&Options::command()), Vec::<String>::new());
    }

    #[test]
    fn by_default_only_this_machine_is_served() {
        assert!(matches!(load(&[]).listen, Listen::On(address) if address.ip().is_loopback()));
        assert_eq!(load(&["--listen", "none"]).listen, Listen::None);
    }

    #[test]
    fn options_override_settings_which_override_the_file() {
        assert_eq!(load(&[]), Config::default());
        let config =
            load(&["--set", "collector.interval=2s", "--interval", "3s", "--set", "hostname=a", "--log", "warn"]);
        let mut expected = Config::default();
        expected.collector.interval = Interval::of_text("3s").unwrap();
        expected.hostname = Hostname::of_text("a");
        expected.log.filter = LogFilter::of_text("warn").unwrap();
        assert_eq!(config, expected);
    }

    #[test]
    fn verbose_applies_to_uvmds_own_parts() {
        let filter = load(&["-v", "--log", "off"]).log.filter.targets();
        assert!(filter.would_enable("collector", &tracing::Level::DEBUG));
        assert!(!filter.would_enable("hyper", &tracing::Level::DEBUG));
    }

    #[test]
    fn the_defaults_in_the_help_are_those_in_force() {
        let help = Options::command().render_help().to_string();
        let Config { listen, collector, log, .. } = Config::default();
        let shown = |value: serde_json::Value| format!("[default: {}]", value.as_str().unwrap());
        for text in [
            format!("[default: {listen}]"),
            shown(serde_json::to_value(collector.interval).unwrap()),
            shown(serde_json::to_value(collector.ended_retention).unwrap()),
            shown(serde_json::to_value(log.filter).unwrap()),
            format!("[default: {}, if it is there]", config::DEFAULT_FILE),
        ] {
            assert!(help.contains(&text), "{text} is not in {help}");
        }
    }
}
