//! Amounts by kernel on the circle of a repeated iteration: capacity of a link, time under memory
//! pressure.
//!
//! Positions are kernels counted on through the next iteration: its kernel k is at k + K. Sums and
//! searches take O(log K).

/// Amount at each kernel, as a Fenwick tree.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    amounts: Vec<u64>,
    /// Entry i, from 1: the sum over the 2^j kernels up to the i-th, where 2^j is the lowest bit of
    /// i.
    sums: Vec<u64>,
    total: u64,
}

impl Ring {
    /// A ring of at least one kernel. Amounts are clamped so that three turns fit 64 bits:
    /// centuries, or more than any link carries.
    pub(super) fn of(mut amounts: Vec<u64>) -> Self {
        let most = u64::MAX / 4 / amounts.len().max(1) as u64;
        for amount in &mut amounts {
            *amount = most.min(*amount);
        }
        let mut sums = Vec::with_capacity(amounts.len() + 1);
        sums.push(0);
        for (at, &amount) in (1_usize..).zip(&amounts) {
            let below = std::iter::successors(Some(1), |step| Some(step * 2)).take_while(|step| at & step == 0);
            let parts = below.filter_map(|step: usize| sums.get(at - step));
            let sum = amount + parts.sum::<u64>();
            sums.push(sum);
        }
        let total = amounts.iter().sum();
        Self { amounts, sums, total }
    }

    pub(super) fn kernels(&self) -> usize {
        self.amounts.len()
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn at(&self, position: usize) -> u64 {
        self.amounts.get(position % self.kernels()).copied().unwrap_or(0)
    }

    /// Subtracts an amount, down to zero.
    pub(super) fn subtract(&mut self, position: usize, amount: u64) {
        let kernel = position % self.kernels();
        let Some(available) = self.amounts.get_mut(kernel) else { return };
        let amount = amount.min(*available);
        *available -= amount;
        self.total -= amount;
        let mut at = kernel + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum -= amount;
            at += at & at.wrapping_neg();
        }
    }

    /// Sum over positions `from..to`, where `to` is not less than `from`.
    pub(super) fn sum(&self, from: usize, to: usize) -> u64 {
        self.prefix_sum(to) - self.prefix_sum(from)
    }

    /// The first end of a stretch from `from` on whose sum is at least `amount`, if it is not after
    /// `to`.
    pub(super) fn earliest_end(&self, from: usize, to: usize, amount: u64) -> Option<usize> {
        let target = self.prefix_sum(from) + amount;
        (target <= self.prefix_sum(to)).then(|| if amount == 0 { from } else { self.last_within(target - 1) + 1 })
    }

    /// The last begin of a stretch up to `to` whose sum is at least `amount`, if it is not before
    /// `from`.
    pub(super) fn latest_begin(&self, from: usize, to: usize, amount: u64) -> Option<usize> {
        let left = self.prefix_sum(to).checked_sub(amount)?;
        (left >= self.prefix_sum(from)).then(|| if amount == 0 { to } else { self.last_within(left) })
    }

    /// Sum over positions from 0 up to and without this one.
    fn prefix_sum(&self, position: usize) -> u64 {
        let mut sum = self.total * (position / self.kernels()) as u64;
        let mut at = position % self.kernels();
        while at > 0 {
            sum += self.sums.get(at).copied().unwrap_or(0);
            at &= at - 1;
        }
        sum
    }

    /// The last position with a sum of at most `amount` before it. The ring's total is not zero.
    fn last_within(&self, amount: u64) -> usize {
        let turns = usize::try_from(amount / self.total).unwrap_or(usize::MAX);
        let (mut left, mut at) = (amount % self.total, 0);
        let mut step = self.kernels().next_power_of_two();
        while step > 0 {
            if let Some(&sum) = self.sums.get(at + step)
                && sum <= left
            {
                (at, left) = (at + step, left - sum);
            }
            step /= 2;
        }
        turns * self.kernels() + at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_searches_are_those_of_a_walk_over_two_turns() {
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for kernels in 1..20 {
            let mut amounts: Vec<_> = (0..kernels).map(|_| next(3) * next(5)).collect();
            amounts[0] += 1;
            let mut ring = Ring::of(amounts.clone());
            for _ in 0..20 {
                let (from, to) = (next(kernels), next(kernels));
                let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(from + to).unwrap());
                let walk = |from: usize, to: usize| (from..to).map(|at| amounts[at % amounts.len()]).sum::<u64>();
                assert_eq!(ring.sum(from, to), walk(from, to));
                let amount = 1 + next(9);
                let end = (from..=to).find(|&end| walk(from, end) >= amount);
                assert_eq!(ring.earliest_end(from, to, amount), end, "{amounts:?} {from}..{to} {amount}");
                let begin = (from..=to).rev().find(|&begin| walk(begin, to) >= amount);
                assert_eq!(ring.latest_begin(from, to, amount), begin, "{amounts:?} {from}..{to} {amount}");
                if ring.total() > ring.at(to) {
                    ring.subtract(to, 2);
                    let at = to % amounts.len();
                    amounts[at] = amounts[at].saturating_sub(2);
                }
            }
        }
    }
}
