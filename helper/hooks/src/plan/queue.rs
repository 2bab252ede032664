//! Queue of moves that have begun, from launches to the helper's thread: bounded and lock-free.
//!
//! A move is in the queue at most once, and the queue has a slot for every move: it is never full.

use core::sync::atomic::{AtomicU64, Ordering};

use call_ring::plan::MOVES_MAX;

use crate::mapping::Words;

/// Slots, a power of two.
const SLOTS: usize = 2 * MOVES_MAX;
const _: () = assert!(SLOTS.is_power_of_two(), "positions are masked by the capacity");

/// Queue of moves, by their index in the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    added: &'static AtomicU64,
    taken: &'static AtomicU64,
    /// Index of a move plus 1; 0 in an empty slot.
    slots: &'static [AtomicU64],
}

impl Queue {
    /// Words for the slots.
    pub(super) const WORDS: usize = SLOTS;

    /// Creates an empty queue.
    pub(super) fn new(words: &mut Words, slots: &'static [AtomicU64]) -> Option<Self> {
        Some(Self { added: words.next()?, taken: words.next()?, slots })
    }

    fn slot(&self, position: u64) -> Option<&'static AtomicU64> {
        self.slots.get(usize::try_from(position).unwrap_or(0) & (SLOTS - 1))
    }

    /// Adds a move that is not in the queue.
    pub(super) fn add(&self, index: usize) {
        let position = self.added.fetch_add(1, Ordering::AcqRel);
        if let Some(slot) = self.slot(position) {
            slot.store(index as u64 + 1, Ordering::SeqCst);
        }
    }

    /// Takes the first move. Only one thread may call this.
    pub(super) fn take(&self) -> Option<usize> {
        let position = self.taken.load(Ordering::Relaxed);
        let index = self.slot(position)?.swap(0, Ordering::SeqCst).checked_sub(1)?;
        self.taken.store(position.wrapping_add(1), Ordering::Relaxed);
        usize::try_from(index).ok()
    }

    /// Whether the queue has no move to take.
    pub(super) fn is_empty(&self) -> bool {
        let slot = self.slot(self.taken.load(Ordering::Relaxed));
        slot.is_none_or(|slot| slot.load(Ordering::SeqCst) == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::atomic::AtomicBool, thread};

    use super::*;
    use crate::mapping;

    fn queue() -> Queue {
        let mut words = Words::new(mapping::private(8).unwrap());
        Queue::new(&mut words, mapping::private(Queue::WORDS).unwrap()).unwrap()
    }

    #[test]
    fn moves_are_taken_in_order() {
        let queue = queue();
        assert_eq!((queue.take(), queue.is_empty()), (None, true));
        for round in 0..5 {
            (0..MOVES_MAX).for_each(|index| queue.add(index ^ round));
            assert!(!queue.is_empty());
            assert!((0..MOVES_MAX).all(|index| queue.take() == Some(index ^ round)));
            assert_eq!(queue.take(), None);
        }
    }

    #[test]
    fn moves_of_several_threads_are_taken_once() {
        let queue = queue();
        let is_in: Vec<AtomicBool> = (0..MOVES_MAX).map(|_| AtomicBool::new(false)).collect();
        let (rounds, threads) = (200, 4);
        let mut taken = 0_usize;
        thread::scope(|scope| {
            for thread in 0..threads {
                let is_in = &is_in;
                scope.spawn(move || {
                    for round in 0..rounds {
                        for index in (0..64).map(|at| at * threads + thread) {
                            while is_in[index].swap(true, Ordering::SeqCst) {
                                thread::yield_now();
                            }
                            queue.add(index);
                        }
                        let _ = round;
                    }
                });
            }
            let mut seen = HashSet::new();
            while taken < rounds * threads * 64 {
                if let Some(index) = queue.take() {
                    seen.insert(index);
                    taken += 1;
                    assert!(is_in[index].swap(false, Ordering::SeqCst), "it was added");
                } else {
                    thread::yield_now();
                }
            }
            assert_eq!(seen.len(), 64 * threads);
        });
        assert!(queue.is_empty());
    }
}
