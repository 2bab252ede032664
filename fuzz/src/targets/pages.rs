//! `uvmctl`: lists of several pages from a daemon that may not be uvmd, over a real Unix socket.
//!
//! Input: the response to each connection in turn, separated by [`SEPARATOR`]; the last is for
//! every further one. The client always terminates, and its output contains no control sequences.

use std::{
    cell::OnceCell,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use uvmctl::fuzzing::listed;

const SEPARATOR: &[u8] = b"\n%%\n";
/// More connections than the client needs: it requests each page once, in each of two ways.
const CONNECTIONS_MAX: usize = 2 * 1000 + 16;

thread_local! {
    /// Daemon of each thread, for all inputs.
    static DAEMON: OnceCell<Daemon> = const { OnceCell::new() };
}

/// Process that owns the socket.
struct Daemon {
    folder: tempfile::TempDir,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<Vec<Vec<u8>>>,
    connections: AtomicUsize,
}

pub(super) fn run(input: &[u8]) {
    // The client waits as the response demands: this target tests its parser, not its pace.
    if input.to_ascii_lowercase().windows(11).any(|word| word == b"retry-after") {
        return;
    }
    let mut answers = Vec::new();
    let mut rest = Some(input);
    while let Some(text) = rest {
        let (answer, behind) = super::split_once(text, SEPARATOR);
        answers.push(answer.to_vec());
        rest = behind;
    }
    DAEMON.with(|daemon| daemon.get_or_init(Daemon::start).ask(answers));
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let listener = UnixListener::bind(folder.path().join("socket")).expect("a socket can be made");
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| serving.serve(stream)));
        Self { folder, shared }
    }

    fn ask(&self, answers: Vec<Vec<u8>>) {
        *self.shared.answers.lock().expect("nobody panics with it") = answers;
        self.shared.connections.store(0, Ordering::Relaxed);
        for printed in listed(&self.folder.path().join("socket")) {
            super::check_printable(&printed);
        }
        let connections = self.shared.connections.load(Ordering::Relaxed);
        assert!(connections <= CONNECTIONS_MAX, "it asked {connections} times");
    }
}

impl Shared {
    /// Sends the response to any request, and closes.
    fn serve(&self, mut stream: UnixStream) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut head = [0; 4096];
        let mut read = 0;
        while !head[..read].ends_with(b"\r\n\r\n") {
            match stream.read(&mut head[read..]) {
                Ok(more @ 1..) => read += more,
                _ => return,
            }
        }
        let answer = {
            let answers = self.answers.lock().expect("nobody panics with it");
            answers.get(number).or(answers.last()).cloned().unwrap_or_default()
        };
        // The client may close, too, after it has read enough.
        let _ = stream.write_all(&answer);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut head);
    }
}
