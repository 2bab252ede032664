//! Serves the page and the API with made-up figures, to look at without a GPU: `cargo run -p web --example showcase [PORT] [STATE]`
//! where STATE is `counting`, `degraded`, `healthy`, `empty`, `waiting` or `refused`. The token is `showcase-of-uvmd`.
//!
//! * [`scene`]: who is there, and what is wrong
//! * [`decisions`]: what is done about it
//! * [`counts`], [`memory`], [`history`]: figures that fit
#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tool for people who work on the page"
)]

mod counts;
mod decisions;
mod history;
mod memory;
mod scene;
mod source;

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use model::{ProcessId, Snapshot};
use scene::Scene;
use web::{Access, DecisionSource, Grant, Node, Service, Snapshots, Source, Sources, Token, VerdictSource, server};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(9477_u16);
    let state = arguments.next().unwrap_or_else(|| "counting".to_owned());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let node = Node {
        version: env!("CARGO_PKG_VERSION"),
        hostname: "gpu-17".to_owned(),
        processes_in_metrics: std::num::NonZeroUsize::new(4),
        access: Access::by_tokens([(Grant::Read, Token::parse(b"showcase-of-uvmd").unwrap())]),
        ..Node::default()
    };
    println!("http://{address}");
    server::serve(
        listener,
        Service::new(node, sources(state)).on_tcp(address),
        server::Limits::default(),
        std::future::pending(),
    )
    .await;
    Ok(())
}

fn sources(state: String) -> Sources {
    let begin = Instant::now();
    let seconds = move || begin.elapsed().as_secs_f64();
    let trouble = matches!(state.as_str(), "counting" | "degraded");
    let populated = trouble || state == "healthy";
    let at = |pid, card: usize| (ProcessId { pid, start_ticks: 77_000 }, scene::CARDS[card].uuid().unwrap());
    let decisions = decisions::decisions(at(41_207, 0), at(52_113, 1));
    let snapshot = move || {
        let mut snapshot = Snapshot::empty(SystemTime::now(), source::source(&state, seconds()));
        if populated {
            Scene::at(seconds(), trouble).fill(&mut snapshot);
        }
        async { Some(Arc::new(snapshot)) }
    };
    Sources {
        heat: Source::new(|request| std::future::ready(Some(Some(memory::heat(&request))))),
        history: Source::new(|request| std::future::ready(Some(Some(history::history(&request))))),
        verdicts: VerdictSource::new(move || Arc::new(Scene::at(seconds(), trouble).verdicts())),
        decisions: DecisionSource::new(move || if trouble { Arc::clone(&decisions) } else { Arc::default() }),
        ..Snapshots::new(snapshot).into()
    }
}
