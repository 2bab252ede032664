use std::{collections::BTreeMap, time::Duration};

use ratatui_core::{backend::TestBackend, buffer::Cell, terminal::Terminal};

use super::*;
use api::{Block, Evictions};
use nodes::thrashing;

use crate::{
    client::{Endpoint, Error},
    top::{
        fetch::{Detail, Detailed, Response, Sample},
        keys::{Action, Page},
        testing::{detail, ended, process, sample, state},
    },
};

/// Text on a terminal of this size, without styles.
fn screen(state: &mut State, look: Look, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, look, Instant::now())).unwrap();
    let buffer = terminal.backend().buffer();
    // A wide character is followed by a cell that is not drawn.
    let line = |row: &[Cell]| {
        let after_wide = |at: usize| at > 0 && row[at - 1].symbol().width() > 1;
        (0..row.len()).filter(|at| !after_wide(*at)).map(|at| row[at].symbol()).collect::<String>()
    };
    let lines: Vec<_> = buffer.content.chunks(width.max(1).into()).map(|row| line(row).trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Compares with the golden file of this name; `UVMCTL_WRITE_SCREENS=1` rewrites the file.
fn assert_screen(name: &str, screen: &str) {
    let path = format!("{}/src/top/view/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UVMCTL_WRITE_SCREENS").is_some() {
        std::fs::write(&path, screen).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(screen == expected, "{name} is now:\n{screen}\nand was to be:\n{expected}");
}

/// State after a minute of a busy node.
fn busy() -> State {
    let processes = |second: u64| {
        let load = second * 10_000 + 100 * second * second;
        vec![
            process(41_207, "python train.py", load),
            process(40_981, "cudf-worker", load / 8),
            process(512, "名前の長いプロセス", second * 3),
            process(77, "\u{1b}[2J\u{202e}evil", 0),
            ended(process(9, "nbody", 5_000)),
        ]
    };
    let mut state = state(sample(200, processes(200)));
    for second in (202..=252).step_by(2) {
        state.take_sample(sample(second, processes(second)));
    }
    state
}

#[test]
fn essential_figures_fit_a_terminal_of_80_by_24() {
    assert_screen("80x24", &screen(&mut busy(), Look::PLAIN, 80, 24));
}

#[test]
fn the_first_line_says_whether_uvmd_acts() {
    let mut state = busy();
    state.samples.acting = Some(false);
    let screen = screen(&mut state, Look::PLAIN, 80, 24);
    let title = screen.lines().next().unwrap();
    assert!(title.starts_with("gpu-17  drops 0  driver 580.159.04 (580-595)  acting: off  counts"), "{title}");
}

#[test]
fn all_columns_fit_a_terminal_of_200_by_50() {
    let mut state = busy();
    state.settings.ended = true;
    assert_screen("200x50", &screen(&mut state, Look::UNICODE, 200, 50));
}

#[test]
fn the_details_share_the_screen_with_the_table() {
    let mut state = busy();
    state.fit(80, 10);
    state.apply(Action::Detail);
    state.take(Response::Detail(detail(process(41_207, "python train.py", 1_000_000), 30)), Instant::now());
    assert_screen("80x24-detail", &screen(&mut state, Look::PLAIN, 80, 24));
    assert_screen("200x50-detail", &screen(&mut state, Look::UNICODE, 200, 50));
}

/// State after two seconds of a node on which one process thrashes and evicts another's memory,
/// with the details of the first.
fn two_tenants() -> State {
    let sample = |second: u64, sent_bytes: u64| {
        let at = format!("2026-11-21T14:06:{second}.000Z");
        let mut processes = thrashing::processes();
        for (process, share) in processes.processes.iter_mut().zip([100, 12, 0]) {
            let bytes = sent_bytes / 100 * share;
            let counts = &mut process.counts;
            counts.fault_entries += bytes >> 16;
            let evicted = counts.evicted_bytes.iter_mut();
            for counter in [&mut counts.bytes_htod, &mut counts.bytes_dtoh].into_iter().chain(evicted) {
                *counter += bytes;
            }
        }
        processes.time.clone_from(&at);
        let mut status = thrashing::status();
        status.time.clone_from(&at);
        for gpu in &mut status.gpus {
            (gpu.counts.bytes_htod, gpu.counts.bytes_dtoh) = (sent_bytes, sent_bytes);
        }
        let mut evictions = thrashing::evictions(&at, (4096 << 20) + sent_bytes);
        for pair in evictions.pairs.iter_mut().flatten().skip(1) {
            pair.bytes += sent_bytes / 9;
        }
        Sample {
            status,
            processes,
            gpus: thrashing::gpus(),
            verdicts: thrashing::verdicts(),
            evictions: Some(evictions),
            acting: None,
            detail: None,
        }
    };
    let mut state = state(sample(21, 0));
    state.take_sample(sample(23, 200 << 20));
    state.fit(80, 10);
    state.apply(Action::Detail);
    let key = state.selected.unwrap();
    let detailed = Detailed {
        process: thrashing::detail_of(key.pid),
        ranges: Some(thrashing::ranges_of(key.pid)),
        heat: Some(thrashing::heat()),
    };
    state.take(Response::Detail(Detail { key, response: Ok(Box::new(detailed)) }), Instant::now());
    state
}

#[test]
fn the_screen_names_the_thrasher_its_victim_and_the_ranges() {
    let narrow = screen(&mut two_tenants(), Look::PLAIN, 80, 24);
    assert_screen("80x24-thrash", &narrow);
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/top.md")).unwrap();
    assert!(document.contains(&narrow), "docs/top.md shows another screen");
    assert_screen("200x50-thrash", &screen(&mut two_tenants(), Look::UNICODE, 200, 50));
}

#[test]
fn the_explain_page_has_the_verdict_in_words() {
    let mut state = two_tenants();
    state.apply(Action::Open(Page::Explain));
    assert_screen("80x24-explain", &screen(&mut state, Look::PLAIN, 80, 24));
}

#[test]
fn evictions_are_a_matrix_of_victims_and_evictors() {
    let mut state = two_tenants();
    state.apply(Action::Open(Page::Evictions));
    assert_screen("80x24-evictions", &screen(&mut state, Look::PLAIN, 80, 24));
}

#[test]
fn a_range_has_the_refetched_share_of_its_own_process() {
    let mut state = two_tenants();
    // The other verdicts are on processes with ranges at the same addresses.
    for verdict in &mut state.samples.verdicts.active {
        verdict.pid += 1;
        verdict.ranges.iter_mut().flatten().for_each(|range| range.refetch_ratio = 0.07);
    }
    let details = screen(&mut state, Look::PLAIN, 80, 24);
    assert!(details.contains(" 0x7f2a40000000 ") && !details.contains(" 7 %"), "{details}");
}

#[test]
fn what_the_source_does_not_count_is_left_out() {
    let mut state = two_tenants();
    for row in &mut state.samples.gpus {
        row.gpu.counts.batches = None;
        row.gpu.counts.replays = None;
        row.gpu.counts.batch_duration_ns = None;
        let memory = row.memory.as_mut().unwrap();
        (memory.memory_used_bytes, memory.resident) = (None, None);
    }
    for row in &mut state.samples.rows {
        row.process.resident = None;
    }
    let key = state.selected.unwrap();
    let mut process = thrashing::detail_of(key.pid);
    let counts = &mut process.process.counts;
    (counts.replays, counts.evictions, counts.populated_bytes) = (None, None, None);
    (counts.induced_evictions, counts.induced_eviction_bytes) = (None, None);
    let block = Block { address: "0x20000000000".to_owned(), evicted_bytes: 2 << 20, ..Block::default() };
    process.blocks = vec![block];
    let detailed = Detailed { process, ranges: None, heat: None };
    state.take(Response::Detail(Detail { key, response: Ok(Box::new(detailed)) }), Instant::now());
    let details = screen(&mut state, Look::PLAIN, 80, 40);
    for line in [
        "  mem 64.0 MiB, use unknown  managed 154 MiB (2.4x)\n",
        "-- 182 streams: 128 MiB managed ---",
        "CPU faults 0\n",
        "Evicted of it 4.0 GiB\n",
        " ADDRESS        GPU      H2D      D2H  EVICTED\n",
    ] {
        assert!(details.contains(line), "{line}: {details}");
    }
    for absent in ["batches", "p99  ", "replays"] {
        assert!(!details.contains(absent), "{absent}: {details}");
    }
}

#[test]
fn evictions_that_are_not_counted_have_the_reason() {
    let mut state = two_tenants();
    let unavailable = Some("not counted by the driver's tools".to_owned());
    state.samples.evictions = Some(Evictions { unavailable, ..Evictions::default() });
    state.samples.flows = Some(Vec::new());
    state.apply(Action::Open(Page::Evictions));
    let page = screen(&mut state, Look::PLAIN, 80, 24);
    assert!(page.starts_with("victims and evictors are not counted by the driver's tools\n"), "{page}");
}

#[test]
fn ranges_require_read_permission() {
    let mut state = two_tenants();
    let key = state.selected.unwrap();
    let detailed = Detailed { process: thrashing::detail_of(key.pid), ranges: None, heat: None };
    state.take(Response::Detail(Detail { key, response: Ok(Box::new(detailed)) }), Instant::now());
    let details = screen(&mut state, Look::PLAIN, 80, 24);
    assert!(details.contains("is thrashing GPU0") && details.contains("require read permission"), "{details}");
    state.apply(Action::Open(Page::Explain));
    let explained = screen(&mut state, Look::PLAIN, 80, 60);
    assert!(explained.contains("The ranges of its memory require read permission"), "{explained}");
}

#[test]
fn the_state_of_uvmd_and_dropped_events_are_shown_first() {
    let mut waiting = sample(0, Vec::new());
    waiting.status.state = "waiting".to_owned();
    waiting.status.counting_started_at = None;
    waiting.status.driver = None;
    waiting.status.gpus.clear();
    waiting.status.reasons = vec![
        "the driver nvidia-uvm is not loaded: run `modprobe nvidia-uvm`, or start a CUDA program, which loads it"
            .to_owned(),
    ];
    assert_screen("80x24-waiting", &screen(&mut state(waiting), Look::PLAIN, 80, 24));

    let mut lossy = sample(2, vec![process(1, "a", 1)]);
    lossy.status.dropped_events = 12;
    lossy.status.dropped_events_by_reason = BTreeMap::from([("map_full".to_owned(), 12), ("no_process".to_owned(), 0)]);
    let mut state = state(lossy);
    let endpoint = Endpoint::choose(Some("http://127.0.0.1:9477".parse().unwrap()), None);
    let error = Error::Unreachable { endpoint, reason: "connection refused".to_owned() };
    state.take(Response::Sample(Err(error)), Instant::now() + Duration::from_secs(1));
    assert_screen("80x24-silence", &screen(&mut state, Look::PLAIN, 80, 24));
}

#[test]
fn the_help_can_be_scrolled() {
    let mut state = busy();
    state.apply(Action::Open(Page::Help));
    assert!(screen(&mut state, Look::PLAIN, 80, 24).contains("F4 \\"));
    state.apply(Action::Page(9));
    assert!(screen(&mut state, Look::PLAIN, 80, 24).contains("CGROUP"));
}

#[test]
fn many_gpus_take_a_line_each_and_those_without_room_are_counted() {
    let with = |gpus: u32| {
        let mut sample = sample(2, vec![process(1, "a", 1)]);
        let gpu = sample.status.gpus.remove(0);
        let with_index = |index| {
            let id = api::GpuId { gpu: Some(index), processor_id: Some(index + 1), uuid: None };
            api::Gpu { id, ..gpu.clone() }
        };
        sample.status.gpus = (0..gpus).map(with_index).collect();
        screen(&mut state(sample), Look::PLAIN, 80, 24)
    };
    assert_eq!(with(8).matches("h2d [").count(), 8);
    let sixteen = with(16);
    assert_eq!(sixteen.matches("h2d [").count(), 10);
    assert!(sixteen.contains("and 6 more GPUs"), "{sixteen}");
    assert!(sixteen.contains("PROCESS"), "{sixteen}");
}

#[test]
fn every_terminal_size_can_be_drawn() {
    let mut state = busy();
    state.fit(80, 10);
    state.apply(Action::Detail);
    for (width, height) in [(0, 0), (0, 24), (80, 0), (1, 1), (2, 5), (20, 3), (39, 11), (79, 8), (500, 2), (3, 200)] {
        screen(&mut state, Look::UNICODE, width, height);
    }
}

#[test]
fn names_cannot_command_the_terminal() {
    let screen = screen(&mut busy(), Look::UNICODE, 80, 24);
    assert!(screen.contains(r"\u{1b}[2J"), "{screen}");
    assert!(!screen.contains(['\u{1b}', '\u{202e}']), "{screen}");
}

#[test]
fn only_changed_cells_are_drawn_again() {
    let mut state = busy();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &mut state, Look::PLAIN, Instant::now())).unwrap();
    let before = terminal.backend().buffer().clone();
    terminal.draw(|frame| draw(frame, &mut state, Look::PLAIN, Instant::now())).unwrap();
    assert!(before.diff(terminal.backend().buffer()).is_empty());
}
