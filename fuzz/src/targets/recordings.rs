//! `recorder`: memory that a program shares with uvmd, any word of which may be any value at any time.
//!
//! Input: steps of a fixed length: a kind, a lane, and the 64 bytes of a record. What is read is
//! bounded, and a trace of it is one that the parser of traces accepts.

use std::sync::atomic::{AtomicU64, Ordering};

use call_ring::{Memory, Mode, Record, TOTAL_BYTES, call::Action, memory::LANES, operation::apply, record::RECORD_WORDS};
use recorder::{Merge, Window};
use trace::OpStream;

/// Bytes of a step.
const STEP_BYTES: usize = 2 + RECORD_WORDS * 8;
const WINDOW_BYTES: usize = 4096;

pub(super) fn run(input: &[u8]) {
    let words: Vec<AtomicU64> = (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    Memory::create(&words, Mode::Record).expect("it has the size of a ring");
    let (mut merge, mut window, mut ahead) = (Merge::default(), Window::new(WINDOW_BYTES), [0; LANES]);
    for step in input.chunks_exact(STEP_BYTES) {
        let values: [u64; RECORD_WORDS] = std::array::from_fn(|at| {
            u64::from_le_bytes(step[2 + at * 8..10 + at * 8].try_into().expect("it has eight bytes"))
        });
        // A program that overwrites the header is not read any more.
        let Ok(memory) = Memory::open(&words) else { break };
        let number = usize::from(step[1]) % LANES;
        let lane = memory.lane(number);
        match step[0] % 8 {
            // Records of a call are published together.
            0 => {
                lane.write(ahead[number], Record::from_words(values));
                ahead[number] += 1;
            }
            1 => {
                lane.write(ahead[number], Record::from_words(values));
                lane.publish(ahead[number] + 1);
                ahead[number] = 0;
            }
            2 => {
                let at = usize::try_from(values[0] % words.len() as u64).expect("an index");
                words[at].store(values[1], Ordering::Relaxed);
            }
            3 => {
                let copy = |offset, bytes: &mut [u8]| memory.copy_to(offset, bytes);
                let calls = merge.poll(&memory, copy).expect("all of it is mapped");
                apply(merge.consumed(&memory), &words);
                for call in calls {
                    window.add(call);
                }
            }
            4 => check(&window),
            // A part of a poll: the next one goes on, with what the program has written since.
            5 | 6 => {
                let copy = |offset, bytes: &mut [u8]| memory.copy_to(offset, bytes);
                let calls = merge.poll_part(&memory, copy).expect("all of it is mapped");
                apply(merge.consumed(&memory), &words);
                for call in calls {
                    window.add(call);
                }
            }
            // Records that were never written, or are of the last round.
            _ => lane.publish(usize::try_from(values[0] % (lane.capacity() as u64 + 2)).expect("a count")),
        }
    }
    merge.finish().into_iter().for_each(|call| window.add(call));
    check(&window);
}

fn check(window: &Window) {
    // A snapshot that outlives what is added.
    let window = window.clone();
    let last: Vec<u64> = window.last_calls(9).map(|(_, call)| call.stamp.sequence).collect();
    let all: Vec<u64> = window.calls().map(|call| call.stamp.sequence).collect();
    assert_eq!(last, all[all.len() - last.len()..]);
    for (number, call) in window.last_calls(usize::MAX) {
        if let Action::Launch { function, .. } = call.action {
            let (program, _) = window.last(usize::try_from(window.added() - number).expect("a count"));
            assert_eq!(program.function(function), window.function_at(function, number));
        }
    }
    assert!(window.retained() * size_of::<call_ring::call::Call>() <= WINDOW_BYTES);
    if let Ok(trace) = window.trace(usize::MAX) {
        let text = serde_json::to_string(&trace).expect("a trace has keys of text alone");
        let parsed: OpStream = serde_json::from_str(&text).expect("a trace is valid");
        assert_eq!(parsed, trace);
    }
}
