//! Models of the protocols between the helper and uvmd. loom runs the interleavings of their threads,
//! with the reorderings that the atomics permit.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    mem,
    sync::{Arc, Mutex},
    vec::Vec,
};

use loom::{model::Builder, thread};

use crate::{
    Command, Commands, Dim3, Group, Kind, Lane, PLAN_BYTES, Plan, PlanMemory, Stamp, Target, Token,
    call::{Action as CallAction, Read, Reader},
    command::{Action, Busy, COMMAND_WORDS, CommandResult, NoResponse, Response, Ticket},
    operation::{apply, copy_of},
    plan::{TABLE_WORDS, Table},
    record::RECORD_WORDS,
    sync::{AtomicU64, Ordering},
    token::Signature,
};

/// Runs a model with at most this many preemptions, and returns the outcomes of its interleavings.
fn outcomes<T: Ord + Send + 'static>(
    preemptions_max: Option<usize>,
    model: impl Fn() -> T + Send + Sync + 'static,
) -> BTreeSet<T> {
    let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions_max;
    let all = outcomes.clone();
    builder.check(move || {
        let outcome = model();
        all.lock().unwrap().insert(outcome);
    });
    mem::take(&mut outcomes.lock().unwrap())
}

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Records of a lane, in which a launch with pointers takes all of the room.
const LANE_RECORDS: usize = 2;

/// Memory of one lane.
struct LaneMemory {
    /// Count of operations of both sides, so that loom runs them in every order.
    operations: AtomicU64,
    header: Vec<AtomicU64>,
    records: Vec<AtomicU64>,
}

impl LaneMemory {
    fn new() -> Arc<Self> {
        Arc::new(Self { operations: AtomicU64::new(0), header: words(16), records: words(LANE_RECORDS * RECORD_WORDS) })
    }

    fn lane(&self) -> Lane<'_> {
        Lane::new(&self.header, 0, &self.records, 0, LANE_RECORDS)
    }

    /// Writes a call, each word of which follows from its number: an odd one takes one record, an even one
    /// two.
    fn write(&self, number: u64) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let lane = self.lane();
        if !lane.has_room(1) {
            lane.count_dropped();
            return;
        }
        let stamp = Stamp { sequence: number, time_ns: number, thread: 1 };
        if number.is_multiple_of(2) {
            let size = Dim3::new(1, 1, 1).to_word();
            let mut group =
                Group::with_target(lane, stamp, Kind::Launch, 0, Target::Stream(number), [number, size, size, 0]);
            group.add_pointer(0, number);
            group.publish();
        } else {
            Group::begin(lane, stamp, Kind::Free, 0, [number, number, 0, 0, 0]).publish();
        }
    }

    /// Writes a call to the lane as one that threads share.
    fn lock_and_write(&self, number: u64) {
        let lane = self.lane();
        if lane.try_lock() {
            self.write(number);
            lane.unlock();
        } else {
            lane.count_dropped();
        }
    }

    /// Reads calls as uvmd does, and returns their numbers.
    fn read(&self) -> Vec<u64> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let copy = |begin: usize, bytes: &mut [u8]| {
            let words = &self.records[begin / 8..];
            for (word, to) in words.iter().zip(bytes.as_chunks_mut::<8>().0) {
                *to = word.load(Ordering::Relaxed).to_le_bytes();
            }
            Ok::<(), Infallible>(())
        };
        let (mut numbers, mut position) = (Vec::new(), None);
        let header = copy_of(&self.header);
        let lane = Lane::new(&header, 0, &[], 0, LANE_RECORDS);
        let Ok(()) = Reader::default().read(&lane, &mut position, copy, |read| numbers.push(number_of(&read)));
        apply(position.map(|position| lane.consume(position)), &self.header);
        numbers
    }
}

/// Number of a call, all of whose words follow from it.
fn number_of(read: &Read) -> u64 {
    let Read::Call(call) = read else { panic!("{read:?}") };
    let number = call.stamp.sequence;
    assert_eq!(call.stamp.time_ns, number);
    match &call.action {
        CallAction::Free { stream, address } => assert_eq!([*stream, *address, number % 2], [number, number, 1]),
        CallAction::Launch { target: Target::Stream(stream), function, pointers: Some(pointers), .. } => {
            let addresses: Vec<u64> = pointers.iter().map(|pointer| pointer.address).collect();
            assert_eq!((*stream, *function, &addresses[..], number % 2), (number, number, &[number][..], 0));
        }
        other => panic!("{other:?}"),
    }
    number
}

#[test]
fn calls_of_a_lane_are_read_whole_and_once_or_counted_as_dropped() {
    let outcomes = outcomes(None, || {
        let memory = LaneMemory::new();
        let reader = thread::spawn({
            let memory = memory.clone();
            move || [memory.read(), memory.read()].concat()
        });
        (1..=3).for_each(|number| memory.write(number));
        let numbers = [reader.join().unwrap(), memory.read()].concat();
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert_eq!(numbers.len() as u64 + memory.lane().dropped(), 3);
        numbers
    });
    assert_eq!(outcomes, BTreeSet::from([vec![1, 2], vec![1, 2, 3], vec![1, 3]]));
}

