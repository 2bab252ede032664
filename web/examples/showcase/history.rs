//! Histories: waves, with a gap without readings.

use std::time::{Duration, SystemTime};

use model::{History, HistoryOf, HistoryRequest, history::Sample};

use crate::{memory::GIB, scene::CARDS};

pub(crate) fn history(request: &HistoryRequest) -> History {
    let resolution: u32 = if request.back <= Duration::from_hours(1) { 1 } else { 10 };
    let requested = u32::try_from(request.back.as_secs()).unwrap_or(u32::MAX) / resolution;
    let each = requested.div_ceil(u32::try_from(request.samples_max).unwrap_or(u32::MAX)).max(1);
    let interval = Duration::from_secs(u64::from(resolution * each));
    let count = requested / each;
    let begin = SystemTime::now() - interval * count;
    let busy = match &request.of {
        HistoryOf::Process(id) => f64::from(id.pid % 7) / 6.0,
        HistoryOf::Gpu(key) => {
            if *key == CARDS[0] {
                1.0
            } else {
                0.4
            }
        }
        HistoryOf::Owner(_) => 0.6,
    };
    let first = begin.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let samples = (0..count).map(|at| {
        let time = first + f64::from(at) * interval.as_secs_f64();
        let known = !(0.4..0.42).contains(&(f64::from(at) / f64::from(count)));
        known.then(|| sample(time, busy, interval.as_secs_f64()))
    });
    History { begin, interval, samples: samples.collect() }
}

fn sample(time: f64, busy: f64, seconds: f64) -> Sample {
    let wave = busy * (1.0 + 0.4 * (time / 9.0).sin() + 0.25 * (time / 700.0).sin());
    let bytes = |gib_a_second: f64| (wave * gib_a_second * seconds * GIB as f64) as u64;
    Sample {
        fault_entries: (wave * 18_000.0 * seconds) as u64,
        cpu_faults: (wave * 20.0 * seconds) as u64,
        bytes_htod: bytes(9.1),
        bytes_dtoh: bytes(8.8),
        evicted_bytes: bytes(8.6),
        refetched_bytes: bytes(8.3),
        resident_bytes: ((1.0 + 0.05 * (time / 30.0).sin()) * busy * 112.0 * GIB as f64) as u64,
    }
}
