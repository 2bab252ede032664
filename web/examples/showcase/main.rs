//! Serves the page and the API with made-up figures, without a GPU:
//! `cargo run -p web --example showcase [PORT] [STATE]`, where STATE is `counting`, `degraded`,
//! `tools` (counted by the driver's tools), `healthy`, `empty`, `waiting`, `refused`, `crowd` (500 processes) or `hostile` (names with
//! markup). PORT 0 is any free one. The token is `showcase-of-uvmd`.
//!
//! * [`scene`]: processes and verdicts
//! * [`decisions`], [`overrides`]: decisions about them, and the overrides that select policies
//! * [`counts`], [`memory`], [`history`]: consistent figures
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
mod overrides;
mod scene;
mod sites;
mod source;

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use model::{ProcessId, Snapshot};
use scene::{Cast, Scene};
use web::{
    Access, Controls, DecisionSource, Grant, Node, Service, Snapshots, Source, Sources, Token, VerdictSource, server,
};

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
    let cast = match state.as_str() {
        "crowd" => Cast::Crowd,
        "hostile" => Cast::Hostile,
        _ => Cast::Usual,
    };
    let has_verdicts = matches!(state.as_str(), "counting" | "degraded" | "tools" | "crowd" | "hostile");
    let populated = has_verdicts || state == "healthy";
    let text = (cast == Cast::Hostile).then_some(scene::MARKUP);
    let at = |pid, card: usize| (ProcessId { pid, start_ticks: 77_000 }, scene::CARDS[card].uuid().unwrap());
    let subjects = decisions::Subjects { shadowed: at(41_207, 0), improved: at(52_113, 1), harmed: at(40_981, 0) };
    let decisions = decisions::decisions(&subjects, text);
    let snapshot = move || {
        let mut snapshot = Snapshot::empty(SystemTime::now(), source::source(&state, seconds()));
        if populated {
            Scene::at(seconds(), has_verdicts, cast).fill(&mut snapshot);
        }
        async { Some(Arc::new(snapshot)) }
    };
    Sources {
        heat: Source::new(|request| std::future::ready(Some(Some(memory::heat(&request))))),
        history: Source::new(|request| std::future::ready(Some(Some(history::history(&request))))),
        verdicts: VerdictSource::new(move || Arc::new(Scene::at(seconds(), has_verdicts, cast).verdicts())),
        decisions: DecisionSource::new(move || if has_verdicts { Arc::clone(&decisions) } else { Arc::default() }),
        controls: Controls::new(overrides::Overrides::new()),
        ..Snapshots::new(snapshot).into()
    }
}
