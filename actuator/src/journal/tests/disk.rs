//! Disks that are stuck, full, or slow.

use std::sync::mpsc;

use super::*;

const READ: Advice = Advice::ReadDuplication;

fn advise(page: u64) -> Step {
    step(page * 4096, (page + 1) * 4096, Action::Advise(READ))
}

/// Intent that was started, and signals its result here.
fn begin(journal: &Journal, gpu: GpuUuid, steps: &[Step]) -> (Intent, mpsc::Receiver<()>) {
    let (sender, has_result) = mpsc::sync_channel(1);
    (
        Intent::begin(journal, (LIVING, gpu), steps, move || {
            let _ = sender.try_send(());
        })
        .unwrap(),
        has_result,
    )
}

/// Journal with advice on two pages, on a disk that has become full since.
fn filled(timeouts: Timeouts) -> (Machine, Disk, Journal) {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, timeouts);
    give(&journal, LIVING, GPU, &[advise(0), advise(2)]);
    assert!(journal.flush(SOON));
    disk.fill(true);
    (machine, disk, journal)
}

/// Pages of advice in force.
fn in_force(journal: &Journal) -> Vec<u64> {
    journal
        .leftovers()
        .iter()
        .flat_map(|left| &left.steps)
        .flat_map(|step| step.begin / 4096..step.end / 4096)
        .collect()
}

#[test]
fn withdrawal_does_not_wait_for_a_stuck_disk() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, LONG);
    give(&journal, LIVING, GPU, &[advise(0)]);
    assert!(journal.flush(SOON));
    disk.stick();
    let tries = disk.state().tries;
    let (intent, has_result) = begin(&journal, OTHER_GPU, &[advise(9)]);
    disk.wait_for_tries(tries + 1);
    // A withdrawal that waited for the disk would wait for ever.
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(READ)));
    assert_eq!(in_force(&journal), [9]);
    assert!(intent.result().is_none());
    disk.release();
    has_result.recv_timeout(SOON).unwrap();
    intent.result().unwrap().unwrap();
    drop((intent, journal));
    assert_eq!(in_force(&open(&machine)), [9]);
}

#[test]
fn earlier_advice_is_withdrawn_on_a_stuck_or_full_disk() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, ZERO);
    give(&journal, LIVING, GPU, &[advise(0), advise(2)]);
    drop(journal);
    let is_closed = || Journal::open(&machine.roots.proc.join("journal"), machine.roots.clone()).is_ok();
    while !is_closed() {
        std::thread::yield_now();
    }
    disk.fill(true);
    let tries = disk.state().tries;
    let journal = disk.open_unwritten(&machine, ZERO);
    assert_eq!(in_force(&journal), [0, 2]);
    disk.wait_for_tries(tries + 1);
    assert!(!journal.flush(SOON) && !journal.health().is_writable);
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(READ)));
    assert_eq!(in_force(&journal), [2]);
    disk.stick();
    withdrawn(&journal, LIVING, GPU, step(8192, 12288, withdraw(READ)));
    assert_eq!(in_force(&journal), [0; 0]);
    assert_eq!(lines(&machine), 2, "the file is as it was");
    disk.fill(false);
    disk.release();
    assert!(journal.rewrite(SOON) && lines(&machine) == 0);
}

#[test]
fn concurrent_intents_share_a_write() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, LONG);
    let before = disk.state();
    disk.stick();
    let first = begin(&journal, GPU, &[advise(0)]);
    disk.wait_for_tries(before.tries + 1);
    let gpus = (2..10).map(|gpu| GpuUuid([gpu; 16]));
    let others: Vec<_> = gpus.zip(2..).map(|(gpu, page)| begin(&journal, gpu, &[advise(2 * page)])).collect();
    disk.release();
    for (intent, has_result) in [first].into_iter().chain(others) {
        has_result.recv_timeout(SOON).unwrap();
        intent.result().unwrap().unwrap();
    }
    assert_eq!(disk.state().syncs, before.syncs + 2);
    drop(journal);
    assert_eq!(open(&machine).leftovers().len(), 9);
}

#[test]
fn later_intent_on_a_stuck_disk_is_denied_at_once() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, Timeouts { intent: Duration::ZERO, ..LONG });
    assert!(journal.health().is_writable);
    disk.stick();
    let tries = disk.state().tries;
    let (first, _has_result) = begin(&journal, GPU, &[advise(0)]);
    disk.wait_for_tries(tries + 1);
    let refused = Intent::begin(&journal, (LIVING, OTHER_GPU), &[advise(1)], || {}).err().unwrap();
    assert!(matches!(refused, JournalError::Stuck { .. }), "{refused}");
    let health = journal.health();
    assert!(!health.is_writable && health.warnings[0].contains("no advice is given"), "{health:?}");
    first.cancel();
    assert_eq!(in_force(&journal), [0; 0]);
    disk.release();
    assert!(journal.flush(SOON));
    assert_eq!(journal.health(), JournalHealth { is_writable: true, ..JournalHealth::default() });
    // The disk had accepted it all the same; its cancellation is there too.
    drop(journal);
    assert_eq!(in_force(&open(&machine)), [0; 0]);
}

