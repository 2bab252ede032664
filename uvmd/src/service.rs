//! A run of the service, from its state folder to a clean stop.

mod reload;
mod running;
mod start;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use collector::{Collector, Retention, SourceChoice};
use config::{
    Config, Loaded,
    value::{Crosscheck, HostNames},
};
use followers::{Followers, Planners, Probes};
use model::Verdicts;
use policy::Judge;
use reload::Reloader;
use running::Running;
use start::Start;
use sys::{Roots, capabilities::Capabilities, executable::Program, kernel};
use tokio::{runtime, sync::watch, task::JoinSet, time};
use web::{
    Controls, DecisionSource, DenialSink, Events, Hosts, Node, Protection, Reloads, Service, Snapshots, Source,
    Sources, VerdictSource, Warnings,
};

use crate::{
    VERSION,
    acting::{self, ActingHandle, Actuation, Executables, Rates},
    audit::{Audit, Denials},
    control::Control,
    crosscheck_exemptions,
    listeners::Listeners,
    log::Logging,
    notify,
    options::Options,
    own_names, owner_names,
    recording::Recorder,
    rules::Rules,
    signals::{Hangup, Signal, Signals},
    switch::Switch,
    token::{self, Tokens},
    verdicts::Judging,
    web_config,
};

/// Worker threads: enough to read counters and answer a few clients, for any number of cores.
const WORKER_THREADS: usize = 2;

/// Interval of retries to persist the kill switch.
const PERSIST_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of checks for a summary of denials.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum of blocks of a process whose returns are counted for probes: those of 128 GiB.
const RETURNS_MAX: usize = 1 << 16;

/// Set by the build script.
const COMMIT: &str = env!("UVMD_COMMIT");

/// Runs until a signal stops it.
pub(crate) fn run(options: &Options, loaded: Loaded, log: &Logging, hangup: Hangup) -> anyhow::Result<()> {
    kernel::supported(&Roots::default())?;
    Capabilities::of_this_process()?.may_probe()?;
    let start = Start::new(&loaded.config)?;
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let (audit, denials) = (start.audit.clone(), start.denials.clone());
    let result = runtime.block_on(serve(options, loaded, start, log, hangup));
    // Blocked threads must not delay the exit.
    runtime.shutdown_background();
    denials.sum_up_all();
    audit.flush();
    result
}

async fn serve(options: &Options, loaded: Loaded, start: Start, log: &Logging, hangup: Hangup) -> anyhow::Result<()> {
    let files = loaded.names();
    let config = loaded.config;
    let Start { audit, denials, rules, switch, actuation, warnings, lock: _lock } = start;
    let ready = match Ready::new(&config, log, hangup, (&audit, denials), &warnings).await {
        Ok(Some(ready)) => ready,
        // Advice of a former run is withdrawn all the same: nothing else would withdraw it.
        not_ready => return end_unready(actuation, not_ready.map(drop)),
    };
    let Ready { mut signals, tokens, protected, own_names, reloads, node, listeners, collector } = ready;
    let policy = &config.policy;

    let (stop_servers, stopped) = watch::channel(());
    let events = Events::default();
    let judge = Judge::new(config.verdicts.window.0).with_interval(config.collector.interval.0);
    let judging = Judging::start(collector.snapshots(), judge, events.clone());
    tokio::spawn(rules.clone().follow());
    tokio::spawn(switch.clone().follow(PERSIST_INTERVAL));
    let (rates, changed_rates) = watch::channel(Rates::of(policy));
    let recorder = Recorder::start(config.recordings, collector.snapshots())?;
    let planners = Planners::in_processes(Program::this());
    let followers = Followers::new(recorder.recordings(), planners, following(policy));
    let parts =
        parts(policy, &collector, &judging, (&rules, &switch), &events, (changed_rates, followers), audit.clone());
    let executables = parts.executables.clone();
    let acting_handle = ActingHandle::start(parts, actuation)?;
    let reader = acting_handle.reader();
    if config.collector.crosscheck == Crosscheck::Sampled {
        tokio::spawn(crosscheck_exemptions::follow(judging.latest(), reader.clone(), collector.exemptions()));
    }
    let control = Control {
        rules: rules.clone(),
        switch,
        enabled: policy.enabled,
        reader: reader.clone(),
        executables,
        audit: audit.clone(),
    };
    let sources = Sources {
        decisions: DecisionSource::new(move || reader.decisions()),
        events: events.clone(),
        controls: Controls::new(control),
        ops: recorder.ops(),
        traces: recorder.traces(),
        ..sources(&collector.snapshots(), judging.latest())
    };
    let service = Service::new(node, sources);
    let mut servers = JoinSet::new();
    let protection = Protection::default();
    protected.apply(&config, &protection);
    listeners.serve(&service, &protection, &warnings, &stopped, &mut servers);
    if let Some(files) = files {
        tracing::info!("configured by {files}");
    }
    for remark in config.warnings() {
        tracing::warn!("{remark}");
    }
    notify::ready();
    let loops = recorder.turns().into_iter().chain([acting_handle.turns()]).collect();
    let supervision = tokio::spawn(notify::while_working(collector.snapshots(), loops, warnings.clone()));

    let mut running = Running { collector, judging, acting_handle, events, servers, stop_servers, supervision };
    let mut reloader = Reloader {
        options,
        config,
        own_names,
        log,
        tokens,
        rules,
        audit,
        rates,
        service,
        protection,
        reloads,
        warnings,
        reading: None,
    };
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Stop(signal) => return running.stop(signal, &mut signals).await,
                Signal::Reload => tokio::select! {
                    () = reloader.reload(&running.collector) => {}
                    signal = signals.stop() => return running.stop(signal, &mut signals).await,
                },
            },
            error = running.ended() => {
                running.give_up().await;
                return Err(error);
            }
        }
    }
}

