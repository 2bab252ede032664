//! SIGHUP: all configuration is read again, and takes effect completely or not at all.

use std::time::Duration;

use anyhow::{Context, bail};
use collector::Collector;
use config::{Config, Loaded};
use model::Override;
use tokio::{
    sync::{oneshot, watch},
    task::{self, JoinHandle},
    time,
};
use web::{Protection, Reloads, Service, Warning, Warnings};

use super::{hosts, retention};
use crate::{
    acting::Rates,
    audit::{Audit, Change, Outcome},
    log::Logging,
    notify,
    options::Options,
    rules::{self, Rules},
    token,
    token::Tokens,
    web_config,
};

/// Time limit of the read: a file on a disk that hangs counts as invalid.
const READING: Duration = Duration::from_secs(10);

/// Reload of the configuration, with the parts that it can change.
pub(super) struct Reloader<'a> {
    pub(super) options: &'a Options,
    pub(super) config: Config,
    /// Names of this machine, if any.
    pub(super) own_names: Vec<String>,
    pub(super) log: &'a Logging,
    pub(super) tokens: Tokens,
    pub(super) rules: Rules,
    pub(super) audit: Audit,
    pub(super) rates: watch::Sender<Rates>,
    pub(super) service: Service,
    pub(super) protection: Protection,
    pub(super) reloads: Reloads,
    pub(super) warnings: Warnings,
    /// Last read, which may still wait for a disk.
    pub(super) reading: Option<JoinHandle<()>>,
}

/// Contents of all files, valid.
struct Read {
    loaded: Loaded,
    tokens: token::Found,
    protected: web_config::Contents,
    overrides: Vec<Override>,
}

impl Read {
    /// Reads the files. May wait for a disk.
    fn now(options: &Options) -> anyhow::Result<Self> {
        let loaded = options.load()?;
        let tokens = token::read(&loaded.config.auth)?;
        let protected = web_config::read(&loaded.config)?;
        let overrides = rules::load_settled(&loaded.config.policy.overrides_file.0)?;
        Ok(Self { loaded, tokens, protected, overrides })
    }
}

impl Reloader<'_> {
    /// Reloads the configuration, and logs the result.
    pub(super) async fn reload(&mut self, collector: &Collector) {
        notify::reloading();
        // Log rotation must work in spite of a mistake in another file.
        self.log.reopen();
        self.audit.reopen();
        match self.read().await {
            Ok(read) => {
                let file = read.loaded.names();
                let (config, changed, restart_required) = self.compare(&read.loaded.config);
                let change = self.change(file.clone(), &config, &changed, &restart_required);
                self.record(change).await;
                self.apply(config, read, collector).await;
                let of = file.as_deref().unwrap_or("the configuration");
                let changed = if changed.is_empty() { "no option".to_owned() } else { changed.join(", ") };
                tracing::info!("reloaded {of}: {changed} changed");
                if !restart_required.is_empty() {
                    tracing::warn!("needs a restart: {}", restart_required.join(", "));
                }
                self.warnings.clear(Warning::ConfigurationNotReloaded);
                self.reloads.succeeded(&self.config, restart_required);
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.audit.failed(None, &self.change(None, &self.config, &[], &[]), error.clone());
                tracing::error!("not reloaded, the former configuration stays in effect: {error}");
                self.warnings.raise(Warning::ConfigurationNotReloaded, format!("not reloaded: {error}"));
                self.reloads.failed(error);
            }
        }
        notify::ready();
    }

    async fn read(&mut self) -> anyhow::Result<Read> {
        // At most one thread may hang on a disk, however many reloads are requested.
        if self.reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            bail!("the files are still being read since the last SIGHUP");
        }
        let options = self.options.clone();
        let (done, is_done) = oneshot::channel();
        self.reading = Some(task::spawn_blocking(move || drop(done.send(Read::now(&options)))));
        let read = time::timeout(READING, is_done).await;
        read.with_context(|| format!("the files could not be read within {} s", READING.as_secs()))??
    }

    /// The resulting configuration, the changed options, and those that require a restart.
    fn compare(&self, new: &Config) -> (Config, Vec<String>, Vec<String>) {
        let config = self.config.reloaded(new);
        let (changed, restart_required) = (self.config.differences(&config), config.differences(new));
        (config, changed, restart_required)
    }

    fn change(&self, file: Option<String>, config: &Config, changed: &[String], restart_required: &[String]) -> Change {
        Change::ConfigurationReload {
            file,
            changed: changed.to_vec(),
            restart_required: restart_required.to_vec(),
            etag_before: web::etag(&self.config),
            etag_after: web::etag(config),
            result: Outcome::Accepted,
        }
    }

    /// A user who can change the files can do more than this: an audit log that cannot be written
    /// does not prevent it.
    async fn record(&self, change: Change) {
        let audit = self.audit.clone();
        let _ = task::spawn_blocking(move || audit.change(None, &change, false)).await;
    }

    /// Applies the configuration; this cannot fail.
    async fn apply(&mut self, config: Config, read: Read, collector: &Collector) {
        let Read { loaded: _, tokens, protected, overrides } = read;
        self.log.set_filter(&config.log.filter);
        self.tokens.follow(tokens).await;
        protected.apply(&config, &self.protection);
        self.rules.reload(&config.policy, overrides);
        self.rates.send_replace(Rates::of(&config.policy));
        collector.retain(retention(&config.collector));
        let own_names = self.own_names.iter().chain(config.hostname.iter().map(|name| &name.0));
        self.service.change(hosts(config.http.clone(), own_names), config.metrics.processes());
        self.config = config;
    }
}
