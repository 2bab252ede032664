//! Block records, from the kernel's ring to a snapshot: each is counted or reported as dropped.
//! Root, an idle machine: `cargo bench -p probes-test --bench records`

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use abi::{BlockRecord, RecordKind, block::BLOCK_BYTES};
use collector::{BlockLimits, Records, testing::TestLedger};
use probes_test::{
    bench::Bench,
    flood::{self, Flood},
};

const SECONDS: u64 = 10;
const A_SECOND: u64 = 1_000_000;
/// Blocks of the process in the second part: 32 GiB of memory.
const BLOCKS: u64 = 16_384;
const MANY: u64 = 50_000_000;
/// Records per batch.
const PART: u64 = 100_000;
/// Interval of reads, as in the collector.
const TAKEN_EVERY: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    ledger();
    match through_the_ring() {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// Writes a million records per second with a program in the kernel: events of the fake driver
/// would be too slow.
fn through_the_ring() -> Option<()> {
    let records = Records { enabled: true, max_per_second: 1_000_000, ring_bytes: 64 << 20 };
    let mut bench = Bench::with("L2_550_555", 1024, records)?;
    let (_, made) = bench.register(0xffff_8881_2345_6780);
    let flood = match Flood::new(bench.probes().ring_fd(), made.generation) {
        Ok(flood) => flood,
        Err(error) => {
            eprintln!("the kernel does not take the program that writes records: {error}");
            return None;
        }
    };
    let mut ledger = TestLedger::new(BlockLimits::default());
    ledger.process(1, made.generation);
    let done = AtomicBool::new(false);
    let (mut took, mut busy, mut room) = (0, Duration::ZERO, Vec::with_capacity(4096));
    let wrote = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let wrote = write(&flood);
            done.store(true, Ordering::Release);
            wrote
        });
        loop {
            let is_last = done.load(Ordering::Acquire);
            let began = Instant::now();
            bench.probes().blocks(|record| {
                room.push(record);
                if room.len() == room.capacity() {
                    took += room.len() as u64;
                    ledger.records(room.drain(..));
                }
            });
            took += room.len() as u64;
            ledger.records(room.drain(..));
            busy += began.elapsed();
            if is_last {
                break;
            }
            thread::sleep(TAKEN_EVERY);
        }
        writer.join().expect("it does not panic")
    });
    let Wrote { attempted, no_room, seconds } = wrote?;
    assert_eq!(attempted - no_room, took, "none is lost silently");
    let bytes = fetched_bytes(&ledger);
    assert_eq!(bytes, took * u64::from(flood::BYTES.unsigned_abs()), "what was taken is in the snapshot");
    println!(
        "through the ring: {attempted} records in {seconds:.1} s, {:.2} million a second; {took} in the snapshot, {no_room} without room; \
         taking them kept a CPU busy for {:.0} % of the time",
        attempted as f64 / seconds / 1e6,
        busy.as_secs_f64() / seconds * 100.0
    );
    Some(())
}

/// Result of the writes.
struct Wrote {
    attempted: u64,
    no_room: u64,
    seconds: f64,
}

/// Writes at a steady pace; `None` if the kernel does not run the program.
fn write(flood: &Flood) -> Option<Wrote> {
    let began = Instant::now();
    let (mut attempted, mut no_room) = (0, 0);
    while attempted < A_SECOND * SECONDS {
        let due = began.elapsed().as_secs_f64() * A_SECOND as f64;
        if attempted as f64 >= due {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        no_room += u64::from(flood.run().inspect_err(|error| eprintln!("the program does not run: {error}")).ok()?);
        attempted += u64::from(flood::RECORDS);
    }
    Some(Wrote { attempted, no_room, seconds: began.elapsed().as_secs_f64() })
}

fn fetched_bytes(ledger: &TestLedger) -> u64 {
    ledger.processes().iter().flat_map(|process| process.reuse.values()).map(|reuse| reuse.fetched_bytes).sum()
}

/// Measures the part after the ring alone, where events are not the limit.
fn ledger() {
    let mut ledger = TestLedger::new(BlockLimits::default());
    ledger.process(1, 7);
    let record = |number: u64| BlockRecord {
        boottime_ns: number * 1000,
        generation: 7,
        // No order that a cache could predict.
        address: 0x7f00_0000_0000 + number.wrapping_mul(0x9e37_79b9) % BLOCKS * BLOCK_BYTES,
        bytes: 65536,
        events: 1,
        gpu: 1,
        slots: 1 << (number % 32),
        kind: [RecordKind::GpuFaults, RecordKind::CopyHtod][usize::from(number % 2 == 1)] as u16,
        ..BlockRecord::default()
    };
    let mut resident = Vec::new();
    let began = Instant::now();
    for part in 0..MANY / PART {
        ledger.records((part * PART..(part + 1) * PART).map(record));
        if part % 50 == 49 {
            resident.push(resident_kib());
        }
    }
    let took = began.elapsed();
    let bytes = fetched_bytes(&ledger);
    assert_eq!(bytes, MANY / 2 * 65536, "what was taken is in the snapshot");
    println!(
        "behind the ring: {MANY} records of {BLOCKS} blocks, {:.1} million a second; resident {} KiB after a tenth, {} KiB in the end",
        MANY as f64 / took.as_secs_f64() / 1e6,
        resident.first().copied().unwrap_or_default(),
        resident.last().copied().unwrap_or_default()
    );
}

/// Resident memory of this process.
fn resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
