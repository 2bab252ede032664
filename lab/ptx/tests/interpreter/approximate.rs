//! Approximations against the host's `f64` functions, over many values of each size.

use crate::common::Argument::Long;
use crate::common::{Answer, Buffer, Shape, kernel, launch, load};

/// Results of an instruction, `ex2.approx.f32`, of many values.
fn results(name: &str, values: &[f32]) -> Vec<f32> {
    let text = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 in, .param .u64 out) {{.reg.f32 %f; .reg .b32 %t;\n\
         .reg .b32 %c; .reg .b32 %n; .reg .b64 %i; .reg .b64 %o; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;\n\
         mad.lo.u32 %t, %c, %n, %t; ld.param.u64 %i, [in]; mad.wide.u32 %i, %t, 4, %i; ld.param.u64 %o, [out];\n\
         mad.wide.u32 %o, %t, 4, %o; ld.global.f32 %f, [%i]; {name} %f, %f; st.global.f32 [%o], %f; ret; }}"
    );
    let mut buffer = Buffer::new(4 << 20, Answer::Resident);
    let module = load(&[&text], &mut buffer);
    let (from, to) = (buffer.put(values), buffer.reserve(size_of_val(values) as u64));
    let shape = Shape([values.len() as u32 / 64, 1, 1], [64, 1, 1], 0);
    launch(&kernel(&module, "k"), &shape, &[Long(from), Long(to)], &mut buffer).expect("the kernel ends");
    buffer.get(to, values.len())
}

/// Values between two powers of two, of both signs.
fn values(least: i32, greatest: i32) -> Vec<f32> {
    let number = 1u32 << 16;
    let span = f64::from(greatest - least);
    (0..number)
        .map(|i| {
            let scattered = f64::from(i.wrapping_mul(2_654_435_761)) / 4_294_967_296.0;
            let magnitude = (f64::from(least) + span * scattered).exp2() as f32;
            if i & 1 == 0 { magnitude } else { -magnitude }
        })
        .collect()
}

/// Greatest error in units in the last place of `f32`.
fn worst(name: &str, values: &[f32], reference: impl Fn(f64) -> f64) -> f64 {
    let mut worst = 0f64;
    for (value, result) in values.iter().zip(results(name, values)) {
        let expected = reference(f64::from(*value));
        if expected.is_nan() || !(expected as f32).is_finite() {
            assert!(result.is_nan() == expected.is_nan() && !result.is_finite(), "{name} of {value}: {result}");
            continue;
        }
        let magnitude = (expected as f32).abs();
        let unit = f64::from(magnitude.next_up()) - f64::from(magnitude);
        worst = worst.max((f64::from(result) - expected).abs() / unit);
    }
    println!("{name}: {worst:.4} units in the last place");
    worst
}

#[test]
fn errors_are_below_a_unit() {
    assert!(worst("ex2.approx.f32", &values(-30, 8), f64::exp2) < 0.51);
    assert!(worst("lg2.approx.f32", &values(-140, 127), f64::log2) < 0.51);
    assert!(
        worst(
            "lg2.approx.f32",
            &(0..65_535u16).chain([0]).map(|i| 0.9 + f32::from(i) * 3e-6).collect::<Vec<_>>(),
            f64::log2
        ) < 0.51
    );
    assert!(worst("sin.approx.f32", &values(-30, 16), f64::sin) < 0.51);
    assert!(worst("cos.approx.f32", &values(-30, 16), f64::cos) < 0.51);
    assert!(worst("tanh.approx.f32", &values(-30, 8), f64::tanh) < 0.51);
    assert!(worst("rsqrt.approx.f32", &values(-149, 127), |x| 1.0 / x.sqrt()) < 0.51);
    assert!(worst("rcp.approx.f32", &values(-120, 120), |x| 1.0 / x) < 0.51);
    assert!(worst("sqrt.approx.f32", &values(-149, 127), f64::sqrt) < 0.51);
}

#[test]
fn special_values() {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(1), -f32::from_bits(1), 1.0];
    let values: Vec<f32> = special.iter().copied().cycle().take(64).collect();
    let nan = f32::NAN;
    let infinity = f32::INFINITY;
    for (name, expected) in [
        ("ex2.approx.f32", [1.0, 1.0, infinity, 0.0, nan, 1.0, 1.0, 2.0]),
        ("ex2.approx.ftz.f32", [1.0, 1.0, infinity, 0.0, nan, 1.0, 1.0, 2.0]),
        ("lg2.approx.f32", [-infinity, -infinity, infinity, nan, nan, -149.0, nan, 0.0]),
        ("lg2.approx.ftz.f32", [-infinity, -infinity, infinity, nan, nan, -infinity, -infinity, 0.0]),
        ("sin.approx.ftz.f32", [0.0, -0.0, nan, nan, nan, 0.0, -0.0, 0.841_470_96]),
        ("cos.approx.f32", [1.0, 1.0, nan, nan, nan, 1.0, 1.0, 0.540_302_3]),
        ("tanh.approx.f32", [0.0, -0.0, 1.0, -1.0, nan, special[5], special[6], 0.761_594_2]),
        ("rsqrt.approx.ftz.f32", [infinity, -infinity, 0.0, nan, nan, infinity, -infinity, 1.0]),
        ("rcp.approx.ftz.f32", [infinity, -infinity, 0.0, -0.0, nan, infinity, -infinity, 1.0]),
        ("sqrt.approx.ftz.f32", [0.0, -0.0, infinity, nan, nan, 0.0, -0.0, 1.0]),
    ] {
        for ((value, result), expected) in special.iter().zip(results(name, &values)).zip(expected) {
            let same = result.to_bits() == expected.to_bits() || result.is_nan() && expected.is_nan();
            assert!(same, "{name} of {value:e} is {result:e}, not {expected:e}");
        }
    }
}
