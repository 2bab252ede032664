//! Main loop: watches pods and policies, and writes the files.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use futures_util::{Stream, StreamExt, stream};
use kube::{
    Client, Config,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{self, MissedTickBehavior},
};

use crate::{
    backoff::{NodeBackoff, WATCH_SECONDS},
    contact::{Contact, report},
    names_file::NamesFile,
    options::Run,
    pod::{self, PodObject},
    policies::{self, PoliciesFile},
    registry::Registry,
    status,
};

/// Minimum interval of writes: changes within one are written together.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pods in a page of a list.
const PAGE_SIZE: u32 = 100;
/// Timeout of a connection, and of a response that the API server has begun.
const CONNECT: Duration = Duration::from_secs(10);

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// If there is no configuration for the API server, or no node name. Failed requests and writes are
/// repeated.
pub async fn run(options: Run) -> anyhow::Result<()> {
    if options.node.is_empty() {
        bail!("the node has no name: set NODE_NAME from spec.nodeName, or give --node");
    }
    let client = client().await?;
    let contact = Contact::default();
    let contact_checks = tokio::spawn(contact.clone().follow(client.clone()));
    let mut registry = Registry::new(options.labels.iter().cloned().collect(), options.retention);
    let mut names = NamesFile::new(options.names.clone(), options.heartbeat);
    if let Some(former) = names.former() {
        registry.restore(former, SystemTime::now());
    }
    let mut pods = std::pin::pin!(pods(client.clone(), &options.node));
    let (statuses, status_updates) = watch::channel(None);
    let models = || options.gpu_models.iter().cloned().collect();
    let of_policies = |path: &PathBuf| PoliciesFile::new(path.clone(), options.node.clone(), models(), statuses);
    let mut policies = options.overrides.as_ref().map(of_policies);
    let changes = match policies {
        Some(_) => {
            tokio::spawn(status::follow(client.clone(), options.node.clone(), status_updates));
            policies::changes(client, &options.node).left_stream()
        }
        None => stream::pending().right_stream(),
    };
    let mut changes = std::pin::pin!(changes);
    let mut policies_failed = false;
    let mut ticks = time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut is_listed = false;
    let (mut names_failure, mut overrides_failure) = (Failure::default(), Failure::default());
    loop {
        tokio::select! {
            event = pods.next() => match event {
                Some(Ok(event)) => {
                    is_listed |= matches!(event, Event::InitDone);
                    apply(&mut registry, &event);
                    contact.watched();
                }
                Some(Err(error)) => contact.interrupted(&error),
                None => bail!("the watch ended by itself"),
            },
            change = changes.next() => match change {
                Some(Ok(change)) => {
                    policies_failed = false;
                    if let Some(policies) = &mut policies {
                        policies.apply(change);
                    }
                }
                Some(Err(error)) => {
                    if !policies_failed {
                        tracing::warn!("the watch of policies failed, and is restarted: {}", report(&error));
                    }
                    policies_failed = true;
                }
                None => bail!("the watch of policies ended by itself"),
            },
            _ = ticks.tick() => {
                let now = SystemTime::now();
                registry.expire(now);
                // Until the first list is complete, the file keeps the names of the previous run.
                if is_listed {
                    names_failure.log(names.update(&registry, now, contact.last()).map(drop));
                    overrides_failure.log(policies.as_mut().map_or(Ok(()), |policies| policies.update(&registry, now)));
                }
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    contact_checks.abort();
    Ok(())
}

/// Client with the service account of the pod, or with $KUBECONFIG.
async fn client() -> anyhow::Result<Client> {
    let mut config = Config::infer().await.context("no configuration for the API server")?;
    config.connect_timeout = Some(CONNECT);
    // Longer than a watch.
    config.read_timeout = Some(Duration::from_secs(u64::from(WATCH_SECONDS) + 30));
    Client::try_from(config).context("no client of the API server")
}

/// Events of the pods of a node, for ever: with back-off after an error, and from a new list if the
/// API server no longer has the version.
fn pods(client: Client, node: &str) -> impl Stream<Item = watcher::Result<Event<PodObject>>> + use<> {
    let config =
        watcher::Config::default().fields(&format!("spec.nodeName={node}")).timeout(WATCH_SECONDS).page_size(PAGE_SIZE);
    watcher(pod::api(client), config).backoff(NodeBackoff::of(node))
}

fn apply(registry: &mut Registry, event: &Event<PodObject>) {
    match event {
        Event::Init => registry.begin_list(),
        Event::InitApply(pod) | Event::Apply(pod) => registry.apply(pod),
        Event::InitDone => registry.end_list(SystemTime::now()),
        Event::Delete(pod) => registry.delete(pod, SystemTime::now()),
    }
}

/// Failure of writes to a file: logged once, until a write succeeds or fails otherwise.
#[derive(Default)]
struct Failure(Option<String>);

impl Failure {
    fn log(&mut self, result: anyhow::Result<()>) {
        let failure = result.err().map(|error| format!("{error:#}"));
        if let Some(failure) = failure.as_ref().filter(|failure| self.0.as_ref() != Some(failure)) {
            tracing::error!("{failure}");
        }
        self.0 = failure;
    }
}