#[test]
fn abandoned_intent_restores_earlier_advice() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, LONG);
    let at = |place| Action::Advise(Advice::PreferredLocation(place));
    give(&journal, LIVING, GPU, &[step(0, 8192, at(Place::Gpu(GPU)))]);
    let before = journal.leftovers();
    disk.stick();
    let (intent, _has_result) = begin(&journal, OTHER_GPU, &[step(4096, 16384, at(Place::Host))]);
    assert_eq!(journal.leftovers().len(), 2);
    intent.cancel();
    let same = |found: Vec<Leftover>| {
        let pages = |found: &[Leftover]| -> Vec<_> {
            let steps = found.iter().flat_map(|left| left.steps.iter().map(|step| (left.gpu, *step)));
            steps
                .flat_map(|(gpu, step)| (step.begin / 4096..step.end / 4096).map(move |page| (gpu, page, step.action)))
                .collect()
        };
        assert_eq!(pages(&found), pages(&before));
    };
    same(journal.leftovers());
    disk.release();
    drop(journal);
    same(open(&machine).leftovers());
}

#[test]
fn full_disk_denies_intents_until_there_is_room() {
    let (machine, disk, journal) = filled(LONG);
    let (intent, has_result) = begin(&journal, GPU, &[advise(4)]);
    has_result.recv_timeout(SOON).unwrap();
    let error = intent.result().unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot be written: no storage space"), "{error}");
    intent.cancel();
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(READ)));
    assert!(!journal.flush(SOON));
    assert_eq!(in_force(&journal), [2]);
    assert!(!journal.health().is_writable);
    // The file is unchanged: more than is in force.
    assert_eq!(lines(&machine), 2);
    disk.fill(false);
    drop(intend(&journal, LIVING, GPU, &[advise(6)]));
    assert!(journal.health().is_writable);
    drop(journal);
    assert_eq!(in_force(&open(&machine)), [2, 6]);
}

#[test]
fn disk_that_recovers_is_written_without_further_advice() {
    let (machine, disk, journal) = filled(Timeouts { retry: Duration::from_millis(1), ..LONG });
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(READ)));
    assert!(!journal.flush(SOON) && !journal.health().is_writable);
    // Each attempt fails until there is room.
    disk.wait_for_tries(disk.state().tries + 2);
    assert!(!journal.health().is_writable);
    disk.fill(false);
    let begun = Instant::now();
    while !journal.health().is_writable {
        assert!(begun.elapsed() < SOON, "{:?}", journal.health());
        std::thread::yield_now();
    }
    assert_eq!(lines(&machine), 1);
}

#[test]
fn failed_write_is_repeated_during_other_use_of_the_journal() {
    let (_machine, disk, journal) = filled(Timeouts { retry: Duration::from_millis(200), ..LONG });
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(READ)));
    assert!(!journal.flush(SOON));
    let (tries, begun) = (disk.state().tries, Instant::now());
    // As by each order that gives no advice.
    while disk.state().tries < tries + 2 {
        journal.0.shared.changed.notify_all();
        assert!(begun.elapsed() < SOON, "no try");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn queue_for_a_stuck_disk_is_bounded_and_loses_nothing() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, LONG);
    let steps: Vec<_> = (0..5000).map(|page| advise(2 * page)).collect();
    give(&journal, LIVING, GPU, &steps);
    assert!(journal.flush(SOON));
    disk.stick();
    let tries = disk.state().tries;
    let (intent, has_result) = begin(&journal, OTHER_GPU, &[advise(1_000_001)]);
    disk.wait_for_tries(tries + 1);
    for page in 0..4999 {
        withdrawn(&journal, LIVING, GPU, step(2 * page * 4096, (2 * page + 1) * 4096, withdraw(READ)));
    }
    assert!(journal.health().dropped_lines >= 4096, "{:?}", journal.health());
    disk.release();
    has_result.recv_timeout(SOON).unwrap();
    intent.result().unwrap().unwrap();
    assert!(journal.flush(SOON));
    assert_eq!(lines(&machine), 2, "written anew");
    drop((intent, journal));
    assert_eq!(in_force(&open(&machine)), [9998, 1_000_001]);
}

#[test]
fn drop_on_a_stuck_disk_does_not_block_and_keeps_the_lock() {
    let (machine, disk) = (machine(), Disk::default());
    let journal = disk.open(&machine, ZERO);
    disk.stick();
    let tries = disk.state().tries;
    let (intent, _has_result) = begin(&journal, GPU, &[advise(0)]);
    disk.wait_for_tries(tries + 1);
    assert!(!journal.flush(Duration::ZERO));
    drop((intent, journal));
    let error = Journal::open(&machine.roots.proc.join("journal"), machine.roots.clone()).unwrap_err();
    assert!(matches!(error, JournalError::InUse(_)), "{error}");
    disk.release();
}
