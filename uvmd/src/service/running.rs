//! The service at work, and its end.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use collector::Collector;
use tokio::{sync::watch, task::JoinSet, time};
use web::Events;

use crate::{
    acting::Deeds,
    notify,
    signals::{Signal, Signals},
    verdicts::Judging,
};

/// Time for the servers to stop, in which their own grace lies, and again for the collector. What acts has a time of its own.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// All that works.
pub(super) struct Running {
    pub(super) collector: Collector,
    pub(super) judging: Judging,
    pub(super) deeds: Deeds,
    pub(super) events: Events,
    pub(super) servers: JoinSet<()>,
    /// The servers work until this is dropped.
    pub(super) stop_servers: watch::Sender<()>,
}

impl Running {
    /// Returns when a part of it has ended by itself, which only a mistake in it can bring about: what is served from then on would be old for ever.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let Self { collector, judging, deeds, servers, .. } = self;
        tokio::select! {
            // Where nothing is served, nothing ends.
            Some(ended) = servers.join_next() => anyhow!("the HTTP server ended by itself: {ended:?}"),
            () = collector.ended() => anyhow!("the collector ended by itself; the reason is above"),
            () = deeds.ended() => anyhow!("the policy engine ended; the reason is above"),
            () = judging.ended() => anyhow!("the verdicts' thread ended; the reason is above"),
        }
    }

    /// Ends at once, and leaves nothing that it advised in force.
    pub(super) async fn give_up(self) {
        if let Err(error) = self.deeds.stop().await {
            tracing::error!("{error:#}");
        }
    }

    /// Ends all of it, because of this signal; a second one does so at once.
    pub(super) async fn stop(self, signal: &str, signals: &mut Signals) -> anyhow::Result<()> {
        let Self { collector, judging: _judging, deeds, events, mut servers, stop_servers } = self;
        tracing::info!("stopping on {signal}");
        notify::stopping();
        drop(stop_servers);
        // Nobody listens any longer than this: a stop waits for requests under way.
        events.end();
        let served = async {
            let mut result = Ok(());
            while let Some(ended) = servers.join_next().await {
                result = result.and(ended.context("the HTTP server failed"));
            }
            result
        };
        let stop = async {
            // What is taken back does not wait for a slow reader.
            let (served, withdrawn) = tokio::join!(within_deadline("the HTTP server", served), deeds.stop());
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
            signal = again(signals) => bail!("{signal} again: stopped at once; the kernel detaches what is left"),
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Result of a future, or that it took too long.
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
