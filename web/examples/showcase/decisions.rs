//! What is done about it: one decision that helps, and one that is only told.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{
    Advice, Decision, DecisionId, Expected, GpuUuid, LinkBytes, Place, ProcessId, Share, Stage, VerdictKind,
    decision::{Done, Measured},
    verdict::Inputs,
};

const GIB: u64 = 1 << 30;

/// Of the processes `told` and `helped`, with the GPUs they are on.
pub(crate) fn decisions(told: (ProcessId, GpuUuid), helped: (ProcessId, GpuUuid)) -> Arc<[Decision]> {
    let now = SystemTime::now();
    let share = |at_least, at_most| Share { at_least, at_most };
    let measured = |gib: u64, faults| Measured {
        window: Duration::from_secs(2),
        inputs: Inputs { fault_entries: faults, ..Inputs::default() },
        replays: faults / 60,
        link: Some(LinkBytes { htod: gib * GIB, dtoh: gib * GIB }),
        own_link_bytes: 2 * gib * GIB,
        others_evicted_bytes: 0,
    };
    let kept = Decision {
        id: DecisionId(17),
        process: helped.0,
        process_name: "solver".to_owned(),
        gpu: helped.1,
        policy: "cycle",
        override_id: Some("solvers".to_owned()),
        verdict: Some(VerdictKind::CapacityThrash),
        reason: "it walks 290 GiB again and again, where 133 GiB have room".to_owned(),
        ranges: vec![(0x7f2a_4000_0000, 0x7f2a_4000_0000 + 290 * GIB)],
        advice: vec![Advice::PreferredLocation(Place::Host)],
        expected: Expected { link_bytes_saved: share(0.4, 0.5), faults_saved: share(0.4, 0.5) },
        created_at: now - Duration::from_secs(95),
        updated_at: now - Duration::from_secs(91),
        stage: Stage::Confirmed,
        before: measured(44, 10_600),
        after: Some(measured(23, 5_100)),
        pace: Some(1.2),
        done: Done { calls: 78_336, touches: 66_000, ..Done::default() },
        last_error: None,
    };
    let shadow = Decision {
        id: DecisionId(18),
        process: told.0,
        process_name: "python".to_owned(),
        gpu: told.1,
        override_id: Some("llm".to_owned()),
        stage: Stage::Shadow("nothing more is wanted".to_owned()),
        reason: "it walks 187 GiB again and again, where 118 GiB have room".to_owned(),
        expected: Expected { link_bytes_saved: share(0.5, 0.6), faults_saved: share(0.5, 0.6) },
        after: None,
        pace: None,
        ..kept.clone()
    };
    [shadow, kept].into()
}
