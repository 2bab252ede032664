//! Running service, and its end.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use collector::Collector;
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time,
};
use web::Events;

use crate::{
    acting::ActingHandle,
    notify,
    signals::{Signal, Signals},
    verdicts::Judging,
};

/// Time limit of the servers, which includes their own grace period, and again of the collector.
/// The acting loop has its own limit.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Running parts.
pub(super) struct Running {
    pub(super) collector: Collector,
    pub(super) judging: Judging,
    pub(super) acting_handle: ActingHandle,
    pub(super) events: Events,
    pub(super) servers: JoinSet<()>,
    /// The servers run until this is dropped.
    pub(super) stop_servers: watch::Sender<()>,
    /// Reports to systemd while all works.
    pub(super) supervision: JoinHandle<()>,
}

impl Running {
    /// Returns when a part has ended by itself, which only a bug can cause: served data would be
    /// stale for ever.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let Self { collector, judging, acting_handle, servers, .. } = self;
        tokio::select! {
            // Without a server, none can end.
            Some(ended) = servers.join_next() => anyhow!("the HTTP server ended by itself: {ended:?}"),
            () = collector.ended() => anyhow!("the collector ended by itself; the reason is above"),
            () = acting_handle.ended() => anyhow!("the policy engine ended; the reason is above"),
            () = judging.ended() => anyhow!("the verdicts' thread ended; the reason is above"),
        }
    }

    /// Stops at once, and withdraws all advice.
    pub(super) async fn give_up(self) {
        if let Err(error) = self.acting_handle.stop().await {
            tracing::error!("{error:#}");
        }
    }

    /// Stops all parts on this signal; a second signal stops at once.
    pub(super) async fn stop(self, signal: &str, signals: &mut Signals) -> anyhow::Result<()> {
        let Self { collector, judging: _judging, acting_handle, events, mut servers, stop_servers, supervision } = self;
        tracing::info!("stopping on {signal}");
        notify::stopping();
        supervision.abort();
        drop(stop_servers);
        // Streams end here: a stop waits for requests in progress.
        events.end();
        let served = async {
            let mut result = Ok(());
            while let Some(ended) = servers.join_next().await {
                result = result.and(ended.context("the HTTP server failed"));
            }
            result
        };
        let stop = async {
            // Withdrawals do not wait for a slow reader.
            let (served, withdrawn) = tokio::join!(within_deadline("the HTTP server", served), acting_handle.stop());
            let collected = within_deadline("the collector", async {
                collector.stop().await;
                Ok(())
            });
            let stopped = served.and(collected.await);
            if let (Err(error), Err(_)) = (&stopped, &withdrawn) {
                tracing::error!("{error:#}");
            }
            withdrawn.and(stopped)
        };
        tokio::select! {
            stopped = stop => stopped?,
            () = notify::while_stopping() => {}
            signal = again(signals) => bail!("{signal} again: stopped at once; the kernel detaches what is left"),
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Result of a future, or an error after the time limit.
async fn within_deadline(what: &str, stops: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let seconds = STOP_DEADLINE.as_secs();
    let late = |_| anyhow!("{what} did not stop within {seconds} s; the kernel detaches what is left");
    time::timeout(STOP_DEADLINE, stops).await.map_err(late)?
}

/// Waits for another signal that stops.
async fn again(signals: &mut Signals) -> &'static str {
    loop {
        match signals.next().await {
            Signal::Stop(signal) => return signal,
            Signal::Reload => tracing::info!("SIGHUP is ignored: uvmd is stopping"),
        }
    }
}
