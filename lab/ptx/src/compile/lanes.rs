//! Functions of a lane, applied to all lanes.

#![expect(unsafe_code, reason = "functions without data need no closure")]
#![expect(clippy::indexing_slicing, reason = "hot loops: the compiler made the registers, and lanes are below 32")]

use std::ptr::NonNull;

use super::Compiler;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::LANES;
use crate::machine::program::{Action, Registers};
use crate::machine::state::{Lane, State, Word, put};

/// Function of a lane, which the closures take with them.
pub(super) trait Pure: Copy + Send + Sync + 'static {}
impl<F: Copy + Send + Sync + 'static> Pure for F {}

/// Lanes whose results are computed before they are stored: few, so that they stay in registers.
pub(super) const CHUNK: usize = 8;

/// First lanes of the chunks that have active lanes.
#[inline]
pub(super) fn chunks(mask: u32) -> impl Iterator<Item = usize> {
    const ACTIVE: u32 = u32::MAX >> (LANES - CHUNK);
    (0..LANES).step_by(CHUNK).filter(move |first| mask >> first & ACTIVE != 0)
}

macro_rules! map {
    ($map:ident, $apply:ident, $($value:ident $register:ident $operand:ident),*) => {
        /// Sets the active lanes of a register to a function of others.
        #[inline]
        fn $apply<$($value: Lane,)* R: Lane>(
            state: &mut State, registers: &Registers, mask: u32, function: impl Fn($($value),*) -> R,
        ) {
            let [destination, $($register,)* ..] = registers.map(|register| register as usize);
            for first in chunks(mask) {
                let mut results = [R::Word::default(); CHUNK];
                $(let $register = &$value::Word::file(state)[$register][first..first + CHUNK];)*
                for lane in 0..CHUNK {
                    results[lane] = function($($value::from_word($register[lane])),*).into_word();
                }
                put(&mut R::Word::file_mut(state)[destination][first..first + CHUNK], &results, mask >> first);
            }
        }

        /// Sets a register to a function of others.
        pub(super) fn $map<$($value: Lane,)* R: Lane, F: Fn($($value),*) -> R + Pure>(
            destination: usize, $($register: usize,)* function: F,
        ) -> Action {
            let mut registers = [0; 5];
            for (place, register) in registers.iter_mut().zip([destination, $($register),*]) {
                *place = register as u32;
            }
            if size_of::<F>() > 0 {
                return Action::Compute(Box::new(move |state, mask| $apply(state, &registers, mask, function)));
            }
            Action::Lanes {
                // SAFETY: The function's type is without data, and it was handed over: a copy.
                work: |state, registers, mask| $apply(state, registers, mask, unsafe { without_data::<F>() }),
                registers,
            }
        }

        impl Compiler<'_> {
            /// Emits an instruction that sets a register to a function of others.
            pub(super) fn $map<$($value: Lane,)* R: Lane>(
                &mut self, destination: &Operand, $($operand: &Operand,)* function: impl Fn($($value),*) -> R + Pure,
            ) -> Result<(), PtxError> {
                $(let $register = self.source($operand, $value::TYPE)?;)*
                let destination = self.destination(destination, R::TYPE)?;
                self.emit($map(destination, $($register,)* function));
                Ok(())
            }
        }
    };
}

/// Value of a type without data.
///
/// # Safety
/// The type's size is 0, and a value of it exists, which may be copied.
unsafe fn without_data<F: Copy>() -> F {
    // SAFETY: A read of no bytes, by a pointer that is aligned and not null.
    unsafe { NonNull::<F>::dangling().read() }
}

macro_rules! test {
    ($check:ident, $($value:ident $register:ident),*) => {
        /// Mask of the lanes for which a function of registers is true.
        pub(super) fn $check<$($value: Lane,)*>(
            $($register: usize,)* function: impl Fn($($value),*) -> bool + Pure,
        ) -> impl Fn(&State) -> u32 + Send + Sync + 'static {
            move |state| {
                $(let $register = &$value::Word::file(state)[$register];)*
                let mut mask = 0;
                for lane in 0..LANES {
                    mask |= u32::from(function($($value::from_word($register[lane])),*)) << lane;
                }
                mask
            }
        }
    };
}

map!(map1, apply1, A first a);
map!(map2, apply2, A first a, B second b);
map!(map3, apply3, A first a, B second b, C third c);
map!(map4, apply4, A first a, B second b, C third c, D fourth d);
test!(test1, A first);
test!(test2, A first, B second);
