//! Layout of matrices in the registers of a warp.
//!
//! Lane `4 g + t` has of an 8 × 8 block, whose elements are 32 bits, row `g` and column `t` of `A`,
//! row `t` and column `g` of `B`, row `g` and columns `2 t` and `2 t + 1` of `C`. Narrower elements
//! share a register, and lie along `k`. Larger matrices are blocks: those of `A` along `m` first,
//! by pairs, those of `B` along `k`. The PTX ISA states it so for each shape of `mma`, and leaves
//! open what `wmma` has.

use super::super::form::Form;
use crate::PtxError;
use crate::machine::LANES;
use crate::types::Type;

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    Bf16,
    /// `f32` of which 10 bits of mantissa count.
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
}

impl Element {
    pub(super) fn of(of: Type) -> Option<Self> {
        Some(match of {
            Type::F16 => Self::F16,
            Type::Bf16 => Self::Bf16,
            Type::F32 => Self::F32,
            Type::F64 => Self::F64,
            Type::S8 => Self::S8,
            Type::U8 => Self::U8,
            Type::S32 => Self::S32,
            _ => return None,
        })
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::S8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 | Self::F32 | Self::S32 => 4,
            Self::F64 => 8,
        }
    }

    /// Type of the registers.
    pub(super) const fn register(self) -> Type {
        if matches!(self, Self::F64) { Type::B64 } else { Type::B32 }
    }

    /// Elements of a register.
    pub(super) const fn per_register(self) -> usize {
        self.register().bytes() as usize / self.bytes()
    }
}

/// Matrix of a product: `D = A B + C`. `D` is as `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    A,
    B,
    C,
}

/// Extents of a product: `m` × `k` times `k` × `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl Shape {
    /// Takes one of some modifiers, `m16n8k16`.
    pub(super) fn take(form: &mut Form<'_>, names: &[&'static str]) -> Result<Self, PtxError> {
        let name = form.require(names)?;
        let mut extents = name.split(['m', 'n', 'k']).skip(1).map(|digits| digits.parse().unwrap_or(0));
        let mut next = || extents.next().unwrap_or(0);
        Ok(Self { m: next(), n: next(), k: next() })
    }

    /// Whether `wmma` multiplies elements of this type in this shape.
    pub(super) fn is_of_warp_matrix(self, element: Element) -> bool {
        match element {
            Element::F16 | Element::Bf16 | Element::S8 | Element::U8 => self.k == 16,
            Element::Tf32 => self.k == 8,
            Element::F64 => self.k == 4,
            Element::F32 | Element::S32 => false,
        }
    }

    /// Rows and columns of a matrix.
    pub(super) const fn extents(self, part: Part) -> (usize, usize) {
        match part {
            Part::A => (self.m, self.k),
            Part::B => (self.k, self.n),
            Part::C => (self.m, self.n),
        }
    }

    /// Row and column of an element of a lane.
    fn place(self, part: Part, per_register: usize, lane: usize, index: usize) -> (usize, usize) {
        let (group, thread) = (lane / 4, lane % 4);
        let (register, within) = (index / per_register, index % per_register);
        // Blocks along `k`, and where in a block the element is.
        let (depth, along) = (self.k / (4 * per_register), thread * per_register + within);
        match part {
            Part::A if self.m == 8 => (group, register * 4 * per_register + along),
            Part::A => {
                let (tile, register) = (register / (2 * depth), register % (2 * depth));
                (16 * tile + 8 * (register % 2) + group, register / 2 * 4 * per_register + along)
            }
            Part::B => {
                let (tile, register) = (register / depth, register % depth);
                (register * 4 * per_register + along, 8 * tile + group)
            }
            Part::C if self.m == 8 => (group, 8 * (index / 2) + 2 * thread + index % 2),
            Part::C => {
                let (tile, index) = (index / 4, index % 4);
                let (down, right) = (tile / (self.n / 8), tile % (self.n / 8));
                (16 * down + 8 * (index / 2) + group, 8 * right + 2 * thread + index % 2)
            }
        }
    }
}

/// A matrix in the registers of a warp.
pub(super) struct Fragment {
    pub(super) element: Element,
    pub(super) registers: Vec<usize>,
    /// Registers that an instruction names. Those after [`Fragment::own`] repeat the ones before.
    pub(super) stored: usize,
    /// Rows and columns of the elements, those of a lane after each other.
    places: Vec<(usize, usize)>,
    columns: usize,
}

impl Fragment {
    /// Fragment without registers. The halves of `wmma` take eight of them, whatever the shape:
    /// `doubled`.
    pub(super) fn new(shape: Shape, part: Part, element: Element, doubled: bool) -> Self {
        let (rows, columns) = shape.extents(part);
        let number = rows * columns / LANES;
        let per_register = element.per_register();
        let places = (0..LANES)
            .flat_map(|lane| (0..number).map(move |index| shape.place(part, per_register, lane, index)))
            .collect();
        let stored = if doubled && element == Element::F16 { 8 } else { number / per_register };
        Self { element, registers: Vec::new(), stored, places, columns }
    }

    /// Elements of the matrix.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Elements of a lane.
    pub(super) fn per_lane(&self) -> usize {
        self.places.len() / LANES
    }

    /// Registers with elements of their own.
    pub(super) fn own(&self) -> usize {
        self.per_lane() / self.element.per_register()
    }

    /// Row and column of an element of a lane.
    pub(super) fn place(&self, lane: usize, index: usize) -> (usize, usize) {
        self.places.get(lane * self.per_lane() + index).copied().unwrap_or_default()
    }

    /// All elements: lane, register, first bit in it, and index in the matrix by rows.
    pub(super) fn elements(&self) -> impl Iterator<Item = (usize, usize, usize, usize)> + '_ {
        let (per_lane, per_register) = (self.per_lane(), self.element.per_register());
        self.places.iter().enumerate().map(move |(at, &(row, column))| {
            let index = at % per_lane;
            let register = self.registers.get(index / per_register).copied().unwrap_or_default();
            (at / per_lane, register, index % per_register * self.element.bytes() * 8, row * self.columns + column)
        })
    }
}
