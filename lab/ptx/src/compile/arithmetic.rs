//! Integer arithmetic.

use super::Compiler;
use super::form::Form;
use super::types::for_integer;
use crate::PtxError;
use crate::machine::lanes as active_lanes;
use crate::machine::program::Action;
use crate::ops::bits::dot;
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles `add`, `sub`, `min`, `max`, `div`, `rem` of integers.
    pub(super) fn integer_binary(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let saturate = form.take("sat");
        let carry_out = form.take("cc");
        let opcode = form.opcode;
        if carry_out {
            return self.add_with_carry(form, false, true);
        }
        if saturate && of != Type::S32 {
            return Err(form.unknown());
        }
        let [d, a, b] = form.operands()?;
        match (opcode, saturate) {
            ("add", true) => return self.map2(d, a, b, |a: i32, b: i32| a.saturating_add(b)),
            ("sub", true) => return self.map2(d, a, b, |a: i32, b: i32| a.saturating_sub(b)),
            (_, true) => return Err(form.unknown()),
            _ => {}
        }
        for_integer!(of, T => match opcode {
            "add" => self.map2(d, a, b, |a: T, b: T| a.wrapping_add(b)),
            "sub" => self.map2(d, a, b, |a: T, b: T| a.wrapping_sub(b)),
            "min" => self.map2(d, a, b, |a: T, b: T| a.min(b)),
            "max" => self.map2(d, a, b, |a: T, b: T| a.max(b)),
            // As the hardware divides by zero.
            "div" => self.map2(d, a, b, |a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) }),
            _ => self.map2(d, a, b, |a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) }),
        }, Err(form.unknown()))
    }

    /// Compiles `abs` and `neg` of integers.
    pub(super) fn integer_unary(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [d, a] = form.operands()?;
        let absolute = form.opcode == "abs";
        match form.only_type()? {
            Type::S16 if absolute => self.map1(d, a, i16::wrapping_abs),
            Type::S32 if absolute => self.map1(d, a, i32::wrapping_abs),
            Type::S64 if absolute => self.map1(d, a, i64::wrapping_abs),
            Type::S16 => self.map1(d, a, i16::wrapping_neg),
            Type::S32 => self.map1(d, a, i32::wrapping_neg),
            Type::S64 => self.map1(d, a, i64::wrapping_neg),
            _ => Err(form.unknown()),
        }
    }

    /// Compiles `mul` and `mad` of integers.
    pub(super) fn integer_multiply(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let part = form.require(&["lo", "hi", "wide"])?;
        let saturate = form.take("sat");
        let with_sum = form.opcode == "mad";
        if with_sum && form.take("cc") {
            return self.multiply_with_carry(form, part, false, true);
        }
        if saturate {
            if !(with_sum && part == "hi" && of == Type::S32) {
                return Err(form.unknown());
            }
            let [d, a, b, c] = form.operands()?;
            return self.map3(d, a, b, c, |a: i32, b: i32, c: i32| {
                (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c)
            });
        }
        if with_sum {
            let [d, a, b, c] = form.operands()?;
            return match part {
                "lo" => {
                    for_integer!(of, T => self.map3(d, a, b, c, |a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c)), Err(form.unknown()))
                }
                "hi" => for_integer!(of, T => self.map3(d, a, b, c, |a: T, b: T, c: T| {
                    let product = i128::from(a).wrapping_mul(i128::from(b));
                    ((product >> T::BITS).cast_unsigned() as T).wrapping_add(c)
                }), Err(form.unknown())),
                _ => {
                    match of {
                        Type::U16 => self
                            .map3(d, a, b, c, |a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
                        Type::S16 => self
                            .map3(d, a, b, c, |a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
                        Type::U32 => self
                            .map3(d, a, b, c, |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
                        Type::S32 => self
                            .map3(d, a, b, c, |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
                        _ => Err(form.unknown()),
                    }
                }
            };
        }
        let [d, a, b] = form.operands()?;
        match part {
            "lo" => for_integer!(of, T => self.map2(d, a, b, |a: T, b: T| a.wrapping_mul(b)), Err(form.unknown())),
            "hi" => for_integer!(of, T => self.map2(d, a, b, |a: T, b: T| {
                // Both 64-bit products fit 128 bits: of a sign, or as the upper bits wrap.
                (i128::from(a).wrapping_mul(i128::from(b)) >> T::BITS).cast_unsigned() as T
            }), Err(form.unknown())),
            _ => match of {
                Type::U16 => self.map2(d, a, b, |a: u16, b: u16| u32::from(a) * u32::from(b)),
                Type::S16 => self.map2(d, a, b, |a: i16, b: i16| i32::from(a) * i32::from(b)),
                Type::U32 => self.map2(d, a, b, |a: u32, b: u32| u64::from(a) * u64::from(b)),
                Type::S32 => self.map2(d, a, b, |a: i32, b: i32| i64::from(a) * i64::from(b)),
                _ => Err(form.unknown()),
            },
        }
    }

    /// Compiles `mul24` and `mad24`.
    pub(super) fn multiply24(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let signed = match form.only_type()? {
            Type::S32 => true,
            Type::U32 => false,
            _ => return Err(form.unknown()),
        };
        let high = form.require(&["lo", "hi"])? == "hi";
        let saturate = form.take("sat");
        let product = move |a: u32, b: u32| {
            let field =
                |value: u32| if signed { i64::from((value << 8) as i32 >> 8) } else { i64::from(value & 0xff_ffff) };
            let product = field(a) * field(b);
            (if high { product >> 16 } else { product }) as u32
        };
        if form.opcode == "mul24" && !saturate {
            let [d, a, b] = form.operands()?;
            return self.map2(d, a, b, product);
        }
        if form.opcode == "mul24" || saturate && !(high && signed) {
            return Err(form.unknown());
        }
        let [d, a, b, c] = form.operands()?;
        self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| {
            let product = product(a, b);
            if saturate { (product as i32).saturating_add(c as i32) as u32 } else { product.wrapping_add(c) }
        })
    }

    /// Compiles `sad`: `c + |a - b|`.
    pub(super) fn difference(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [d, a, b, c] = form.operands()?;
        for_integer!(form.only_type()?, T => self.map3(d, a, b, c, |a: T, b: T, c: T| {
            c.wrapping_add(a.max(b).wrapping_sub(a.min(b)))
        }), Err(form.unknown()))
    }

    /// Compiles `dp4a` and `dp2a`.
    pub(super) fn dot_product(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [left, right] = form.types()?;
        let bytes = |signed: bool| {
            move |word: u32| word.to_le_bytes().map(|byte| if signed { i64::from(byte as i8) } else { i64::from(byte) })
        };
        let signs = match (left, right) {
            (Type::S32 | Type::U32, Type::S32 | Type::U32) => (left.is_signed(), right.is_signed()),
            _ => return Err(form.unknown()),
        };
        let (of_left, of_right) = (bytes(signs.0), bytes(signs.1));
        if form.opcode == "dp4a" {
            let [d, a, b, c] = form.operands()?;
            return self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| dot(of_left(a), of_right(b), c));
        }
        let high = form.require(&["lo", "hi"])? == "hi";
        let [d, a, b, c] = form.operands()?;
        self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| {
            let halves =
                [a as u16, (a >> 16) as u16].map(|half| if signs.0 { i64::from(half as i16) } else { i64::from(half) });
            let [b0, b1, b2, b3] = of_right(b);
            let pair = if high { [b2, b3] } else { [b0, b1] };
            dot([halves[0], halves[1], 0, 0], [pair[0], pair[1], 0, 0], c)
        })
    }

    /// Compiles `addc`, `subc`, and `add.cc`, `sub.cc`.
    pub(super) fn add_with_carry(
        &mut self,
        form: &mut Form<'_>,
        carry_in: bool,
        carry_out: bool,
    ) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let carry_out = form.take("cc") || carry_out;
        let subtract = form.opcode.starts_with("sub");
        let [d, a, b] = form.operands()?;
        let zero = crate::ast::Operand::Integer(0);
        self.carry(of, d, [a, b, &zero], "sum", subtract, carry_in, carry_out)
    }

    /// Compiles `madc` and `mad.cc`.
    pub(super) fn multiply_with_carry(
        &mut self,
        form: &mut Form<'_>,
        part: &'static str,
        carry_in: bool,
        carry_out: bool,
    ) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let carry_out = form.take("cc") || carry_out;
        let [d, a, b, c] = form.operands()?;
        if part == "wide" {
            return Err(form.unknown());
        }
        self.carry(of, d, [a, b, c], part, false, carry_in, carry_out)
    }

    /// Emits an addition with carries: of `a` and `b`, or of `c` and a part of their product.
    #[expect(clippy::too_many_arguments, reason = "two flags in, two out, and the operands")]
    fn carry(
        &mut self,
        of: Type,
        d: &crate::ast::Operand,
        [a, b, c]: [&crate::ast::Operand; 3],
        part: &'static str,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
    ) -> Result<(), PtxError> {
        let bits = match of.bytes() {
            4 => 32,
            8 => 64,
            _ => return self.error("carries of this type are not known"),
        };
        let signed = of.is_signed();
        let [a, b, c] = [self.source(a, of)?, self.source(b, of)?, self.source(c, of)?];
        let d = self.destination(d, of)?;
        let ones = u64::MAX >> (64 - bits);
        self.emit(Action::Compute(Box::new(move |state, mask| {
            for lane in active_lanes(mask) {
                let get = |register| state.lane(of, register, lane);
                let (left, right) = if part == "sum" {
                    (get(a), get(b))
                } else {
                    let extend = |value: u64| match (signed, bits) {
                        (true, 32) => i128::from(value as i32),
                        (true, _) => i128::from(value as i64),
                        _ => i128::from(value),
                    };
                    let product = extend(get(a)).wrapping_mul(extend(get(b)));
                    let product = if part == "hi" { product >> bits } else { product };
                    (product as u64 & ones, get(c))
                };
                // A subtraction adds the complement, and 1 unless it borrows for the one before it.
                let right = if subtract { !right & ones } else { right };
                let flag = if carry_in { u128::from(state.carry >> lane & 1) } else { u128::from(subtract) };
                let result = u128::from(left) + u128::from(right) + flag;
                if carry_out {
                    state.carry = state.carry & !(1 << lane) | ((result >> bits & 1) as u32) << lane;
                }
                state.set_lane(of, d, lane, result as u64 & ones);
            }
        })));
        Ok(())
    }
}