#[test]
fn writers_of_a_shared_lane_exclude_each_other() {
    let outcomes = outcomes(None, || {
        let memory = LaneMemory::new();
        let other = thread::spawn({
            let memory = memory.clone();
            move || memory.lock_and_write(1)
        });
        memory.lock_and_write(3);
        other.join().unwrap();
        let mut numbers = memory.read();
        numbers.sort_unstable();
        assert_eq!(numbers.len() as u64 + memory.lane().dropped(), 2);
        numbers
    });
    assert_eq!(outcomes, BTreeSet::from([vec![1], vec![1, 3], vec![3]]));
}

const fn command(number: u8) -> Command {
    Command { action: Action::PreferHost, gpu: [number; 16], begin: number as u64, end: number as u64 + 1 }
}

/// Submits a command as uvmd does.
fn submit(words: &[AtomicU64], command: &Command) -> Result<Ticket, Busy> {
    let submission = Commands::new(&copy_of(words), 0).submit(command)?;
    let is_submitted = apply(submission.operations, words) == submission.operations.len();
    is_submitted.then_some(submission.ticket).ok_or(Busy)
}

/// Response to a command as uvmd reads it.
fn response(words: &[AtomicU64], ticket: Ticket) -> Result<Response, NoResponse> {
    let copy = copy_of(words);
    Commands::new(&copy, 0).response(ticket, &Commands::new(&copy_of(words), 0))
}

#[test]
fn command_is_taken_whole_and_once_unless_it_was_revoked() {
    let outcomes = outcomes(None, || {
        let memory = Arc::new(words(COMMAND_WORDS));
        let helper = thread::spawn({
            let memory = memory.clone();
            move || {
                let commands = Commands::new(&memory, 0);
                let taken = (0..2).filter_map(|_| {
                    let (ticket, taken) = commands.take()?;
                    let taken = taken.unwrap();
                    assert_eq!(taken, command(taken.gpu[0]));
                    commands.respond(ticket, Response { answer: CommandResult::Done, advice_calls: taken.begin });
                    Some(taken.begin)
                });
                taken.collect::<Vec<u64>>()
            }
        });
        let first = submit(&memory, &command(1)).unwrap();
        let is_revoked = apply([Commands::new(&copy_of(&memory), 0).revoke(first)], &memory) == 1;
        let first_response = response(&memory, first).ok().map(|response| response.advice_calls);
        let second = submit(&memory, &command(2));
        let taken = helper.join().unwrap();
        if let Ok(second) = second {
            let answered = response(&memory, second).map(|response| response.advice_calls);
            assert_eq!(answered, if taken.contains(&2) { Ok(2) } else { Err(NoResponse::Pending) });
        }
        (is_revoked, first_response, second.is_ok(), taken)
    });
    let answered_at = |first_response| [vec![1], vec![1, 2]].map(|taken| (false, first_response, true, taken));
    let revoked = [vec![], vec![2]].map(|taken| (true, None, true, taken));
    let busy = (false, None, false, vec![1]);
    let permitted =
        [answered_at(None), answered_at(Some(1)), revoked.clone()].into_iter().flatten().chain([busy.clone()]);
    assert!(outcomes.is_subset(&permitted.collect()), "{outcomes:?}");
    // The model covers both ends of a command.
    let covered = [answered_at(Some(1)), revoked].into_iter().flatten().chain([busy]);
    assert!(outcomes.is_superset(&covered.collect()), "{outcomes:?}");
}

/// Publishes a plan, each word of which follows from its number; returns its generation.
fn publish(words: &[AtomicU64], number: u8) -> u64 {
    let plan = Plan {
        gpu: [number; 16],
        first_launch: number.into(),
        budget_bytes: number.into(),
        handover_wait_ns: number.into(),
        tokens: &[token(number)],
        moves: &[],
    };
    let copy = copy_of(words);
    let (generation, operations) = PlanMemory::open(&copy).unwrap().publish(&plan).unwrap();
    apply(operations, words);
    generation
}

const fn token(number: u8) -> Token {
    Token { signature: Signature::of_graph(number as u64), pointers: None }
}

#[test]
fn plan_is_copied_whole_and_is_that_of_its_generation() {
    // With more preemptions, it takes minutes.
    let outcomes = outcomes(Some(2), || {
        let shared = Arc::new(words(PLAN_BYTES / 8));
        PlanMemory::create(&shared).unwrap();
        assert_eq!(publish(&shared, 1), 2);
        let helper = thread::spawn({
            let shared = shared.clone();
            move || {
                let own = words(TABLE_WORDS);
                let (memory, table) = (PlanMemory::open(&shared).unwrap(), Table::new(&own));
                let generation = memory.generation();
                let is_copied = memory.copy_to(generation, table);
                if is_copied {
                    let header = table.check().unwrap();
                    let [number, ..] = header.gpu;
                    assert_eq!(generation, 2 * u64::from(number));
                    assert_eq!((header.gpu, header.first_launch), ([number; 16], number.into()));
                    assert_eq!((header.budget_bytes, header.handover_wait_ns), (number.into(), number.into()));
                    assert_eq!(table.token(0), token(number));
                }
                (generation, is_copied)
            }
        });
        assert_eq!(publish(&shared, 2), 4);
        helper.join().unwrap()
    });
    assert_eq!(outcomes, BTreeSet::from([(2, false), (2, true), (3, false), (4, true)]));
}
