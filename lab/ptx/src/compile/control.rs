//! Branches, barriers and the ends of threads.

use super::form::Form;
use super::{Compiler, Fix};
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::barrier::BarrierKind;
use crate::machine::program::{Action, Barrier, Pc};
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles `bra`.
    pub(super) fn branch(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.take("uni");
        let [Operand::Symbol(label)] = form.operands()? else { return Err(form.error("label")) };
        let (pc, scope, label, line) = (self.pc(), self.scope, label.clone(), self.line);
        self.fixes.push(Fix { pc, scope, label, line });
        self.emit(Action::Branch(0));
        Ok(())
    }

    /// Compiles `brx.idx`.
    pub(super) fn indexed_branch(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.require(&["idx"])?;
        form.take("uni");
        let [index, Operand::Symbol(list)] = form.operands()? else { return Err(form.error("targets")) };
        let index = self.source(index, Type::U32)?;
        let (pc, scope, label, line) = (self.pc(), self.scope, list.clone(), self.line);
        self.fixes.push(Fix { pc, scope, label, line });
        self.emit(Action::BranchIndexed { index, targets: Vec::new() });
        Ok(())
    }

    /// Puts the places of labels in, at the end of a function.
    pub(super) fn resolve_labels(&mut self) -> Result<(), PtxError> {
        for fix in std::mem::take(&mut self.fixes) {
            self.line = fix.line;
            let label = |name: &str| -> Result<Pc, PtxError> {
                let found = self.outwards(fix.scope, |scope| scope.labels.get(name).copied());
                found.map_or_else(|| self.error(format!("unknown label {name}")), Ok)
            };
            let action = match self.program.instructions.get(fix.pc as usize).map(|instruction| &instruction.action) {
                Some(&Action::BranchIndexed { index, .. }) => {
                    let list = self.outwards(fix.scope, |scope| scope.targets.get(&fix.label).cloned());
                    let Some(list) = list else { return self.error(format!("unknown list {}", fix.label)) };
                    Action::BranchIndexed {
                        index,
                        targets: list.iter().map(|name| label(name)).collect::<Result<_, _>>()?,
                    }
                }
                _ => Action::Branch(label(&fix.label)?),
            };
            if let Some(instruction) = self.program.instructions.get_mut(fix.pc as usize) {
                instruction.action = action;
            }
        }
        Ok(())
    }

    /// Compiles `bar` and `barrier`.
    pub(super) fn barrier(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        if form.take("warp") {
            return self.warp_barrier(form);
        }
        form.ignore(&["cta", "aligned"]);
        let kind = form.require(&["sync", "arrive", "red"])?;
        let reduction = if kind == "red" { Some(form.require(&["popc", "and", "or"])?) } else { None };
        form.finish()?;
        let (d, operands) = match form.operands.split_first() {
            Some((d, operands)) if reduction.is_some() => (Some(d), operands),
            _ => (None, form.operands),
        };
        let (predicate, operands) = match operands.split_last() {
            Some((predicate, operands)) if reduction.is_some() => (self.predicate(predicate)?, operands),
            _ => ((0, false), operands),
        };
        let (number, threads) = match operands {
            [number] if kind != "arrive" => (number, None),
            [number, threads] => (number, Some(self.source(threads, Type::U32)?)),
            _ => return Err(form.error("number of operands")),
        };
        let number = self.source(number, Type::U32)?;
        let (kind, result) = match (kind, reduction, d) {
            (_, Some("popc"), Some(d)) => (BarrierKind::Count, self.destination(d, Type::U32)?),
            (_, Some("and"), Some(d)) => (BarrierKind::All, self.predicate_destination(d)?),
            (_, Some(_), Some(d)) => (BarrierKind::Any, self.predicate_destination(d)?),
            ("arrive", ..) => (BarrierKind::Arrive, 0),
            _ => (BarrierKind::Wait, 0),
        };
        self.emit(Action::Barrier(Barrier { kind, number, threads, predicate, result }));
        Ok(())
    }

    /// Compiles `membar` and `fence`.
    pub(super) fn fence(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.ignore(&["cta", "gl", "gpu", "sys", "cluster", "sc", "acq_rel", "acquire", "release"]);
        let [] = form.operands()?;
        self.emit(Action::Compute(Box::new(|_, _| std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst))));
        Ok(())
    }
}
