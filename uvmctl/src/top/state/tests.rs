use crate::{
    client::{Endpoint, Error},
    top::testing::{counts, detail, ended, process, sample, settings, state, time},
};

use super::*;

/// State with three processes; bert is busiest, then ann, then carl.
fn three() -> State {
    let mut state = state(sample(0, vec![process(1, "ann", 0), process(2, "bert", 0), process(3, "carl", 0)]));
    state.take_sample(sample(2, vec![process(1, "ann", 200), process(2, "bert", 400), process(3, "carl", 100)]));
    state.fit(80, 10);
    state
}

fn selected(state: &State) -> Option<u32> {
    state.selected.map(|selected| selected.pid)
}

fn apply(state: &mut State, actions: &[Action]) {
    for action in actions {
        state.apply(*action);
    }
}

const fn key(pid: u32) -> ProcessKey {
    ProcessKey { pid, start_ticks: 1 }
}

fn unreachable() -> Response {
    let endpoint = Endpoint::choose(Some("http://127.0.0.1:9477".parse().unwrap()), None);
    Response::Sample(Err(Error::Unreachable { endpoint, reason: "connection refused".to_owned() }))
}

fn rate(state: &State, pid: u32) -> Option<f64> {
    let row = state.samples.rows.iter().find(|row| row.process.pid == pid).unwrap();
    row.rate(|counts| Some(counts.fault_entries))
}

#[test]
fn rates_are_differences_of_two_responses_by_the_daemons_clock() {
    let state = three();
    assert_eq!((rate(&state, 1), rate(&state, 2), rate(&state, 3)), (Some(100.0), Some(200.0), Some(50.0)));
    let gpu = &state.samples.gpus[0];
    assert_eq!(gpu.htod_rate(), Some(350.0 * 65536.0));
    assert_eq!(Some(state.samples.highest_rate), gpu.htod_rate());
}

#[test]
fn a_new_process_started_at_zero() {
    let mut state = three();
    state.take_sample(sample(3, vec![process(4, "new", 10)]));
    assert_eq!(rate(&state, 4), Some(10.0));
}

#[test]
fn a_reused_pid_is_another_process() {
    let mut state = three();
    apply(&mut state, &[Action::First]);
    assert_eq!(selected(&state), Some(2));
    let mut reused = process(2, "other", 500);
    reused.start_ticks = 99;
    state.take_sample(sample(3, vec![process(1, "ann", 0), reused]));
    assert_eq!(rate(&state, 2), Some(500.0));
    assert_ne!(state.selected.unwrap(), ProcessKey::of(&process(2, "bert", 0)));
}

#[test]
fn a_restarted_daemon_has_no_rates_until_its_second_response() {
    let mut state = three();
    let anew = |second, faults| {
        let mut sample = sample(second, vec![process(1, "ann", faults)]);
        sample.status.counting_started_at = Some(time(3));
        sample
    };
    // Higher counts than before the restart still yield no rate.
    state.take_sample(anew(4, 5_000));
    assert_eq!((rate(&state, 1), state.samples.gpus[0].htod_rate()), (None, None));
    state.take_sample(anew(6, 5_010));
    assert_eq!(rate(&state, 1), Some(5.0));
}

#[test]
fn decreased_counts_have_no_rate_once() {
    let mut state = three();
    state.take_sample(sample(4, vec![process(1, "ann", 10)]));
    assert_eq!((rate(&state, 1), state.samples.gpus[0].htod_rate()), (None, None));
    state.take_sample(sample(6, vec![process(1, "ann", 30)]));
    assert_eq!(rate(&state, 1), Some(10.0));
}

#[test]
fn rows_are_sorted_by_what_is_shown() {
    let mut state = three();
    assert_eq!(state.pids(), [2, 1, 3]);
    apply(&mut state, &[Action::Invert]);
    assert_eq!(state.pids(), [3, 1, 2]);
    state.settings.sort = columns::named("process").unwrap();
    apply(&mut state, &[Action::Invert]);
    assert_eq!(state.pids(), [1, 2, 3]);
    // carl has the lowest rate and the highest total.
    let mut busy_once = process(3, "carl", 0);
    busy_once.counts = counts(9_000);
    state.take_sample(sample(4, vec![process(1, "ann", 201), process(2, "bert", 402), busy_once.clone()]));
    state.take_sample(sample(6, vec![process(1, "ann", 202), process(2, "bert", 404), busy_once]));
    state.settings.sort = columns::named("faults").unwrap();
    assert_eq!(state.pids(), [2, 1, 3]);
    apply(&mut state, &[Action::Totals]);
    assert_eq!(state.pids(), [3, 2, 1]);
}

