//! Names of a function: registers, variables, labels.

use std::collections::HashMap;

use super::Compiler;
use crate::PtxError;
use crate::ast::{Declaration, Prototype, Space};
use crate::link::Symbol;
use crate::machine::program::{Pc, Special};
use crate::types::Type;

/// Names between two braces.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) parent: Option<usize>,
    names: HashMap<String, Name>,
    /// `.reg .b32 %r<8>`: type, prefix and number. Registers are made when they are used.
    ranges: Vec<(Type, String, u32)>,
    pub(super) labels: HashMap<String, Pc>,
    pub(super) targets: HashMap<String, Vec<String>>,
    pub(super) prototypes: HashMap<String, Prototype>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Register(Type, usize),
    Special(Special),
    /// Kernel's argument: offset.
    Argument(u64),
    /// Variable in the function's frame: offset, and whether it is a parameter or result.
    Frame {
        offset_bytes: u64,
        parameter: bool,
    },
    Shared(u64),
    DynamicShared,
    Global(u64),
    /// Function of the module.
    Function(usize),
}

impl Compiler<'_> {
    pub(super) fn open(&mut self) {
        self.scopes.push(Scope { parent: Some(self.scope), ..Scope::default() });
        self.scope = self.scopes.len() - 1;
    }

    pub(super) fn close(&mut self) {
        self.scope = self.scopes.get(self.scope).and_then(|scope| scope.parent).unwrap_or(0);
    }

    pub(super) fn present_scope(&mut self) -> Option<&mut Scope> {
        self.scopes.get_mut(self.scope)
    }

    /// Looks from a scope outwards.
    pub(super) fn outwards<T>(&self, from: usize, find: impl Fn(&Scope) -> Option<T>) -> Option<T> {
        let mut next = Some(from);
        while let Some(scope) = next.and_then(|index| self.scopes.get(index)) {
            if let Some(found) = find(scope) {
                return Some(found);
            }
            next = scope.parent;
        }
        None
    }

    pub(super) fn declare_range(&mut self, register: Type, prefix: &str, number: u32) {
        if let Some(scope) = self.present_scope() {
            scope.ranges.push((register, prefix.to_owned(), number));
        }
    }

    pub(super) fn declare(&mut self, name: &str, meaning: Name) {
        if let Some(scope) = self.present_scope() {
            scope.names.insert(name.to_owned(), meaning);
        }
    }

    /// Makes a register.
    pub(super) fn new_register(&mut self, register: Type) -> Result<usize, PtxError> {
        let number = match register {
            Type::Pred => &mut self.program.predicates,
            Type::B128 => return self.error("registers of 128 bits are not known"),
            _ if register.bytes() == 8 => &mut self.program.longs,
            _ => &mut self.program.words,
        };
        *number += 1;
        Ok(*number - 1)
    }

    pub(super) fn declare_register(&mut self, register: Type, name: &str) -> Result<Name, PtxError> {
        let meaning = Name::Register(register, self.new_register(register)?);
        self.declare(name, meaning);
        Ok(meaning)
    }

    /// Gives a variable of the function's body a place.
    pub(super) fn declare_variable(&mut self, variable: &Declaration) -> Result<Name, PtxError> {
        let meaning = match variable.space {
            Space::Local | Space::Parameter => {
                let offset_bytes = self.frame_bytes.next_multiple_of(variable.align_bytes);
                self.frame_bytes = offset_bytes + variable.bytes;
                if self.frame_bytes > 512 << 10 {
                    return self.error(format!("local memory of {}", variable.name));
                }
                Name::Frame { offset_bytes, parameter: variable.space == Space::Parameter }
            }
            Space::Shared => Name::Shared(u64::from(self.take_shared(variable)?)),
            Space::Global | Space::Constant => {
                return self.error(format!("variable {} in a function", variable.name));
            }
        };
        self.declare(&variable.name, meaning);
        Ok(meaning)
    }

    fn take_shared(&mut self, variable: &Declaration) -> Result<u32, PtxError> {
        let offset = u64::from(self.program.shared_bytes).next_multiple_of(variable.align_bytes);
        match u32::try_from(offset + variable.bytes) {
            Ok(end) => self.program.shared_bytes = end,
            Err(_) => return self.error("size of shared memory"),
        }
        Ok(offset as u32)
    }

    /// Finds what a name stands for.
    pub(super) fn find(&mut self, name: &str) -> Result<Name, PtxError> {
        if let Some(found) = self.outwards(self.scope, |scope| scope.names.get(name).copied()) {
            return Ok(found);
        }
        let in_range = |scope: &Scope| {
            scope.ranges.iter().find_map(|(register, prefix, number)| {
                let digits = name.strip_prefix(prefix.as_str())?;
                let index: u32 = digits.parse().ok()?;
                (index < *number && index.to_string() == digits).then_some(*register)
            })
        };
        let mut scope = Some(self.scope);
        while let Some(index) = scope {
            let Some(names) = self.scopes.get(index) else { break };
            if let Some(register) = in_range(names) {
                let meaning = Name::Register(register, self.new_register(register)?);
                if let Some(names) = self.scopes.get_mut(index) {
                    names.names.insert(name.to_owned(), meaning);
                }
                return Ok(meaning);
            }
            scope = names.parent;
        }
        if let Some(special) = special(name) {
            return Ok(Name::Special(special));
        }
        match self.symbols.find(self.text, name) {
            Some(Symbol::Variable(index)) => Ok(Name::Global(self.symbols.address(index))),
            Some(Symbol::Function(index)) => Ok(Name::Function(index)),
            Some(Symbol::Shared(index)) => self.module_shared(index),
            None => self.error(format!("unknown name {name}")),
        }
    }

    fn module_shared(&mut self, index: usize) -> Result<Name, PtxError> {
        if let Some(&offset) = self.shared.get(&index) {
            return Ok(Name::Shared(u64::from(offset)));
        }
        let symbols = self.symbols;
        match symbols.shared.get(index) {
            Some(variable) if variable.bytes > 0 => {
                let offset = self.take_shared(variable)?;
                self.shared.insert(index, offset);
                Ok(Name::Shared(u64::from(offset)))
            }
            _ => Ok(Name::DynamicShared),
        }
    }
}

/// Special register with a name.
fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| match rest {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((register, rest)) = name.split_once('.') {
        return match register {
            "%tid" => axis(rest).map(Special::Thread),
            "%ntid" => axis(rest).map(Special::BlockSize),
            "%ctaid" => axis(rest).map(Special::BlockIndex),
            "%nctaid" => axis(rest).map(Special::GridSize),
            _ => None,
        };
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneEqual,
        "%lanemask_lt" => Special::LaneLess,
        "%lanemask_le" => Special::LaneLessOrEqual,
        "%lanemask_gt" => Special::LaneGreater,
        "%lanemask_ge" => Special::LaneGreaterOrEqual,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" => Special::TotalSharedBytes,
        "%nsmid" | "%gridid" => Special::One,
        "%smid" => Special::Zero,
        // As `cooperative_groups` reads them.
        "%envreg1" => Special::WorkspaceHigh,
        "%envreg2" => Special::WorkspaceLow,
        _ if name.starts_with("%envreg") => Special::Zero,
        _ => return None,
    })
}
