//! Closures that apply a function to all lanes.

#![expect(clippy::indexing_slicing, reason = "hot loops: the compiler made the registers, and lanes are below 32")]

use super::Compiler;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::LANES;
use crate::machine::program::Action;
use crate::machine::state::{Lane, State, Word, put};

/// Function of a lane, which the closures take with them.
pub(super) trait Pure: Copy + Send + Sync + 'static {}
impl<F: Copy + Send + Sync + 'static> Pure for F {}

macro_rules! map {
    ($map:ident, $($value:ident $register:ident $operand:ident),*) => {
        /// Sets a register to a function of others.
        pub(super) fn $map<$($value: Lane,)* R: Lane>(
            destination: usize, $($register: usize,)* function: impl Fn($($value),*) -> R + Pure,
        ) -> Action {
            Action::Compute(Box::new(move |state, mask| {
                let mut result = [R::Word::default(); LANES];
                {
                    $(let $register = &$value::Word::file(state)[$register];)*
                    for lane in 0..LANES {
                        result[lane] = function($($value::from_word($register[lane])),*).into_word();
                    }
                }
                put(&mut R::Word::file_mut(state)[destination], &result, mask);
            }))
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

map!(map1, A first a);
map!(map2, A first a, B second b);
map!(map3, A first a, B second b, C third c);
map!(map4, A first a, B second b, C third c, D fourth d);
test!(test1, A first);
test!(test2, A first, B second);
