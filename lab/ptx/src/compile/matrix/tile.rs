//! `wmma.load` and `wmma.store`: lanes access the elements of their registers, each by itself.

use super::super::Compiler;
use super::super::form::Form;
use super::super::lanes::{map1, map2};
use super::super::memory::{elements, space};
use super::super::operand::Address;
use super::fragment::{Element, Fragment, Part, Shape};
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::access::{AccessSpace, Machine, Unit};
use crate::machine::program::{Action, Work};
use crate::machine::state::Lane;
use crate::machine::{LANES, lanes};
use crate::types::Type;

/// Matrix in memory.
#[derive(Clone, Copy)]
struct Matrix {
    space: AccessSpace,
    /// Address of its first element.
    begin: Address,
    /// Register with the elements between two rows, or columns.
    stride: usize,
    by_rows: bool,
}

/// Offset of an element in a matrix: in rows or columns, and in elements of one.
type Offset = (u16, u16);

impl Matrix {
    /// Offsets of an element of each lane.
    fn offsets(self, fragment: &Fragment, index: usize) -> [Offset; LANES] {
        let mut offsets = [(0, 0); LANES];
        for (lane, offset) in offsets.iter_mut().enumerate() {
            let (row, column) = fragment.place(lane, index);
            let (line, place) = if self.by_rows { (row, column) } else { (column, row) };
            *offset = (line as u16, place as u16);
        }
        offsets
    }

    /// Sets the addresses of the active lanes.
    fn set(self, machine: &mut Machine<'_, '_>, mask: u32, offsets: &[Offset; LANES], element_bytes: u64) {
        self.begin.set(machine, mask);
        for lane in lanes(mask) {
            let stride = machine.state.lane(Type::U32, self.stride, lane);
            if let (Some(address), Some(&(line, place))) = (machine.addresses.get_mut(lane), offsets.get(lane)) {
                *address = address.wrapping_add((u64::from(line) * stride + u64::from(place)) * element_bytes);
            }
        }
    }

    fn load<U: Unit + Lane>(self, offsets: [Offset; LANES], element_bytes: u64, register: usize) -> Action {
        let work: Work = Box::new(move |machine, mask| {
            self.set(machine, mask, &offsets, element_bytes);
            machine.load(self.space, mask, &[register], |value: U| value)
        });
        Action::Memory(work)
    }

    fn store<U: Unit + Lane>(self, offsets: [Offset; LANES], element_bytes: u64, register: usize) -> Action {
        let work: Work = Box::new(move |machine, mask| {
            self.set(machine, mask, &offsets, element_bytes);
            machine.store::<U>(self.space, mask, &[register])
        });
        Action::Memory(work)
    }
}

impl Compiler<'_> {
    /// Compiles `wmma.load` and `wmma.store`.
    pub(super) fn warp_matrix_transfer(
        &mut self,
        form: &mut Form<'_>,
        shape: Shape,
        load: bool,
    ) -> Result<(), PtxError> {
        let part = match form.require(if load { &["a", "b", "c"] } else { &["d"] })? {
            "a" => Part::A,
            "b" => Part::B,
            _ => Part::C,
        };
        let by_rows = form.require(&["row", "col"])? == "row";
        let element = if form.take("tf32") { Some(Element::Tf32) } else { Element::of(form.only_type()?) };
        let element = element.ok_or_else(|| form.unknown())?;
        let known = match part {
            Part::C => match element {
                Element::F16 | Element::S32 => shape.k == 16,
                Element::F32 => shape.k >= 8,
                Element::F64 => shape.k == 4,
                _ => false,
            },
            _ => shape.is_of_warp_matrix(element),
        };
        let space = space(form);
        let aligned = form.take("sync") && form.take("aligned");
        form.finish()?;
        let ([first, second, stride @ ..], true, true) = (form.operands, known, aligned) else {
            return Err(form.unknown());
        };
        let (rows, columns) = shape.extents(part);
        let dense = Operand::Integer(if by_rows { columns } else { rows } as u64);
        let stride = self.source(stride.first().unwrap_or(&dense), Type::U32)?;
        let (values, address) = if load { (first, second) } else { (second, first) };
        let (space, begin) = self.address(address, space)?;
        let matrix = Matrix { space, begin, stride, by_rows };
        let fragment = Fragment::new(shape, part, element, part != Part::C);
        let values = elements(form, values, fragment.stored)?;
        if load {
            self.load_fragment(&fragment, matrix, values)
        } else {
            self.store_fragment(&fragment, matrix, values)
        }
    }

    fn load_fragment(&mut self, fragment: &Fragment, matrix: Matrix, values: &[Operand]) -> Result<(), PtxError> {
        let bytes = fragment.element.bytes() as u64;
        let of = fragment.element.register();
        let (own, per_register) = (fragment.own(), fragment.element.per_register());
        // An address may be in a register that is a result, too.
        let loaded: Vec<usize> = (0..own).map(|_| self.new_register(of)).collect::<Result<_, _>>()?;
        for (register, &to) in loaded.iter().enumerate() {
            for within in 0..per_register {
                let offsets = matrix.offsets(fragment, register * per_register + within);
                let part = if within == 0 { to } else { self.new_register(of)? };
                self.emit(match bytes {
                    1 => matrix.load::<u8>(offsets, bytes, part),
                    2 => matrix.load::<u16>(offsets, bytes, part),
                    4 => matrix.load::<u32>(offsets, bytes, part),
                    _ => matrix.load::<u64>(offsets, bytes, part),
                });
                if within > 0 {
                    let bits = bytes as usize * within * 8;
                    self.emit(map2(to, to, part, move |before: u32, part: u32| before | part << bits));
                }
            }
        }
        for (value, &register) in values.iter().zip(loaded.iter().cycle()) {
            let to = self.destination(value, of)?;
            self.emit(if of == Type::B64 {
                map1(to, register, |value: u64| value)
            } else {
                map1(to, register, |value: u32| value)
            });
        }
        Ok(())
    }

    fn store_fragment(&mut self, fragment: &Fragment, matrix: Matrix, values: &[Operand]) -> Result<(), PtxError> {
        let bytes = fragment.element.bytes() as u64;
        let per_register = fragment.element.per_register();
        for (register, value) in values.iter().enumerate() {
            let from = self.source(value, fragment.element.register())?;
            for within in 0..per_register {
                let offsets = matrix.offsets(fragment, register * per_register + within);
                let part = if within == 0 { from } else { self.new_register(Type::B32)? };
                if within > 0 {
                    let bits = bytes as usize * within * 8;
                    self.emit(map1(part, from, move |value: u32| value >> bits));
                }
                self.emit(match bytes {
                    2 => matrix.store::<u16>(offsets, bytes, part),
                    4 => matrix.store::<u32>(offsets, bytes, part),
                    _ => matrix.store::<u64>(offsets, bytes, part),
                });
            }
        }
        Ok(())
    }
}