#[test]
fn equal_rows_stay_in_the_daemons_order() {
    let state = state(sample(0, vec![process(9, "z", 1), process(1, "ann", 1)]));
    assert_eq!(state.pids(), [9, 1]);
}

#[test]
fn sorting_cycles_through_the_visible_columns() {
    let mut state = three();
    let shown: Vec<_> = columns::fitting(80).iter().map(|(column, _)| column.name).collect();
    let mut visited = Vec::new();
    for _ in &shown {
        apply(&mut state, &[Action::Sort(1)]);
        visited.push(state.settings.sort.name);
    }
    assert_eq!(state.settings.sort.name, "faults");
    visited.sort_unstable();
    let mut expected = shown.clone();
    expected.sort_unstable();
    assert_eq!(visited, expected);
    apply(&mut state, &[Action::Sort(-1)]);
    assert_eq!(state.settings.sort.name, "process");
}

#[test]
fn the_selection_stays_with_its_process_when_the_order_changes() {
    let mut state = three();
    apply(&mut state, &[Action::Move(1), Action::Move(1)]);
    assert_eq!(selected(&state), Some(1));
    state.take_sample(sample(4, vec![process(1, "ann", 9_000), process(2, "bert", 400), process(3, "carl", 500)]));
    assert_eq!((state.pids(), selected(&state)), (vec![1, 3, 2], Some(1)));
    apply(&mut state, &[Action::Move(1)]);
    assert_eq!(selected(&state), Some(3));
}

#[test]
fn the_selection_of_a_removed_process_stays_in_its_place() {
    let mut state = three();
    apply(&mut state, &[Action::Last]);
    assert_eq!(selected(&state), Some(3));
    state.take_sample(sample(4, vec![process(1, "ann", 200), process(2, "bert", 500)]));
    assert_eq!(selected(&state), Some(1));
    state.take_sample(sample(6, Vec::new()));
    assert_eq!(selected(&state), None);
}

#[test]
fn the_page_follows_the_selection() {
    let many = |second, faults: u64| sample(second, (1..=100).map(|pid| process(pid, "p", faults)).collect());
    let mut state = state(many(0, 1));
    let page = |state: &State| state.page().iter().map(|row| row.process.pid).collect::<Vec<_>>();
    state.fit(80, 3);
    assert_eq!(page(&state), [1, 2, 3]);
    apply(&mut state, &[Action::Move(1), Action::Page(1)]);
    assert_eq!((page(&state), selected(&state)), (vec![2, 3, 4], Some(4)));
    apply(&mut state, &[Action::Last]);
    assert_eq!((page(&state), selected(&state)), (vec![98, 99, 100], Some(100)));
    state.fit(80, 5);
    assert_eq!(page(&state), [96, 97, 98, 99, 100]);
    // A terminal of size 0 must not fail.
    state.fit(0, 0);
    apply(&mut state, &[Action::Page(-1), Action::First]);
    assert_eq!(selected(&state), Some(1));
    apply(&mut state, &[Action::Leave]);
    state.fit(80, 3);
    assert_eq!((page(&state), selected(&state)), (vec![1, 2, 3], None));
}

#[test]
fn a_filter_matches_name_user_pid_and_cgroup() {
    let mut state = three();
    let mut named = |filter: &str| {
        filter.clone_into(&mut state.settings.filter);
        state.pids()
    };
    assert_eq!(named("BERT"), [2]);
    assert_eq!(named("alice"), [2, 1, 3]);
    assert_eq!(named("pod-3"), [3]);
    assert_eq!(named("3"), [3]);
    assert_eq!(named("nobody"), [0; 0]);
}

#[test]
fn a_filter_applies_while_typed_and_is_accepted_or_cleared() {
    let mut state = three();
    apply(&mut state, &[Action::Prompt(Purpose::Filter), Action::Type('r'), Action::Type('l'), Action::Type('x')]);
    assert_eq!(state.pids(), [0; 0]);
    apply(&mut state, &[Action::Erase, Action::Accept]);
    assert_eq!((state.pids(), state.focus), (vec![3], Focus::Table));
    apply(&mut state, &[Action::Prompt(Purpose::Filter), Action::Leave]);
    assert_eq!((state.pids().len(), state.focus), (3, Focus::Table));
}

