//! One run of the service, from binding its address to a clean stop.

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use collector::Collector;
use config::{Config, Loaded, value::HostNames};
use model::Verdicts;
use sys::{Roots, capabilities::Capabilities, kernel};
use tokio::{runtime, sync::watch, task::JoinSet, time};
use web::{Ask, Controls, Decided, Events, Hosts, Judged, Node, Service, Snapshots, Sources, server, server::Limits};

use crate::{
    acting::{self, Deeds},
    audit::Rotation,
    control::Control,
    listeners,
    log::Dropped,
    notify::{self, notify},
    rules::Rules,
    signals::Signals,
    switch::Switch,
    token,
    verdicts::Judging,
};

/// Reading counters and answering a few clients needs no more, however many cores the node has.
const WORKER_THREADS: usize = 2;

/// So often is a disk asked again that refuses to keep that acting is switched off.
const KEPT_AGAIN: Duration = Duration::from_secs(5);

/// Time for a stop, all in all. The server's own grace lies within.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Runs until a signal stops it.
pub(crate) fn run(loaded: Loaded, log_lines_dropped: &Dropped) -> anyhow::Result<()> {
    kernel::supported(&Roots::default())?;
    Capabilities::of_this_process()?.may_probe()?;
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    let result = runtime.block_on(serve(loaded, log_lines_dropped));
    // Whatever still blocks must not hold the exit.
    runtime.shutdown_background();
    result
}

