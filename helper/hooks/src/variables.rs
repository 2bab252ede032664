//! Managed variables of modules (`__managed__`), which the program has looked up. Their memory ends
//! with the module, or with its context.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{lock::Lock, mapping, system::Errno};

/// Capacity of the table. Further variables are not recorded.
const VARIABLES_MAX: usize = 512;
const VARIABLE_WORDS: usize = 5;

/// Variable of a module, or of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Module or library by which it was looked up.
    pub(crate) module: u64,
    /// First address.
    pub(crate) address: u64,
    /// Size.
    pub(crate) bytes: u64,
    /// Context of the look-up.
    pub(crate) context: u64,
    /// The driver's number of the memory, unique in the process; 0 if unknown.
    pub(crate) memory_id: u64,
}

/// Table of variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables {
    lock: Lock,
    count: &'static AtomicU64,
    entries: &'static [AtomicU64],
}

impl Variables {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = mapping::private(8 + VARIABLES_MAX * VARIABLE_WORDS)?;
        let (head, entries) = words.split_at_checked(8).ok_or(Errno(0))?;
        let [lock, count, ..] = head else { return Err(Errno(0)) };
        Ok(Self { lock: Lock::new(lock), count, entries })
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(0).min(VARIABLES_MAX)
    }

    fn words(&self, at: usize) -> Option<&'static [AtomicU64; VARIABLE_WORDS]> {
        self.entries.as_chunks().0.get(at).filter(|_| at < self.len())
    }

    fn get(&self, at: usize) -> Option<Variable> {
        let words = self.words(at)?.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [module, address, bytes, context, memory_id] = words;
        Some(Variable { module, address, bytes, context, memory_id })
    }

    fn set(&self, at: usize, Variable { module, address, bytes, context, memory_id }: Variable) {
        let values = [module, address, bytes, context, memory_id];
        self.words(at).into_iter().flatten().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Variables of the table, from the last one on, so that a visited one may be removed. Those that
    /// another thread adds or removes meanwhile may be missing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Variable> {
        (0..self.len()).rev().filter_map(|at| self.lock.with(|| self.get(at)).flatten())
    }

    /// Adds a variable; false if one of its address is known. `None` without room.
    pub(crate) fn insert(&self, variable: Variable) -> Option<bool> {
        let insert = || {
            let count = self.len();
            if (0..count).filter_map(|at| self.get(at)).any(|known| known.address == variable.address) {
                return Some(false);
            }
            if count == VARIABLES_MAX {
                return None;
            }
            self.count.store(count as u64 + 1, Ordering::Relaxed);
            self.set(count, variable);
            Some(true)
        };
        self.lock.with(insert).flatten()
    }

    /// Removes the variables that a predicate selects. `on_removed` is called under the lock for
    /// each, so that no other thread finds the table without the variable before; it makes no call
    /// of the driver.
    pub(crate) fn remove(&self, is_selected: impl Fn(&Variable) -> bool, mut on_removed: impl FnMut(Variable)) {
        if self.len() == 0 {
            return;
        }
        self.lock.with(|| {
            let mut at = 0;
            while let Some(variable) = self.get(at) {
                if !is_selected(&variable) {
                    at += 1;
                    continue;
                }
                let last = self.len().saturating_sub(1);
                if let Some(moved) = self.get(last) {
                    self.set(at, moved);
                }
                self.count.store(last as u64, Ordering::Relaxed);
                on_removed(variable);
            }
        });
    }

    /// Assigns the variables of a context to another one.
    pub(crate) fn reassign(&self, context: u64, other: u64) {
        self.lock.with(|| {
            for at in 0..self.len() {
                if let Some(variable) = self.get(at).filter(|variable| variable.context == context) {
                    self.set(at, Variable { context: other, ..variable });
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn variable(module: u64, address: u64) -> Variable {
        Variable { module, address, bytes: 8, context: module << 8, memory_id: address }
    }

    fn all(table: &Variables) -> Vec<Variable> {
        let mut all: Vec<Variable> = table.iter().collect();
        all.reverse();
        all
    }

    #[test]
    fn variable_is_known_until_its_module_ends() {
        let table = Variables::new().unwrap();
        let variables = [variable(1, 0x1000), variable(2, 0x2000), variable(1, 0x3000)];
        assert_eq!(variables.map(|variable| table.insert(variable)), [Some(true); 3]);
        assert_eq!(table.insert(variable(9, 0x2000)), Some(false), "by another handle of its module");
        assert_eq!(all(&table), variables);
        let mut removed = vec![];
        table.remove(|variable| variable.module == 1, |variable| removed.push(variable));
        assert_eq!(removed, [variables[0], variables[2]]);
        assert_eq!(all(&table), [variables[1]]);
        table.reassign(2 << 8, 7);
        assert_eq!(all(&table), [Variable { context: 7, ..variables[1] }]);
        table.remove(|variable| variable.context == 7, drop);
        assert_eq!(all(&table), []);
    }

    #[test]
    fn full_table_takes_no_more() {
        let table = Variables::new().unwrap();
        for at in 0..VARIABLES_MAX as u64 {
            assert_eq!(table.insert(variable(1, at + 1)), Some(true));
        }
        assert_eq!(table.insert(variable(1, 0)), None);
        assert_eq!((all(&table).len(), table.insert(variable(1, 1))), (VARIABLES_MAX, Some(false)));
        table.remove(|_| true, drop);
        assert_eq!(table.insert(variable(1, 0)), Some(true));
    }
}
