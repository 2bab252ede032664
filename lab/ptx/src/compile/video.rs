//! Instructions on the bytes and half words of a register: `vadd4`, `vset2`.

use super::Compiler;
use super::form::Form;
use crate::PtxError;
use crate::types::Type;

/// Function of two parts, each 8 or 16 bits with its sign.
type Part = fn(i32, i32) -> i32;

impl Compiler<'_> {
    /// Compiles the instructions on parts of a register, of an opcode such as `vadd4`.
    pub(super) fn video(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let (name, bits) = match form.opcode.split_at(form.opcode.len() - 1) {
            (name, "4") => (name, 8),
            (name, _) => (name, 16),
        };
        let compare = name == "vset";
        let part: Part = match name {
            "vadd" => |a, b| a + b,
            "vsub" => |a, b| a - b,
            // Halves are rounded away from zero.
            "vavrg" => |a, b| (a + b + i32::from(a + b >= 0)) >> 1,
            "vabsdiff" => |a, b| (a - b).abs(),
            "vmin" => i32::min,
            "vmax" => i32::max,
            _ => match form.require(&["eq", "ne", "lt", "le", "gt", "ge"])? {
                "eq" => |a, b| i32::from(a == b),
                "ne" => |a, b| i32::from(a != b),
                "lt" => |a, b| i32::from(a < b),
                "le" => |a, b| i32::from(a <= b),
                "gt" => |a, b| i32::from(a > b),
                _ => |a, b| i32::from(a >= b),
            },
        };
        let [to, of_a, of_b] = if compare { form.types().map(|[a, b]| [Type::U32, a, b]) } else { form.types() }?;
        if [to, of_a, of_b].iter().any(|of| !matches!(of, Type::U32 | Type::S32)) {
            return Err(form.unknown());
        }
        let saturate = !compare && form.take("sat");
        let accumulate = form.take("add");
        let [d, a, b, c] = form.operands()?;
        if saturate && accumulate {
            return Err(form.unknown());
        }
        let signed = [of_a, of_b].map(Type::is_signed);
        let (least, most) =
            if to.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        // Without a mask, results replace all parts of `c` that they are not added to.
        self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| {
            let mut result = if accumulate { c } else { 0 };
            for shift in (0..32).step_by(bits) {
                let value = part(extract(a, shift, bits, signed[0]), extract(b, shift, bits, signed[1]));
                if accumulate {
                    result = result.wrapping_add(value as u32);
                } else {
                    let value = if saturate { value.clamp(least, most) } else { value };
                    result |= (value as u32 & (u32::MAX >> (32 - bits))) << shift;
                }
            }
            result
        })
    }
}

/// Part of a register.
fn extract(word: u32, shift: usize, bits: usize, signed: bool) -> i32 {
    let high = word << (32 - bits - shift);
    if signed { high as i32 >> (32 - bits) } else { (high >> (32 - bits)) as i32 }
}
