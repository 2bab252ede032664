//! `planner_answers`: what a planner process writes, which is anything once its workload has taken it over.
//!
//! Input: lines of answers, to a question about a training of eight layers with three units each. Whatever
//! they are, moves are of memory of the training, a plan of swaps has room for them and copies less than
//! the driver alone, and a refusal is a line.

use std::sync::LazyLock;

use plans::{Answer, methods::Workload, planning::wire};
use serde_json::json;

const METHODS: [&str; 3] = ["foresight", "pump", "harmful-plan"];
const BASE: u64 = 1 << 40;
const UNIT: u64 = 2 << 20;
const LAYERS: usize = 8;
const OPS: usize = 3 * LAYERS;
const GPU_BYTES: u64 = 17 * UNIT;
const REFUSAL_BYTES_MAX: usize = 512;

static WORKLOAD: LazyLock<Workload> = LazyLock::new(|| {
    let piece = |unit: usize| {
        // Forth, back, and an update.
        let (layer, first) = (unit / 3, unit % 3);
        let uses: Vec<usize> = [layer, 2 * LAYERS - 1 - layer, 2 * LAYERS + layer].into_iter().skip(first).collect();
        json!({ "block": unit, "address": BASE + unit as u64 * 2 * UNIT, "bytes": UNIT, "is_managed": true,
            "is_movable": true, "outlives": true, "uses": uses })
    };
    let workload = json!({
        "pieces": { "ops": OPS, "all": (0..OPS).map(piece).collect::<Vec<_>>() },
        "durations_ns": vec![1_000_000_u64; OPS],
        "queue_starts": vec![Some(0_usize); OPS],
        "memory": { "bytes": GPU_BYTES, "room_bytes": GPU_BYTES, "launch_bytes_max": GPU_BYTES },
    });
    serde_json::from_value(workload).expect("it is a workload")
});

pub(super) fn run(input: &[u8]) {
    check(wire::check(input, &METHODS, &WORKLOAD));
    if let Some(best) = wire::best_so_far(input, &METHODS, &WORKLOAD) {
        check(Ok(best));
    }
}

fn check(answer: Answer) {
    let best = match answer {
        Ok(best) => best,
        Err(refusal) => {
            let text = refusal.to_string();
            assert!(text.len() <= REFUSAL_BYTES_MAX && !text.contains(char::is_control), "{text:?}");
            return;
        }
    };
    for step in &best.outline.moves {
        let (unit, offset) = ((step.begin - BASE) / (2 * UNIT), (step.begin - BASE) % (2 * UNIT));
        assert!(unit < OPS as u64 && offset + step.bytes <= UNIT && (step.begin_op as usize) < OPS, "{step:?}");
    }
    if best.method == "foresight" {
        assert!(best.outline.peak_bytes <= GPU_BYTES, "{best:?}");
        assert!(best.outline.traffic.bytes.total() < best.traffic_without_plan.bytes.total(), "{best:?}");
    }
}