/// Listeners and their addresses.
struct Ready {
    signals: Signals,
    tokens: Tokens,
    protected: web_config::Contents,
    /// Names of this machine, if any.
    own_names: Vec<String>,
    reloads: Reloads,
    node: Node,
    listeners: Listeners,
    collector: Collector,
}

impl Ready {
    /// Sets up the service; `None` if a signal stops it first.
    async fn new(
        config: &Config,
        log: &Logging,
        hangup: Hangup,
        (audit, denials): (&Audit, Denials),
        warnings: &Warnings,
    ) -> anyhow::Result<Option<Self>> {
        let Config { listen, hostname, http, socket, auth, collector, metrics, records, .. } = config;
        let mut signals = Signals::catch(hangup).context("cannot handle signals")?;
        let mut tokens = Tokens::default();
        tokens.follow(token::read(auth)?).await;
        let protected = web_config::read(config)?;
        let (own_names, no_name) = match own_names::read().await {
            Ok(names) => (names, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let reloads = Reloads::new(config);
        tokio::spawn(sum_up(denials.clone()));
        let named = hostname.as_ref().map(|name| name.0.clone());
        let node = Node {
            version: VERSION,
            commit: COMMIT,
            hosts: hosts(http.clone(), own_names.iter().chain(&named)),
            hostname: named
                .or_else(|| own_names.first().cloned())
                .ok_or_else(|| no_name.unwrap_or_else(|| anyhow!("no name")))?,
            processes_in_metrics: metrics.processes(),
            log_lines_dropped: Arc::clone(&log.dropped().0),
            audit_lines_dropped: audit.dropped(),
            denials: DenialSink::new(move |denial| denials.record(denial)),
            warnings: warnings.clone(),
            reloads: reloads.clone(),
            access: tokens.access(),
        };
        // Before any probe is attached: two services on one node are a mistake. The socket's lock
        // shows it if their state folders differ.
        let listeners = Listeners::bind(*listen, metrics.listen, socket).await?;
        let (owner_names_sender, owner_names) = watch::channel(Arc::default());
        if let Some(path) = &config.owners.names {
            tokio::spawn(owner_names::Reader::new(path.0.clone(), owner_names_sender, warnings.clone()).follow());
        }
        let watching = collector::Config { owner_names, ..watching(collector, *records, config.policy.touch_probe) };
        let collector = tokio::select! {
            started = Collector::start(watching) => started?,
            signal = signals.stop() => {
                tracing::info!("stopping on {signal}, before the probes were attached");
                return Ok(None);
            }
        };
        Ok(Some(Self { signals, tokens, protected, own_names, reloads, node, listeners, collector }))
    }
}

/// Ends a service that never served: with this reason, unless it was stopped.
fn end_unready(actuation: Actuation, reason: anyhow::Result<()>) -> anyhow::Result<()> {
    let withdrawn = actuation.end();
    if let (Err(_), Err(left)) = (&reason, &withdrawn) {
        tracing::error!("{left}");
    }
    reason.and(withdrawn.map_err(Into::into))
}

/// Writes summaries of denials, as long as the service runs.
async fn sum_up(denials: Denials) {
    let mut looks = time::interval(SUMMARY_INTERVAL);
    loop {
        looks.tick().await;
        denials.sum_up(Instant::now());
    }
}

/// Configuration of the collector.
fn watching(collector: &config::Collector, records: config::Records, probes: bool) -> collector::Config {
    let Retention { ended_retention, max_ended, owners } = retention(collector);
    collector::Config {
        source: match collector.source {
            config::value::Source::Auto => SourceChoice::Auto,
            config::value::Source::Probes => SourceChoice::Probes,
            config::value::Source::Tools => SourceChoice::Tools,
        },
        tools_level: collector.tools_level,
        crosscheck: collector.crosscheck == Crosscheck::Sampled,
        program: Program::this(),
        interval: collector.interval.0,
        ended_retention,
        max_ended,
        roots: Roots::default(),
        records: collector::Records {
            enabled: records.enabled,
            max_per_second: records.max_per_second.0,
            ring_bytes: records.ring_size.bytes,
        },
        blocks: collector::BlockLimits {
            returns_of_process: if probes { RETURNS_MAX } else { 0 },
            ..collector::BlockLimits::default()
        },
        owners,
        ..collector::Config::default()
    }
}

/// Retention of history.
fn retention(collector: &config::Collector) -> Retention {
    Retention {
        ended_retention: collector.ended_retention.0,
        max_ended: collector.max_ended.0 as usize,
        owners: collector::OwnerLimits {
            max: collector.max_owners.0 as usize,
            max_eviction_pairs: collector.max_eviction_pairs.0 as usize,
            retention: collector.owner_retention.0,
        },
    }
}

/// Limits of the policies.
fn limits(policy: &config::Policy, window: Duration) -> policy::act::Limits {
    let Rates { node_bytes_per_second, process_bytes_per_second } = Rates::of(policy);
    policy::act::Limits {
        window,
        node_bytes_per_second,
        process_bytes_per_second,
        host_reserve_bytes: policy.host_reserve.bytes,
        ..policy::act::Limits::default()
    }
}

/// Settings of followers.
fn following(policy: &config::Policy) -> followers::Settings {
    let config::Policy { interval, actuator, touch_probe, touch_probe_bytes, .. } = policy;
    let probes = touch_probe.then_some(Probes { iteration_bytes_max: touch_probe_bytes.map(|most| most.bytes) });
    followers::Settings { interval: interval.0, actuator: actuator.0, probes }
}

/// Inputs of the loop that acts.
fn parts(
    policy: &config::Policy,
    collector: &Collector,
    judging: &Judging,
    (rules, switch): (&Rules, &Switch),
    events: &Events,
    (rates, followers): (watch::Receiver<Rates>, Followers),
    audit: Audit,
) -> acting::Parts {
    acting::Parts {
        snapshots: collector.snapshots(),
        verdicts: judging.latest(),
        rules: rules.clone(),
        switch: switch.clone(),
        events: events.clone(),
        rates,
        interval: policy.interval.0,
        audit,
        followers,
        executables: Executables::default(),
    }
}

/// Sources of the web service.
fn sources(collector: &collector::Snapshots, verdicts: watch::Receiver<Arc<Verdicts>>) -> Sources {
    let [taken, heat, lately] = std::array::from_fn(|_| collector.clone());
    Sources {
        heat: Source::new(move |request| {
            let heat = heat.clone();
            async move { heat.heat(request).await }
        }),
        history: Source::new(move |request| {
            let lately = lately.clone();
            async move { lately.history(request).await }
        }),
        verdicts: VerdictSource::new(move || Arc::clone(&verdicts.borrow())),
        ..Snapshots::new(move || {
            let taken = taken.clone();
            async move { taken.fresh().await }
        })
        .into()
    }
}

/// Permitted host names, if this machine has these.
fn hosts<'a>(http: config::Http, own: impl Iterator<Item = &'a String>) -> Hosts {
    http.hosts.map_or_else(|| Hosts::OfMachine(own.cloned().collect()), |HostNames(names)| Hosts::Only(names))
}
