//! Lower bound of an iteration's time under any schedule, by its kernels and by the bytes that must
//! cross the link meanwhile.

use trace::{Access, Iteration, KernelId, TensorId, Use, id::Id};

use super::Machine;

/// Maximum of positions at which the bound cuts an iteration.
pub const MOST_CUTS: usize = 1500;

/// Lower bound of an iteration's time in the steady state, on any machine whose links are no faster
/// than those of `machine`.
///
/// The model is managed memory without read duplication and without remote mappings: a byte is on
/// the GPU or elsewhere, and no byte is dropped while a kernel runs that uses it.
///
/// Cut the iteration at kernels into stretches; its time is the sum of theirs. Take the stretch
/// from the beginning of kernel `a` to that of kernel `b`, where a kernel begins as soon as the one
/// before it has ended.
///
/// * Kernels run one after the other: the stretch takes at least the sum of their durations.
/// * Tensors that had contents at the begin of the stretch, and that are read in it before they are
///   written, have to be on the GPU at some time in it. At its begin the GPU held at most its
///   memory of them. The rest crosses the link to the GPU in the stretch. So do all tensors that
///   come from the CPU in it: those that are not persistent and are read first.
/// * The tensors of its kernels are on the GPU at some time in it. Of these, the ones that are read
///   later have contents at its end. So do all tensors of its last kernel, which no schedule could
///   have dropped yet. Of all these the GPU holds at most its memory at the end. The rest crosses
///   the link from the GPU in the stretch.
/// * In a time, no more bytes cross the link in one direction than its rate allows. A transfer that
///   runs when a stretch ends has memory on the GPU for the bytes that have not crossed yet, so
///   that a byte counts in one stretch only.
///
/// The bound is the sum over the stretches of the longest of these three, for the cuts of the
/// largest sum. A tensor whose next use only writes it does not count: it may be dropped. Flash
/// does not count: its transfers cross the link as well.
///
/// Complexity: O(t + u) for t tensors and u uses, for each of at most [`MOST_CUTS`] positions of a
/// cut. Fewer cuts make a bound lower, never wrong.
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
            let out_bytes = stretch.live_out_bytes.saturating_sub(machine.gpu_bytes);
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
    /// Bytes that are read in it and had contents before it.
    read_bytes: u64,
    /// Bytes that come from the CPU in it.
    from_cpu_bytes: u64,
    /// Bytes of its kernels that have contents at its end.
    live_out_bytes: u64,
    tensors: Vec<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Counted in `read_bytes`.
    is_read: bool,
    /// With contents at the end of the stretch, and not counted in `live_out_bytes` yet.
    is_live_out: bool,
}

impl<'a> Stretch<'a> {
    fn new(iteration: &'a Iteration) -> Self {
        let tensors = vec![State::default(); iteration.tensors().len()];
        Self { iteration, read_bytes: 0, from_cpu_bytes: 0, live_out_bytes: 0, tensors }
    }

    /// Starts with an empty stretch before a kernel that is not the first.
    fn end_at(&mut self, kernel: usize) {
        (self.read_bytes, self.from_cpu_bytes, self.live_out_bytes) = (0, 0, 0);
        let ids = self.iteration.tensors().ids();
        for (id, state) in ids.zip(&mut self.tensors) {
            let is_live_out = next_use(self.iteration, id, kernel).is_some_and(|next| next.access.reads());
            *state = State { is_read: false, is_live_out };
        }
        for operand in self.iteration.operands(KernelId::new(kernel - 1)) {
            if let Some(state) = self.tensors.get_mut(operand.tensor.index()) {
                state.is_live_out = true;
            }
        }
    }

    /// Adds a kernel at its beginning.
    fn begin_at(&mut self, kernel: usize) {
        for operand in self.iteration.operands(KernelId::new(kernel)) {
            let tensor = &self.iteration.tensors()[operand.tensor];
            let Some(state) = self.tensors.get_mut(operand.tensor.index()) else { continue };
            if std::mem::take(&mut state.is_live_out) {
                self.live_out_bytes += tensor.bytes;
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

/// The first use from a kernel on, in the next iteration if the tensor is persistent.
fn next_use(iteration: &Iteration, tensor: TensorId, kernel: usize) -> Option<Use> {
    let uses = iteration.uses(tensor);
    let next = uses.get(uses.partition_point(|of| of.kernel.index() < kernel)..).unwrap_or_default().first();
    let around = uses.first().filter(|_| iteration.tensors()[tensor].persistent);
    next.or(around).copied()
}
