//! What no schedule beats: an iteration cannot be shorter than its kernels, nor than what has to cross the link while they run.

use trace::{Access, Iteration, KernelId, TensorId, Use, id::Id};

use super::Machine;

/// Places where an iteration may be cut.
pub const MOST_CUTS: usize = 1500;

/// The least time of an iteration once it goes around, on any machine whose links are no faster than this one's.
///
/// Memory is moved: a byte is on the GPU or elsewhere, and nothing is dropped while a kernel runs that uses it. That is managed memory without duplicates and
/// without mappings across the link.
///
/// Cut the iteration at kernels into stretches; it takes as long as they do together. Take the stretch from the beginning of kernel `a` to that of kernel `b`,
/// where a kernel begins as soon as the one before it has ended.
///
/// * Its kernels run one after the other: it takes as long as they do.
/// * Tensors that had contents when it began and that are read in it before they are written have to be on the GPU at some time in it. When it began, the GPU held
///   no more than its memory of them; the rest crosses the link to the GPU in the stretch. So does all that comes from the CPU in it: what is not persistent and
///   is read first.
/// * What its kernels touch is on the GPU at some time in it. Of that, what is read after it has contents when it ends; and so has all that its last kernel touches,
///   which nobody could drop yet. Of all this the GPU holds no more than its memory at that time; the rest crosses the link from the GPU in the stretch.
/// * In a time, no more bytes cross the link in one direction than its rate allows, and a transfer that is on its way when a stretch ends has memory on the GPU for what
///   has not crossed yet, so that a byte counts in one stretch alone.
///
/// The bound is the sum over the stretches of the longest of these three, for those cuts where it is largest. A tensor whose next use only writes it
/// counts nowhere: it may be dropped. Flash does not count: whatever lies there crosses the link besides.
///
/// Complexity: t tensors and u uses take O(t + u), for each of the [`MOST_CUTS`] places at most where it may be cut. Fewer cuts make a bound lower, never wrong.
#[must_use]
pub fn least_ns(iteration: &Iteration, machine: &Machine) -> u64 {
    let kernels = iteration.kernels().len();
    let crossing_ns = |bytes: u64, bytes_per_second: f64| bytes as f64 * 1e9 / bytes_per_second;
    let mut least_ns = vec![0.0_f64; kernels + 1];
    let step = kernels.div_ceil(MOST_CUTS).max(1);
    let mut stretch = Stretch::new(iteration);
    for end in (step..kernels).step_by(step).chain([kernels]) {
        stretch.end_at(end);
        let mut longest_ns = 0.0_f64;
        for begin in (0..end).rev() {
            stretch.begin_at(begin);
            if begin % step != 0 {
                continue;
            }
            let own_ns = iteration.start_ns(KernelId::new(end)) - iteration.start_ns(KernelId::new(begin));
            let in_bytes = stretch.read_bytes.saturating_sub(machine.gpu_bytes) + stretch.from_cpu_bytes;
            let out_bytes = stretch.kept_bytes.saturating_sub(machine.gpu_bytes);
            let own_ns = (own_ns as f64)
                .max(crossing_ns(in_bytes, machine.host.back.bytes_per_second))
                .max(crossing_ns(out_bytes, machine.host.out.bytes_per_second));
            longest_ns = longest_ns.max(least_ns.get(begin).copied().unwrap_or(0.0) + own_ns);
        }
        if let Some(least) = least_ns.get_mut(end) {
            *least = longest_ns;
        }
    }
    floor(least_ns.last().copied().unwrap_or(0.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; nothing is negative")]
fn floor(ns: f64) -> u64 {
    ns.floor() as u64
}

/// A stretch that grows at its beginning.
struct Stretch<'a> {
    iteration: &'a Iteration,
    /// What is read in it and had contents before.
    read_bytes: u64,
    /// What comes from the CPU in it.
    from_cpu_bytes: u64,
    /// What is touched in it and has contents when it ends.
    kept_bytes: u64,
    tensors: Vec<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// It is in `read_bytes`.
    is_read: bool,
    /// It has contents when the stretch ends, and is not in `kept_bytes` yet.
    is_kept: bool,
}

impl<'a> Stretch<'a> {
    fn new(iteration: &'a Iteration) -> Self {
        let tensors = vec![State::default(); iteration.tensors().len()];
        Self { iteration, read_bytes: 0, from_cpu_bytes: 0, kept_bytes: 0, tensors }
    }

    /// Empty, before a kernel that is not the first.
    fn end_at(&mut self, kernel: usize) {
        (self.read_bytes, self.from_cpu_bytes, self.kept_bytes) = (0, 0, 0);
        let ids = self.iteration.tensors().ids();
        for (id, state) in ids.zip(&mut self.tensors) {
            let is_kept = next_use(self.iteration, id, kernel).is_some_and(|next| next.access.reads());
            *state = State { is_read: false, is_kept };
        }
        for operand in self.iteration.operands(KernelId::new(kernel - 1)) {
            if let Some(state) = self.tensors.get_mut(operand.tensor.index()) {
                state.is_kept = true;
            }
        }
    }

    /// With one kernel more at its beginning.
    fn begin_at(&mut self, kernel: usize) {
        for operand in self.iteration.operands(KernelId::new(kernel)) {
            let tensor = &self.iteration.tensors()[operand.tensor];
            let Some(state) = self.tensors.get_mut(operand.tensor.index()) else { continue };
            if std::mem::take(&mut state.is_kept) {
                self.kept_bytes += tensor.bytes;
            }
            if std::mem::take(&mut state.is_read) {
                self.read_bytes -= tensor.bytes;
            }
            let first = self.iteration.uses(operand.tensor).first();
            let is_born = !tensor.persistent && first.is_some_and(|first| first.kernel.index() == kernel);
            if operand.access != Access::Write {
                if is_born {
                    self.from_cpu_bytes += tensor.bytes;
                } else {
                    state.is_read = true;
                    self.read_bytes += tensor.bytes;
                }
            }
        }
    }
}

/// The first use from a kernel on, in the next iteration if the tensor lives on.
fn next_use(iteration: &Iteration, tensor: TensorId, kernel: usize) -> Option<Use> {
    let uses = iteration.uses(tensor);
    let next = uses.get(uses.partition_point(|of| of.kernel.index() < kernel)..).unwrap_or_default().first();
    let around = uses.first().filter(|_| iteration.tensors()[tensor].persistent);
    next.or(around).copied()
}