#[test]
fn a_search_selects_the_first_match_and_then_the_next() {
    let mut state = three();
    apply(&mut state, &[Action::Prompt(Purpose::Search), Action::Type('p'), Action::Type('o'), Action::Type('d')]);
    assert_eq!(selected(&state), Some(2));
    apply(&mut state, &[Action::NextMatch]);
    assert_eq!(selected(&state), Some(1));
    apply(&mut state, &[Action::Accept, Action::NextMatch, Action::NextMatch]);
    assert_eq!(selected(&state), Some(2));
}

#[test]
fn ended_processes_are_hidden_by_default_and_listed_last() {
    let mut state = state(sample(0, vec![process(1, "ann", 1), ended(process(2, "bert", 900))]));
    assert_eq!(state.pids(), [1]);
    apply(&mut state, &[Action::Ended, Action::Totals]);
    assert_eq!(state.pids(), [1, 2]);
    apply(&mut state, &[Action::Invert]);
    assert_eq!(state.pids(), [1, 2]);
}

#[test]
fn opening_details_and_changing_the_selection_request_details() {
    let mut state = three();
    assert_eq!(state.next_request(), Request::Sample(OptionalParts::default()));
    assert_eq!(state.apply(Action::Detail), Effect::Send(Request::Detail(key(2))));
    assert_eq!(state.next_request(), Request::Sample(OptionalParts { detail: Some(key(2)), evictions: false }));
    assert!(state.detail().is_none());
    state.take(Response::Detail(detail(process(2, "bert", 400), 3)), Instant::now());
    assert_eq!(state.detail().unwrap().unwrap().process.blocks.len(), 3);
    assert_eq!(state.apply(Action::Move(1)), Effect::Send(Request::Detail(key(1))));
    // The late response is about another process.
    assert!(state.detail().is_none());
    assert_eq!(state.apply(Action::Leave), Effect::Draw);
    assert_eq!((state.next_request(), selected(&state)), (Request::Sample(OptionalParts::default()), Some(1)));
}

#[test]
fn without_processes_no_details_open() {
    let mut state = state(sample(0, Vec::new()));
    assert_eq!(state.apply(Action::Detail), Effect::Draw);
    assert!(!state.detail_open);
}

#[test]
fn missing_responses_are_reported_with_their_age_until_the_next_response() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut state = State::new(settings(), sample(0, Vec::new()), start);
    state.request_sent(after(2));
    assert_eq!(state.silence(after(3)), None);
    assert_eq!(state.silence(after(5)), Some((Duration::from_secs(5), "the response is slow")));
    state.take(unreachable(), after(6));
    let (age, reason) = state.silence(after(7)).unwrap();
    assert!(age == Duration::from_secs(7) && reason.contains("connection refused"), "{reason}");
    state.take(Response::Sample(Ok(Box::new(sample(8, Vec::new())))), after(8));
    assert_eq!(state.silence(after(8)), None);
}

#[test]
fn the_interval_changes_in_steps_within_limits() {
    let mut state = three();
    apply(&mut state, &[Action::Slower]);
    assert_eq!(state.settings.interval, Duration::from_secs(3));
    apply(&mut state, &[Action::Faster, Action::Faster]);
    assert_eq!(state.settings.interval, Duration::from_secs(1));
    apply(&mut state, &[Action::Faster; 20]);
    assert_eq!(state.settings.interval, Duration::from_millis(250));
    apply(&mut state, &[Action::Slower; 20]);
    assert_eq!(state.settings.interval, Duration::from_mins(1));
}

#[test]
fn explain_requests_details_and_selects_a_process_if_none_is_selected() {
    let mut state = three();
    assert_eq!(state.apply(Action::Open(Page::Explain)), Effect::Send(Request::Detail(key(2))));
    assert_eq!(state.next_request(), Request::Sample(OptionalParts { detail: Some(key(2)), evictions: false }));
    apply(&mut state, &[Action::Leave]);
    assert_eq!(
        (state.focus, selected(&state), state.next_request()),
        (Focus::Table, Some(2), Request::Sample(OptionalParts::default()))
    );
}

#[test]
fn evictions_are_requested_immediately_and_only_while_shown() {
    let mut state = three();
    let request = Request::Sample(OptionalParts { detail: None, evictions: true });
    assert_eq!(state.apply(Action::Open(Page::Evictions)), Effect::Send(request));
    assert_eq!(state.next_request(), request);
    apply(&mut state, &[Action::Leave]);
    assert_eq!(state.next_request(), Request::Sample(OptionalParts::default()));
}
