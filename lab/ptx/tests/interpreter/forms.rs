//! Each form of an instruction against a scalar reference, over random lanes and masks.

mod atomic;
mod bits;
mod compare;
mod convert;
mod float;
pub(crate) mod half;
mod integer;
mod rounding;
mod video;

use crate::common::Argument::Long;
use crate::common::{Answer, Buffer, Shape, kernel, launch, load};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Reference: result of a lane's three operands, `a`, `b` and `c`.
type Reference = fn([u64; 3]) -> u64;

/// Form of an instruction.
pub(crate) struct Form {
    /// Instruction, whose operands are `d`, `a`, `b`, `c` with their bits, as `%d32`, `%a64`, and
    /// the predicates `%p` and `%q`.
    text: &'static str,
    /// Bits of the result, 1 for the predicate `%p`.
    bits: u32,
    reference: Reference,
    /// Units in the last place by which a float may differ.
    ulps: u64,
}

pub(crate) const fn form(text: &'static str, bits: u32, reference: Reference) -> Form {
    Form { text, bits, reference, ulps: 0 }
}

/// The same for a float, which may be NaN.
pub(crate) const fn float(text: &'static str, bits: u32, reference: Reference) -> Form {
    Form { text, bits, reference, ulps: 1 }
}

const HEADER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// Kernel of a form: it loads three operands per thread, executes the instruction where bit 0 of a
/// fourth number is set, and stores the result.
fn text_of(index: usize, form: &Form) -> String {
    let store = match form.bits {
        1 => "selp.u32 %d32, 1, 0, %p; cvt.u64.u32 %d64, %d32;",
        8 => "and.b32 %d32, %d32, 255; cvt.u64.u32 %d64, %d32;",
        16 => "cvt.u64.u16 %d64, %d16;",
        32 => "cvt.u64.u32 %d64, %d32;",
        _ => "",
    };
    let mut registers = String::new();
    for name in ["a", "b", "c", "d"] {
        for bits in [16, 32, 64] {
            registers += &format!(".reg .b{bits} %{name}{bits}; ");
        }
    }
    let mut loads = String::new();
    for (place, name) in ["a", "b", "c"].iter().enumerate() {
        loads += &format!(
            "ld.global.b64 %{name}64, [%x+{}]; cvt.u32.u64 %{name}32, %{name}64; cvt.u16.u64 %{name}16, %{name}64;\n",
            place * 8
        );
    }
    format!(
        ".entry k{index}(.param .u64 in, .param .u64 out) {{ {registers} .reg .b64 %x; .reg .b64 %y; .reg .b64 %i; \
         .reg .b64 %m; .reg .b32 %t; .reg .pred %p; .reg .pred %q; .reg .pred %g; .reg .pred %s;\n\
         mov.u32 %t, %tid.x; mul.wide.u32 %i, %t, 32; ld.param.u64 %x, [in]; add.s64 %x, %x, %i;\n\
         mul.wide.u32 %i, %t, 8; ld.param.u64 %y, [out]; add.s64 %y, %y, %i;\n{loads}\
         ld.global.b64 %m, [%x+24]; and.b64 %m, %m, 1; setp.ne.u64 %g, %m, 0; setp.lt.s32 %s, %c32, 0;\n\
         mov.b64 %d64, -1; mov.b32 %d32, -1; mov.b16 %d16, -1; setp.eq.u32 %p, %t, %t; setp.eq.u32 %q, %t, %t;\n\
         @%g {}\n{store} st.global.b64 [%y], %d64; ret; }}\n",
        form.text
    )
}

