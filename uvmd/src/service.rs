//! One run of the service, from binding its address to a clean stop.

use std::{fs, io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use collector::Collector;
use config::{Config, Loaded};
use model::Verdicts;
use sys::{Roots, capabilities::Capabilities, kernel, reason};
use tokio::{
    net::TcpListener,
    runtime,
    sync::{oneshot, watch},
    time,
};
use web::{Ask, Judged, Node, Snapshots, Sources, server, server::Limits};

use crate::{
    log::Dropped,
    notify::{self, notify},
    signals::Signals,
    verdicts::Judging,
};

/// Reading counters and answering a few clients needs no more, however many cores the node has.
const WORKER_THREADS: usize = 2;

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
    let Config { listen, hostname, log: _, collector, metrics, records, verdicts } = config;
    let mut signals = Signals::new().context("cannot handle signals")?;
    let node = Node {
        version: env!("CARGO_PKG_VERSION"),
        hostname: hostname.map_or_else(read_hostname, |name| Ok(name.0))?,
        processes_in_metrics: metrics.processes(),
        log_lines_dropped: Arc::clone(&log_lines_dropped.0),
    };
    let collector = collector::Config {
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
    };
    // Before anything is attached: two services on one node are a mistake, and the address is where it shows.
    let (listener, address) = bind(listen).await?;
    let mut collector = tokio::select! {
        started = Collector::start(collector) => started?,
        signal = signals.next() => {
            tracing::info!("stopping on {signal}, before the probes were attached");
            return Ok(());
        }
    };

    let (stop_server, stopped) = oneshot::channel::<()>();
    let judging = Judging::start(collector.snapshots(), verdicts.window.0);
    let router = web::router(node, address, sources(&collector.snapshots(), judging.latest()));
    let mut server = tokio::spawn(server::serve(listener, router, Limits::default(), async {
        // An error means that the sender is gone, which is a stop too.
        let _ = stopped.await;
    }));
    tracing::info!("uvmd {} serves on http://{address}", env!("CARGO_PKG_VERSION"));
    if let Some(file) = file {
        tracing::info!("configured by {}", file.display());
    }
    if !address.ip().is_loopback() {
        tracing::warn!("{address} is not loopback: anyone who can reach it can read process names, users and cgroups");
    }
    notify(notify::READY);

    let signal = tokio::select! {
        signal = signals.next() => signal,
        ended = &mut server => return Err(anyhow!("the HTTP server ended by itself: {ended:?}")),
        // What is served from now on would be old for ever.
        () = collector.ended() => bail!("the collector ended by itself; what it said is above"),
    };
    tracing::info!("stopping on {signal}");
    notify(notify::STOPPING);
    drop(stop_server);
    let stop = async {
        let result = server.await.context("the HTTP server failed");
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

/// What the web service asks the collector, and the judge.
fn sources(collector: &collector::Snapshots, verdicts: watch::Receiver<Arc<Verdicts>>) -> Sources {
    let [taken, heat, lately] = std::array::from_fn(|_| collector.clone());
    Sources {
        snapshots: Snapshots::new(move || {
            let taken = taken.clone();
            async move { taken.fresh().await }
        }),
        heat: Ask::new(move |request| {
            let heat = heat.clone();
            async move { heat.heat(request).await }
        }),
        lately: Ask::new(move |request| {
            let lately = lately.clone();
            async move { lately.history(request).await }
        }),
        judged: Judged::new(move || Arc::clone(&verdicts.borrow())),
    }
}

async fn bind(listen: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let advice = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => "another program, perhaps another uvmd, is there; stop it or choose with --listen",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; choose with --listen",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE; choose with --listen",
        _ => "choose with --listen",
    };
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| anyhow!("cannot listen on {listen}: {}: {}", reason(&error), advice(&error)))?;
    // Port 0 asks the kernel for one.
    let address = listener.local_addr().context("cannot read the address bound")?;
    Ok((listener, address))
}

fn read_hostname() -> anyhow::Result<String> {
    const PATH: &str = "/proc/sys/kernel/hostname";
    let name =
        fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}; name this node with --hostname"))?;
    Ok(name.trim().to_owned())
}
