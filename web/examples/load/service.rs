//! The service as a separate process.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use nodes::{Distant, collector};
use tokio::{net::TcpListener, runtime::Runtime};
use web::{
    Access, Controls, Events, Grant, Node, Sources, Token, VerdictSource,
    server::{Limits, serve as serve_on},
};

use crate::{Options, SERVES_ON, WRITE_TOKEN, overrides::InMemory};

/// Interval of events.
const EVENT_INTERVAL: Duration = Duration::from_millis(10);

/// Running process of the service.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// Resources used so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) resident_kib: u64,
    pub(crate) peak_kib: u64,
    pub(crate) cpu_ticks: u64,
}

impl Process {
    /// Starts this program again, with the same options.
    pub(crate) fn start() -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(env::args().skip(1)).arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix(SERVES_ON)?.parse().ok());
        Ok(Self { child, address: address.ok_or("the service did not start")? })
    }

    pub(crate) fn figures(&self) -> Result<Figures, String> {
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).map_err(|error| error.to_string())
        };
        let (status, stat) = (read("status")?, read("stat")?);
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Ok(Figures {
            resident_kib: kib("VmRSS:").ok_or("no VmRSS")?,
            peak_kib: kib("VmHWM:").ok_or("no VmHWM")?,
            cpu_ticks: times.filter_map(|time| time.parse::<u64>().ok()).sum(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until the end of standard input.
pub(crate) fn serve(options: Options, runtime: Runtime) -> Result<(), String> {
    // As in uvmd.
    if !sys::memory::return_freed_memory() {
        return Err("the allocator cannot be set to return freed memory".to_owned());
    }
    let token = Token::parse(WRITE_TOKEN.as_bytes()).map_err(|error| error.to_string())?;
    let _guard = runtime.enter();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let verdicts = Arc::new(options.crowd.verdicts());
    let (events, snapshot) = (Events::default(), options.crowd.snapshot());
    let sources = Sources {
        verdicts: VerdictSource::new({
            let verdicts = Arc::clone(&verdicts);
            move || Arc::clone(&verdicts)
        }),
        events: events.clone(),
        controls: Controls::new(InMemory::new(options.overrides)),
        ..collector::start(options.crowd).into()
    };
    let node = Node {
        version: "load",
        hostname: "gpu-17".to_owned(),
        access: Access::by_tokens([(Grant::Write, token)]),
        ..Node::default()
    };
    let service = web::Service::new(node, sources);
    let event =
        web::verdict_events(verdicts.active.first(), &snapshot, &verdicts).pop().ok_or("there is no process")?;
    drop(snapshot);
    runtime.spawn(async move {
        let mut ticks = tokio::time::interval(EVENT_INTERVAL);
        loop {
            ticks.tick().await;
            events.tell(event.clone());
        }
    });
    runtime.spawn(serve_on(Distant(listener), service.on_tcp(address), Limits::default(), std::future::pending()));
    println!("{SERVES_ON}{address}");
    std::io::stdout().flush().map_err(|error| error.to_string())?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    runtime.shutdown_background();
    Ok(())
}
