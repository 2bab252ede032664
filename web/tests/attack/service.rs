//! The service as a separate process: this test, started again.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use nodes::{Crowd, Distant, collector};
use tokio::{net::TcpListener, runtime};
use web::{
    Node, Sources, VerdictSource,
    server::{Limits, serve},
};

use crate::{
    HANG_LIMIT,
    clients::{Client, is_complete},
};

const CROWD: Crowd = Crowd { processes: 5000, gpus: 8 };
/// Environment variable of the process that serves.
const ROLE: &str = "UVMD_TEST_SERVES";
const TEST: &str = "service::serves_until_its_input_ends";

/// Running process of the service.
pub(crate) struct Service {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Service {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args([TEST, "--exact", "--ignored", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("serves on ")?.parse().ok());
        // The test framework prints that the test still runs.
        thread::spawn(move || lines.for_each(drop));
        Self { process, address: address.expect("the service did not start") }
    }

    /// Peak resident memory.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sum of the series with this prefix.
    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let text = Client::from(251, self).await.get("/metrics").await;
        assert!(is_complete(&text), "{} bytes: {}", text.len(), text.get(..1000).unwrap_or(&text));
        let (_, exposition) = text.split_once("\r\n\r\n").unwrap();
        let text = nodes::exposition::without_hostname(exposition);
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "started by the test that attacks it"]
fn serves_until_its_input_ends() {
    if env::var_os(ROLE).is_none() {
        println!("skipped: no attack");
        return;
    }
    // As in uvmd.
    assert!(sys::memory::return_freed_memory());
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.spawn(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let verdicts = Arc::new(CROWD.verdicts());
        let source = VerdictSource::new(move || Arc::clone(&verdicts));
        let node = Node { version: "1.2.3", hostname: "gpu-17".to_owned(), ..Node::default() };
        let snapshots = collector::start(CROWD).within(HANG_LIMIT);
        let service = web::Service::new(node, Sources { verdicts: source, ..snapshots.into() });
        println!("\nserves on {address}");
        std::io::stdout().flush().unwrap();
        serve(Distant(listener), service.on_tcp(address), Limits::default(), std::future::pending()).await;
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    runtime.shutdown_background();
}
