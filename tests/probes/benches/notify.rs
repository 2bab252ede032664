//! Cost of an event in uvmd's probe, beside that in a bpftrace program with the same sums; and the
//! fate of records that nothing reads. Root, `bpftrace`, an idle machine: `cargo bench -p
//! probes-test --bench notify`
//!
//! Both programs are attached to one function of this process, so that both see each call, and the
//! kernel measures both. Absolute times depend on this machine and on user memory; the ratio is to
//! be compared.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::fd::{AsFd, AsRawFd},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use collector::Records;
use probes_test::{
    bench::{Bench, GpuFault, Migration, Space},
    image::Family,
};

const FAMILY: &str = "L2_550_555";
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const ROUNDS: usize = 40;
const EVENTS: u64 = 2000;
/// Mark in the script at which the function is attached.
const ATTACHED: &str = "attached";

fn main() -> ExitCode {
    // Only `cargo bench` passes this argument; a run of all tests must not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let before = fs::read_to_string(STATISTICS).unwrap_or_default();
    if fs::write(STATISTICS, "1").is_err() {
        eprintln!("measuring programs needs root");
        return ExitCode::FAILURE;
    }
    let dearer = compare();
    let _ = fs::write(STATISTICS, before.trim());
    match dearer {
        Some(false) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Whether any event costs more than in bpftrace; `None` if it could not be measured.
fn compare() -> Option<bool> {
    println!("ns an event, the least of {ROUNDS} rounds of {EVENTS}\n");
    println!("{:<34} {:>8} {:>8} {:>8}", "", "uvmd", "bpftrace", "ratio");
    let mut dearer = false;
    for (name, records) in [
        ("counts alone", Records { enabled: false, ..Records::default() }),
        ("with records of blocks", Records { max_per_second: 1_000_000, ring_bytes: 64 << 20, ..Records::default() }),
    ] {
        let mut bench = Bench::with(FAMILY, 1024, records)?;
        let (space, _) = bench.register(0xffff_8881_2345_6780);
        let peer = Peer::start(&bench, &space)?;
        for (event, raise) in EVENT_KINDS {
            let (ours, theirs) = cost(&mut bench, &peer, &space, raise);
            let ratio = ours as f64 / theirs.max(1) as f64;
            dearer |= !records.enabled && ratio > 1.0;
            println!("{:<34} {ours:>8} {theirs:>8} {ratio:>8.2}", format!("{event}, {name}"));
        }
    }
    println!();
    saturate()?;
    Some(dearer)
}

type Raise = fn(&Bench, &Space, u64);

const EVENT_KINDS: [(&str, Raise); 3] = [
    ("GPU fault", |bench, space, number| {
        let address = 0x7f00_0020_0000 + number % 512 * 4096;
        let batch = u32::try_from(number / 256).unwrap_or_default();
        bench.gpu_fault(space, &GpuFault { address, batch, ..GpuFault::default() }, |entry| entry);
    }),
    ("CPU fault", |bench, space, _| bench.cpu_fault(space, 0)),
    ("copy", |bench, space, _| bench.migration(space, &Migration::default())),
];

/// Minimum over the rounds for each program, in ns per event: other load only adds to it.
fn cost(bench: &mut Bench, peer: &Peer, space: &Space, raise: Raise) -> (u64, u64) {
    let mut least = (u64::MAX, u64::MAX);
    for _ in 0..ROUNDS {
        let (ours, theirs) = (own(bench), peer.figures());
        for number in 0..EVENTS {
            raise(bench, space, number);
        }
        least.0 = least.0.min(own(bench).each_since(ours));
        least.1 = least.1.min(peer.figures().each_since(theirs));
        // Empties the ring for the next round.
        let _ = bench.blocks();
    }
    least
}

/// Kernel measurements of a program.
#[derive(Clone, Copy, Default)]
struct Figures {
    run_ns: u64,
    runs: u64,
}

impl Figures {
    /// Figures of a descriptor's text below /proc.
    fn of(text: &str) -> Self {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        Self { run_ns: value("run_time_ns:").unwrap_or(0), runs: value("run_cnt:").unwrap_or(0) }
    }

    fn each_since(self, earlier: Self) -> u64 {
        let runs = self.runs - earlier.runs;
        assert!(runs >= EVENTS, "a program that was to see {EVENTS} events saw {runs}");
        (self.run_ns - earlier.run_ns) / runs
    }
}

fn own(bench: &mut Bench) -> Figures {
    let fd = bench.probes().program_fd("uvm_notify").expect("it is loaded").as_fd().as_raw_fd();
    Figures::of(&fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("a descriptor's"))
}

/// bpftrace program with the sums of `uvm_notify`: faults by VA space, GPU and access type, copies
/// by VA space, direction and cause. It checks nothing, and knows no batches, processes or blocks.
struct Peer {
    child: Child,
    /// Descriptor of its program, below /proc.
    program: String,
}

impl Peer {
    fn start(bench: &Bench, space: &Space) -> Option<Self> {
        let mut child = Command::new("bpftrace")
            .args(["-e", &script(bench.family(), space)])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| eprintln!("bpftrace cannot be run, and is what uvmd is compared with: {error}"))
            .ok()?;
        let output = BufReader::new(child.stdout.take()?);
        // It prints the mark before it attaches the rest, which takes a moment more.
        let _ = output.lines().map_while(Result::ok).find(|line| line.contains(ATTACHED));
        let folder = format!("/proc/{}/fdinfo", child.id());
        for _ in 0..200 {
            bench.cpu_fault(space, 0);
            thread::sleep(Duration::from_millis(20));
            let mut files = fs::read_dir(&folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
            let program = files.find(|file| fs::read_to_string(file).is_ok_and(|text| Figures::of(&text).runs > 1));
            if let Some(program) = program {
                return Some(Self { child, program: program.to_string_lossy().into_owned() });
            }
        }
        eprintln!("bpftrace's program saw no event");
        let _ = child.kill();
        None
    }

    fn figures(&self) -> Figures {
        Figures::of(&fs::read_to_string(&self.program).expect("bpftrace runs until it is dropped"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// bpftrace reads user memory if the function is in a user program.
fn script(family: &Family, space: &Space) -> String {
    let at = |field| family.number(field);
    let (access_bit, _) = (357, 4);
    let va_space = (space.events.len() - 1) * 8;
    format!(
        "BEGIN {{ printf(\"{ATTACHED}\\n\"); }}
         uprobe:{binary}:fake_event_notify {{
           $space = *(uint64 *)(arg0 + {va_space});
           if (arg1 == {fault}) {{
             $gpu = *(uint32 *)(arg2 + {processor});
             if ($gpu == 0) {{
               @cpu_faults[$space, *(uint8 *)(arg2 + {is_write})] = count();
             }} else {{
               $entry = *(uint64 *)(arg2 + {entry});
               $access = (*(uint32 *)($entry + {access_word}) >> {access_shift}) & 15;
               @faults[$space, $gpu, $access] = count();
               @instances[$space, $gpu, $access] = sum(*(uint16 *)($entry + {instances}));
             }}
           }} else if (arg1 == {migration}) {{
             $dst = *(uint32 *)(arg2 + {dst});
             $src = *(uint32 *)(arg2 + {src});
             $cause = *(uint32 *)(arg2 + {cause});
             @copies[$space, $src, $dst, $cause] = count();
             @bytes[$space, $src, $dst, $cause] = sum(*(uint64 *)(arg2 + {bytes}));
           }}
         }}",
        binary = std::env::current_exe().expect("this program's file").display(),
        fault = family.event("FAULT"),
        migration = family.event("MIGRATION"),
        processor = at("fault.proc_id"),
        is_write = at("fault.cpu.is_write"),
        entry = at("fault.gpu.buffer_entry"),
        access_word = access_bit / 32 * 4,
        access_shift = access_bit % 32,
        instances = at("fbe.num_instances"),
        dst = at("mig.dst"),
        src = at("mig.src"),
        cause = at("mig.cause"),
        bytes = at("mig.bytes"),
    )
}

/// Writes records that nothing reads, until the ring is full and beyond: each is in the ring or
/// counted as dropped, and no count is lost.
fn saturate() -> Option<()> {
    const RECORDS: u64 = 200_000;
    println!("records of {RECORDS} copies that are not read meanwhile\n");
    println!(
        "{:>10} {:>14} {:>10} {:>12} {:>10} {:>10}",
        "ring", "a second, CPU", "written", "left out", "no room", "counted"
    );
    for (ring_bytes, max_per_second) in [(4 << 20, 100_000), (4 << 20, 1_000_000), (64 << 10, 1_000_000)] {
        let records = Records { enabled: true, max_per_second, ring_bytes };
        let mut bench = Bench::with(FAMILY, 1024, records)?;
        let (space, made) = bench.register(0xffff_8881_2345_6780);
        for _ in 0..RECORDS {
            bench.migration(&space, &Migration::default());
        }
        let [written, left_out, no_room] = bench.fates();
        let taken = bench.blocks().len() as u64;
        let counted: u64 = bench.counts(made.generation).values().map(|(events, _)| events).sum();
        assert_eq!(
            (written, written + left_out + no_room, counted),
            (taken, RECORDS, RECORDS),
            "none is lost silently"
        );
        println!(
            "{:>6} KiB {max_per_second:>14} {written:>10} {left_out:>12} {no_room:>10} {counted:>10}",
            ring_bytes >> 10
        );
    }
    Some(())
}