async fn serve(Loaded { config, file }: Loaded, log_lines_dropped: &Dropped) -> anyhow::Result<()> {
    let warnings = config.warnings();
    let Config { listen, hostname, http, socket, auth, log: _, collector, metrics, records, verdicts, policy } = config;
    let mut signals = Signals::new().context("cannot handle signals")?;
    let access = token::access(auth)?;
    let rules = Rules::open(&policy)?;
    let switch = Switch::open(&policy.kill_switch.0, &policy.state_dir.0);
    let own_name = read_hostname();
    let hosts = hosts(http, own_name.iter().chain(hostname.iter().map(|name| &name.0)));
    let node = Node {
        version: env!("CARGO_PKG_VERSION"),
        hostname: hostname.map_or(own_name, |name| Ok(name.0))?,
        processes_in_metrics: metrics.processes(),
        log_lines_dropped: Arc::clone(&log_lines_dropped.0),
        access,
        hosts,
    };
    let collector = watching(collector, records);
    // Before anything is attached: two services on one node are a mistake, and the address is where it shows.
    let (listener, address) = listeners::tcp(listen).await?;
    let socket = match &socket {
        config::Socket { enabled: true, .. } => Some(listeners::socket(&socket).await?),
        config::Socket { enabled: false, .. } => None,
    };
    let mut collector = tokio::select! {
        started = Collector::start(collector) => started?,
        signal = signals.next() => {
            tracing::info!("stopping on {signal}, before the probes were attached");
            return Ok(());
        }
    };

    let (stop_server, stopped) = watch::channel(());
    let events = Events::default();
    let mut judging = Judging::start(collector.snapshots(), verdicts.window.0, events.clone());
    tokio::spawn(rules.clone().follow());
    tokio::spawn(switch.clone().follow(KEPT_AGAIN));
    let mut deeds = Deeds::start(parts(&policy, verdicts.window.0, &collector, &judging, (&rules, &switch), &events))?;
    let told = deeds.told();
    let control = Control { rules, switch, enabled: policy.enabled, told: told.clone() };
    let sources = Sources {
        decided: Decided::new(move || told.decisions()),
        events: events.clone(),
        controls: Controls::new(control),
        ..sources(&collector.snapshots(), judging.latest())
    };
    let service = Service::new(node, sources);
    let mut servers = JoinSet::new();
    if let Some((socket, path)) = socket {
        servers.spawn(server::serve(socket, service.on_socket(), Limits::default(), stop(stopped.clone())));
        tracing::info!("those on this machine are served on {}", path.display());
    }
    servers.spawn(server::serve(listener, service.on_tcp(address), Limits::default(), stop(stopped)));
    tracing::info!("uvmd {} serves on http://{address}", env!("CARGO_PKG_VERSION"));
    if let Some(file) = file {
        tracing::info!("configured by {}", file.display());
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    notify(notify::READY);

    let signal = tokio::select! {
        signal = signals.next() => Ok(signal),
        ended = servers.join_next() => Err(anyhow!("the HTTP server ended by itself: {ended:?}")),
        // What is served from now on would be old for ever.
        () = collector.ended() => Err(anyhow!("the collector ended by itself; what it said is above")),
        () = deeds.ended() => bail!("nothing acts any more; what was said is above"),
        () = judging.ended() => Err(anyhow!("nothing is judged any more; what was said is above")),
    };
    let signal = match signal {
        Ok(signal) => signal,
        Err(error) => {
            // Nothing that it advised stays, here either.
            let _ = time::timeout(STOP_DEADLINE, deeds.stop()).await;
            return Err(error);
        }
    };
    tracing::info!("stopping on {signal}");
    notify(notify::STOPPING);
    drop(stop_server);
    // Nobody listens any longer than this: a stop waits for requests under way.
    events.end();
    let stop = async {
        let served = async {
            let mut result = Ok(());
            while let Some(ended) = servers.join_next().await {
                result = result.and(ended.context("the HTTP server failed"));
            }
            result
        };
        // What is taken back does not wait for a slow reader.
        let (result, ()) = tokio::join!(served, deeds.stop());
        collector.stop().await;
        result
    };
    tokio::select! {
        stopped = time::timeout(STOP_DEADLINE, stop) => {
            stopped.map_err(|_| anyhow!("did not stop within {} s; the kernel detaches what is left", STOP_DEADLINE.as_secs()))??;
        }
        signal = signals.next() => bail!("{signal} again: stopped at once; the kernel detaches what is left"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// What the collector works with.
fn watching(collector: config::Collector, records: config::Records) -> collector::Config {
    collector::Config {
        interval: collector.interval.0,
        ended_retention: collector.ended_retention.0,
        ended_max: collector.ended_max.0 as usize,
        roots: Roots::default(),
        records: collector::Records {
            enabled: records.enabled,
            per_second_max: records.per_second_max.0,
            ring_bytes: records.ring_size.bytes,
        },
        blocks: collector::BlockLimits::default(),
        owners: collector::OwnerLimits {
            max: collector.owners_max.0 as usize,
            eviction_pairs_max: collector.eviction_pairs_max.0 as usize,
            retention: collector.owner_retention.0,
        },
    }
}

/// What the loop that acts works with.
fn parts(
    policy: &config::Policy,
    window: Duration,
    collector: &Collector,
    judging: &Judging,
    (rules, switch): (&Rules, &Switch),
    events: &Events,
) -> acting::Parts {
    let host_reserve_bytes = policy.host_reserve.bytes;
    let limits = policy::act::Limits {
        window,
        node_bytes_per_second: policy.bytes_per_second.bytes,
        process_bytes_per_second: policy.process_bytes_per_second.bytes,
        host_reserve_bytes,
        ..policy::act::Limits::default()
    };
    let rotation = Rotation { file_bytes_max: policy.audit_log_size.bytes, files_max: policy.audit_log_files.0 };
    acting::Parts {
        snapshots: collector.snapshots(),
        verdicts: judging.latest(),
        rules: rules.clone(),
        switch: switch.clone(),
        events: events.clone(),
        limits,
        interval: policy.interval.0,
        actuator: actuator::Settings { part_bytes: policy.call_size.bytes, host_reserve_bytes },
        enabled: policy.enabled,
        state_dir: policy.state_dir.0.clone(),
        audit_log: policy.audit_log(),
        rotation,
    }
}

/// Done once the sender is gone.
async fn stop(mut stopped: watch::Receiver<()>) {
    let _ = stopped.changed().await;
}

/// What the web service asks the collector, and the judge.
fn sources(collector: &collector::Snapshots, verdicts: watch::Receiver<Arc<Verdicts>>) -> Sources {
    let [taken, heat, lately] = std::array::from_fn(|_| collector.clone());
    Sources {
        heat: Ask::new(move |request| {
            let heat = heat.clone();
            async move { heat.heat(request).await }
        }),
        lately: Ask::new(move |request| {
            let lately = lately.clone();
            async move { lately.history(request).await }
        }),
        judged: Judged::new(move || Arc::clone(&verdicts.borrow())),
        ..Snapshots::new(move || {
            let taken = taken.clone();
            async move { taken.fresh().await }
        })
        .into()
    }
}

/// By which names clients may ask, where this machine has these.
fn hosts<'a>(http: config::Http, own: impl Iterator<Item = &'a String>) -> Hosts {
    http.hosts.map_or_else(|| Hosts::OfMachine(own.cloned().collect()), |HostNames(names)| Hosts::Only(names))
}

fn read_hostname() -> anyhow::Result<String> {
    const PATH: &str = "/proc/sys/kernel/hostname";
    let name =
        fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}; name this node with --hostname"))?;
    Ok(name.trim().to_owned())
}