/// Any number, with those more often at which instructions differ.
fn number() -> impl Strategy<Value = u64> {
    let special32 = prop::sample::select(vec![
        0u32,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        255,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x0080_0000,
        0x0000_0001,
        0x8000_0001,
        0x007f_ffff,
        0x4f00_0000,
        0x3effffff,
        0x3f00_0000,
        0x3c00_3c00,
        0x7c00_fc00,
        0x0001_8001,
        0x7bff_0400,
        0x4020_0000,
        0x7f7f_ffff,
        0x3fc0_0000,
    ]);
    let special64 = prop::sample::select(vec![
        0u64,
        1,
        u64::MAX,
        i64::MIN.cast_unsigned(),
        i64::MAX.cast_unsigned(),
        1.0f64.to_bits(),
        (-1.5f64).to_bits(),
        f64::INFINITY.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        0x7ff8_0000_0000_0000,
        0.5f64.to_bits(),
        2.5f64.to_bits(),
        4e9f64.to_bits(),
        1e300f64.to_bits(),
        (-1e19f64).to_bits(),
        1,
        65504.0f64.to_bits(),
        1e-40f64.to_bits(),
        3e38f64.to_bits(),
    ]);
    let moderate = (-300f32..300f32).prop_map(|value| u64::from(value.to_bits()));
    let moderate64 = (-300f64..300f64).prop_map(f64::to_bits);
    prop_oneof![
        2 => any::<u64>(),
        2 => special32.prop_map(u64::from),
        1 => special64,
        2 => moderate,
        1 => moderate64,
        1 => any::<u32>().prop_map(u64::from),
    ]
}

fn nearly(bits: u32, left: u64, right: u64, ulps: u64) -> bool {
    let nan = |value: u64| match bits {
        16 => value & 0x7fff > 0x7f80 || value & 0x7c00 == 0x7c00 && value & 0x3ff != 0,
        32 => f32::from_bits(value as u32).is_nan(),
        _ => f64::from_bits(value).is_nan(),
    };
    left == right || ulps > 0 && nan(left) && nan(right)
}

/// Checks forms.
pub(crate) fn check(forms: &[Form]) {
    let text =
        HEADER.to_owned() + &forms.iter().enumerate().map(|(index, form)| text_of(index, form)).collect::<String>();
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    let lanes = prop::collection::vec((number(), number(), number(), any::<bool>()), 37);
    TestRunner::new(config)
        .run(&lanes, |lanes| {
            let mut buffer = Buffer::new(1 << 16, Answer::Resident);
            let module = load(&[&text], &mut buffer);
            let numbers: Vec<u64> = lanes.iter().flat_map(|&(a, b, c, active)| [a, b, c, u64::from(active)]).collect();
            let (from, to) = (buffer.put(&numbers), buffer.reserve(37 * 8));
            for (index, form) in forms.iter().enumerate() {
                let kernel = kernel(&module, &format!("k{index}"));
                launch(&kernel, &Shape([1, 1, 1], [37, 1, 1], 0), &[Long(from), Long(to)], &mut buffer)
                    .expect(form.text);
                let results = buffer.get::<u64>(to, 37);
                for (&(a, b, c, active), result) in lanes.iter().zip(results) {
                    let mask = u64::MAX >> (64 - form.bits);
                    let expected = if active { (form.reference)([a, b, c]) & mask } else { mask };
                    prop_assert!(
                        nearly(form.bits, result, expected, form.ulps),
                        "{} of {a:#x} {b:#x} {c:#x}, active {active}: {result:#x}, not {expected:#x}",
                        form.text
                    );
                }
            }
            Ok(())
        })
        .expect("the forms agree");
}

/// Runs the kernel `k` of a text by one thread; returns what it stored at its argument.
pub(crate) fn run_one(text: &str, number: usize) -> Vec<u64> {
    let mut buffer = Buffer::new(1 << 16, Answer::Resident);
    let module = load(&[text], &mut buffer);
    let out = buffer.reserve(number as u64 * 8);
    launch(&kernel(&module, "k"), &Shape([1, 1, 1], [1, 1, 1], 0), &[Long(out)], &mut buffer).expect("the kernel ends");
    buffer.get(out, number)
}
