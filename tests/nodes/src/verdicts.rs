//! Verdicts on a crowded node.

use std::time::{Duration, SystemTime};

use model::{
    Pattern, PatternKind, Verdict, VerdictKind, Verdicts,
    verdict::{Check, Inputs, Involved, Victim},
};

use crate::Crowd;

const MIB: u64 = 1 << 20;
/// A verdict for every other process at one GPU is bad, and possible.
const WITH_VERDICT: usize = 2;
const WINDOW: Duration = Duration::from_secs(2);

impl Crowd {
    /// Verdicts about every other process.
    #[must_use]
    pub fn verdicts(self) -> Verdicts {
        let inputs = Inputs {
            fault_entries: 36_000,
            bytes_htod: 18_000 * MIB,
            bytes_dtoh: 17_000 * MIB,
            evicted_bytes: 17_000 * MIB,
            fetched_bytes: 18_000 * MIB,
            refetched_bytes: 16_000 * MIB,
            ..Inputs::default()
        };
        let now = SystemTime::now();
        let pattern = Pattern { kind: PatternKind::Cyclic, confidence: 0.97, steps: 4608 };
        let verdict = |at: usize| Verdict {
            process: self.id(at),
            gpu: Self::gpu(at % self.gpus.max(1)),
            peer: None,
            kind: VerdictKind::CapacityThrash,
            started_at: now - Duration::from_mins(4),
            confirmed_at: now - Duration::from_mins(3),
            ended_at: None,
            ranges: vec![Involved { begin: MIB, end: 65 * MIB, pattern, traffic_ratio: 1.0, refetch_ratio: 0.9 }],
            window: WINDOW,
            inputs,
            total: inputs,
            checks: vec![
                Check {
                    description: "90 % of it (limit 50 %)".to_owned(),
                    name: "share",
                    value: 0.9,
                    threshold: 0.5,
                    met: true
                };
                4
            ],
        };
        let active: Vec<_> = (0..self.processes).step_by(WITH_VERDICT).map(verdict).collect();
        let victims = active.iter().enumerate().map(|(at, each)| Victim {
            victim: self.id(at * WITH_VERDICT + 1),
            evictor: each.process,
            gpu: each.gpu,
            bytes: 11 * MIB,
            window: WINDOW,
        });
        Verdicts { victims: victims.collect(), active, ..Verdicts::default() }
    }
}
