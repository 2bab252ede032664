//! Shadow actuator.

use model::{Actuator, CallResult, Interrupt, Order, Outcome};

use crate::uniform_outcome;

/// Actuator that executes nothing, and reports that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shadow;

impl Actuator for Shadow {
    fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
        uniform_outcome(order, &CallResult::Shadow)
    }
}

#[cfg(test)]
mod tests {
    use model::{Action, DecisionId, GpuUuid, ProcessId, Step};

    use super::*;

    #[test]
    fn every_step_has_a_result_without_execution() {
        let gpu = GpuUuid([1; 16]);
        let step = |begin: u64| Step { begin, end: begin + 4096, action: Action::Touch(gpu) };
        let order = Order {
            decision: DecisionId(7),
            process: ProcessId { pid: 1, start_ticks: 1 },
            gpu,
            steps: vec![step(0), step(8192)],
            is_rollback: false,
        };
        let outcome = Shadow.execute(&order, &|| false);
        let results: Vec<_> = outcome.calls.iter().map(|call| (call.step, call.result.clone())).collect();
        assert_eq!(results, [(step(0), CallResult::Shadow), (step(8192), CallResult::Shadow)]);
        assert_eq!(outcome.decision, DecisionId(7));
    }
}
