//! Loads and stores.

use super::Compiler;
use super::form::Form;
use super::lanes::Pure;
use super::operand::Address;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::access::{AccessSpace, Unit};
use crate::machine::program::{Action, Work};
use crate::machine::state::Lane;
use crate::types::Type;

/// Orders, scopes and hints of caches, which mean nothing where one thread interprets: the accesses
/// themselves are volatile.
pub(super) const HINTS: [&str; 34] = [
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "seq_cst",
    "sc",
    "volatile",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "unified",
    "gl",
    "noftz",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::evict_last",
    "L2::evict_normal",
];

/// Takes the state space of an access.
pub(super) fn space(form: &mut Form<'_>) -> AccessSpace {
    match form.take_one(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry", "param::func"])
    {
        Some("global" | "const") => AccessSpace::Global,
        Some("shared" | "shared::cta") => AccessSpace::Shared,
        Some("local") => AccessSpace::Local,
        Some(_) => AccessSpace::Parameter,
        None => AccessSpace::Generic,
    }
}

/// Takes the size of a vector.
fn vector(form: &mut Form<'_>) -> usize {
    match form.take_one(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    }
}

/// Operands of a vector, or the only one.
pub(super) fn elements<'o>(form: &Form<'_>, operand: &'o Operand, number: usize) -> Result<&'o [Operand], PtxError> {
    let elements = match operand {
        Operand::Vector(elements) => elements.as_slice(),
        only => std::slice::from_ref(only),
    };
    if elements.len() == number { Ok(elements) } else { Err(form.error("vector")) }
}

impl Compiler<'_> {
    /// Compiles `ld`, `ldu` and `st`.
    pub(super) fn load_or_store(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let space = space(form);
        let number = vector(form);
        form.ignore(&HINTS);
        let load = form.opcode != "st";
        let [first, second] = form.operands()?;
        if of == Type::Pred || of.bytes() as usize * number > 16 {
            return Err(form.unknown());
        }
        let (values, address) = if load { (first, second) } else { (second, first) };
        let (space, address) = self.address(address, space)?;
        let values = elements(form, values, number)?;
        if load {
            let destinations: Vec<_> =
                values.iter().map(|value| self.wide_destination(value, of)).collect::<Result<_, _>>()?;
            let registers: Vec<usize> = destinations.iter().map(|destination| destination.register).collect();
            let work = match of {
                Type::S8 => load_work(space, address, registers, |value: u8| value as i8),
                Type::S16 => load_work(space, address, registers, |value: u16| value as i16),
                _ => match of.bytes() {
                    1 => load_work(space, address, registers, |value: u8| value),
                    2 => load_work(space, address, registers, |value: u16| value),
                    4 => load_work(space, address, registers, |value: u32| value),
                    8 => load_work(space, address, registers, |value: u64| value),
                    _ => return Err(form.unknown()),
                },
            };
            self.emit(Action::Memory(work));
            for destination in &destinations {
                self.widen(destination);
            }
        } else {
            let registers: Vec<usize> =
                values.iter().map(|value| self.wide_source(value, of)).collect::<Result<_, _>>()?;
            let work = match of.bytes() {
                1 => store_work::<u8>(space, address, registers),
                2 => store_work::<u16>(space, address, registers),
                4 => store_work::<u32>(space, address, registers),
                8 => store_work::<u64>(space, address, registers),
                _ => return Err(form.unknown()),
            };
            self.emit(Action::Memory(work));
        }
        Ok(())
    }
}

pub(super) fn load_work<U: Unit, R: Lane>(
    space: AccessSpace,
    address: Address,
    registers: Vec<usize>,
    read: impl Fn(U) -> R + Pure,
) -> Work {
    // Most loads are of one register.
    if let [only] = registers[..] {
        return Box::new(move |machine, mask| {
            address.set(machine, mask);
            machine.load(space, mask, &[only], read)
        });
    }
    Box::new(move |machine, mask| {
        address.set(machine, mask);
        machine.load(space, mask, &registers, read)
    })
}

pub(super) fn store_work<U: Unit + Lane>(space: AccessSpace, address: Address, registers: Vec<usize>) -> Work {
    if let [only] = registers[..] {
        return Box::new(move |machine, mask| {
            address.set(machine, mask);
            machine.store::<U>(space, mask, &[only])
        });
    }
    Box::new(move |machine, mask| {
        address.set(machine, mask);
        machine.store::<U>(space, mask, &registers)
    })
}
