//! Load test of the service, with many processes and overrides, and clients of all kinds at once.
//! Prints a table in Markdown.
//!
//! The service is a separate process, so that its memory and CPU time can be measured: this program
//! starts itself again. Processes are made up and overrides are in memory; all else is uvmd's code.
//! docs/measurements/service.md has results.
#![expect(clippy::print_stdout, reason = "the program prints a table")]

mod client;
mod overrides;
mod report;
mod service;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use client::Client;
use nodes::Crowd;
use report::Tally;
use service::Process;
use tokio::task::JoinSet;

/// Prefix of the line with the address of the service.
const SERVES_ON: &str = "serves on ";
/// Token of the client that changes overrides.
const WRITE_TOKEN: &str = "load-test-write-token";

/// Amount and duration of the load.
#[derive(Clone, Copy, Debug)]
struct Options {
    crowd: Crowd,
    overrides: usize,
    /// Number of clients of each reading kind.
    clients: usize,
    streams: usize,
    seconds: u64,
}

impl Options {
    /// Parses `--processes N --gpus N --overrides N --clients N --streams N --seconds N`, all
    /// optional.
    fn parse() -> Result<(Self, bool), String> {
        let mut options =
            Self { crowd: Crowd { processes: 5000, gpus: 8 }, overrides: 1000, clients: 4, streams: 32, seconds: 30 };
        let mut serves = false;
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|n| n.parse().ok()).ok_or(format!("{word} needs a number"));
            match word.as_str() {
                "--serve" => serves = true,
                "--processes" => options.crowd.processes = number()?,
                "--gpus" => options.crowd.gpus = number()?,
                "--overrides" => options.overrides = number()?,
                "--clients" => options.clients = number()?,
                "--streams" => options.streams = number()?,
                "--seconds" => options.seconds = number()? as u64,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok((options, serves))
    }
}

/// Kind of client: its paths, requested one after another, each on a new connection.
struct Kind {
    name: &'static str,
    /// Path by the number of the request.
    path: fn(usize) -> String,
    /// Pause between two requests, as of real clients.
    pause: Duration,
}

const KINDS: [Kind; 6] = [
    Kind { name: "`/livez`", path: |_| "/livez".to_owned(), pause: Duration::from_millis(100) },
    Kind { name: "`/metrics`", path: |_| "/metrics".to_owned(), pause: Duration::from_secs(1) },
    Kind {
        name: "`/api/v1/processes?limit=100`",
        path: |_| "/api/v1/processes?limit=100".to_owned(),
        pause: Duration::from_millis(500),
    },
    Kind {
        name: "`/api/v1/processes/PID`",
        path: |at| format!("/api/v1/processes/{}", 1000 + at * 37 % 5000),
        pause: Duration::from_millis(100),
    },
    Kind {
        name: "`/api/v1/owners?limit=1000`",
        path: |_| "/api/v1/owners?limit=1000".to_owned(),
        pause: Duration::from_millis(500),
    },
    Kind {
        name: "`/api/v1/overrides?limit=1000`",
        path: |_| "/api/v1/overrides?limit=1000".to_owned(),
        pause: Duration::from_millis(500),
    },
];

fn main() -> Result<(), String> {
    let (options, serves) = Options::parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    if serves { service::serve(options, runtime) } else { runtime.block_on(load(options)) }
}

async fn load(options: Options) -> Result<(), String> {
    let service = Process::start()?;
    let tally = Arc::new(Tally::default());
    // One request of each kind, for the figures before the load.
    for kind in KINDS {
        Client::new(200, service.address).get(&(kind.path)(0)).await?;
    }
    let idle = service.figures()?;
    let begun = Instant::now();
    let until = begun + Duration::from_secs(options.seconds);
    let mut clients = JoinSet::new();
    let mut address = 1;
    for kind in &KINDS {
        for _ in 0..options.clients {
            clients.spawn(read(Client::new(address, service.address), kind, Arc::clone(&tally), until));
            address += 1;
        }
    }
    clients.spawn(list(Client::new(address, service.address), Arc::clone(&tally), until));
    clients.spawn(change(Client::new(address + 1, service.address), Arc::clone(&tally), until));
    for stream in 0..options.streams {
        // Maximum of one address: eight.
        let address = 100 + u8::try_from(stream / 8).unwrap_or(0);
        clients.spawn(listen(Client::new(address, service.address), Arc::clone(&tally), until));
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    let busy = service.figures()?;
    print!("{}", report::table(options, &tally, idle, busy, begun.elapsed()));
    Ok(())
}

async fn read(client: Client, kind: &'static Kind, tally: Arc<Tally>, until: Instant) -> Result<(), String> {
    let mut at = 0;
    while Instant::now() < until {
        let started = Instant::now();
        let response = client.get(&(kind.path)(at)).await?;
        tally.add(kind.name, &response, started.elapsed());
        at += 1;
        tokio::time::sleep(kind.pause).await;
    }
    Ok(())
}

/// Reads whole lists, as `uvmctl top` does.
async fn list(client: Client, tally: Arc<Tally>, until: Instant) -> Result<(), String> {
    const PATH: &str = "/api/v1/processes/summary?order=id&limit=1000";
    while Instant::now() < until {
        let mut next = Some(PATH.to_owned());
        while let Some(path) = next {
            let started = Instant::now();
            let response = client.get(&path).await?;
            tally.add("`/api/v1/processes/summary`, each page", &response, started.elapsed());
            next = response.cursor().map(|cursor| format!("{PATH}&continue={cursor}"));
        }
        tally.count("whole lists of processes read");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Adds and deletes overrides.
async fn change(client: Client, tally: Arc<Tally>, until: Instant) -> Result<(), String> {
    while Instant::now() < until {
        for (name, method, body) in [
            ("`PUT /api/v1/overrides/ID`", "PUT", "{\"match\":{\"uid\":1000},\"mode\":\"shadow\"}"),
            ("`DELETE /api/v1/overrides/ID`", "DELETE", ""),
        ] {
            let started = Instant::now();
            let response = client.request(method, "/api/v1/overrides/changes", Some(WRITE_TOKEN), body).await?;
            tally.add(name, &response, started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Reads events until a time.
async fn listen(client: Client, tally: Arc<Tally>, until: Instant) -> Result<(), String> {
    let events = client.events(until).await?;
    tally.count(if events.is_rejected { "event streams rejected" } else { "event streams served" });
    tally.add_to("events delivered", events.count);
    Ok(())
}
