//! Products of matrices: fragments as the PTX ISA states them, against a product by its definition.

use crate::common::Argument::{Int, Long};
use crate::common::{Answer, Buffer, Shape, kernel, launch, load};
use crate::forms::half::{Format, nearest_half};

const HEADER: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// Rows and columns of a lane's element, from its group (`lane / 4`), its thread (`lane % 4`) and
/// the element's index.
type Place = fn(usize, usize, usize) -> (usize, usize);

/// Layout of a shape of `mma`, as its section of the PTX ISA has it.
struct Layout {
    shape: [usize; 3],
    a: Place,
    b: Place,
    c: Place,
}

const HALVES_16: Layout = Layout {
    shape: [16, 8, 16],
    a: |group, thread, i| {
        (
            if i < 2 || (4..6).contains(&i) { group } else { group + 8 },
            if i < 4 { thread * 2 + (i & 1) } else { thread * 2 + (i & 1) + 8 },
        )
    },
    b: |group, thread, i| (if i < 2 { thread * 2 + (i & 1) } else { thread * 2 + (i & 1) + 8 }, group),
    c: |group, thread, i| (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1)),
};
const HALVES_8: Layout = Layout {
    shape: [16, 8, 8],
    a: |group, thread, i| (if i < 2 { group } else { group + 8 }, thread * 2 + (i & 1)),
    b: |group, thread, i| (thread * 2 + i, group),
    c: HALVES_16.c,
};
const TF32_8: Layout = Layout {
    shape: [16, 8, 8],
    a: |group, thread, i| (if i % 2 == 0 { group } else { group + 8 }, if i < 2 { thread } else { thread + 4 }),
    b: |group, thread, i| (if i == 0 { thread } else { thread + 4 }, group),
    c: HALVES_16.c,
};
const TF32_4: Layout = Layout {
    shape: [16, 8, 4],
    a: |group, thread, i| (if i == 0 { group } else { group + 8 }, thread),
    b: |group, thread, _| (thread, group),
    c: HALVES_16.c,
};
const DOUBLES_4: Layout = Layout {
    shape: [8, 8, 4],
    a: |group, thread, _| (group, thread),
    b: |group, thread, _| (thread, group),
    c: |group, thread, i| (group, thread * 2 + i),
};
const BYTES_SMALL: Layout = Layout {
    shape: [8, 8, 16],
    a: |group, thread, i| (group, thread * 4 + i),
    b: |group, thread, i| (thread * 4 + i, group),
    c: |group, thread, i| (group, thread * 2 + i),
};
const BYTES_16: Layout = Layout {
    shape: [16, 8, 16],
    a: |group, thread, i| (if i < 4 { group } else { group + 8 }, thread * 4 + (i & 3)),
    b: |group, thread, i| (thread * 4 + i, group),
    c: HALVES_16.c,
};
const BYTES_32: Layout = Layout {
    shape: [16, 8, 32],
    a: |group, thread, i| {
        (
            if i < 4 || (8..12).contains(&i) { group } else { group + 8 },
            if i < 8 { thread * 4 + (i & 3) } else { thread * 4 + (i & 3) + 16 },
        )
    },
    b: |group, thread, i| (if i < 4 { thread * 4 + (i & 3) } else { thread * 4 + (i & 3) + 16 }, group),
    c: HALVES_16.c,
};

/// Type of elements.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
}

impl Element {
    fn bytes(self) -> usize {
        match self {
            Self::S8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 | Self::F32 | Self::S32 => 4,
            Self::F64 => 8,
        }
    }

    fn bits(self, value: f64) -> u64 {
        match self {
            Self::F16 => nearest_half(value),
            Self::Bf16 => u64::from((value as f32).to_bits() >> 16),
            // What tf32 lacks counts for nothing.
            Self::Tf32 => u64::from((value as f32).to_bits() | 0x1a5),
            Self::F32 => u64::from((value as f32).to_bits()),
            Self::F64 => value.to_bits(),
            Self::S8 => value as i8 as u8 as u64,
            Self::U8 => value as u8 as u64,
            Self::S32 => u64::from(value as i32 as u32),
        }
    }

    fn value(self, bits: u64) -> f64 {
        match self {
            Self::F16 => Format::Half.value(bits & 0xffff),
            Self::Bf16 => Format::Brain.value(bits & 0xffff),
            Self::Tf32 | Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
            Self::S8 => f64::from(bits as u8 as i8),
            Self::U8 => f64::from(bits as u8),
            Self::S32 => f64::from(bits as u32 as i32),
        }
    }
}

/// Numbers that all types but bytes have, and whose products and sums `f32` has.
fn numbers(number: usize, seed: u32, element: Element) -> Vec<f64> {
    let random = |i: usize| (i as u32 + seed).wrapping_mul(2_654_435_761) >> 11;
    let number_of = |i| match element {
        Element::S8 => f64::from(random(i) as u8 as i8),
        Element::U8 => f64::from(random(i) as u8),
        Element::S32 => f64::from(random(i) as i16),
        _ => f64::from(random(i) % 65) / 16.0 - 2.0,
    };
    (0..number).map(number_of).collect()
}

/// Registers of all lanes with the elements of a matrix.
fn pack(matrix: &[f64], columns: usize, element: Element, place: Place) -> Vec<u8> {
    let per_lane = matrix.len() / 32;
    (0..32 * per_lane)
        .flat_map(|at| {
            let (row, column) = place(at / per_lane / 4, at / per_lane % 4, at % per_lane);
            element.bits(matrix[row * columns + column]).to_le_bytes()[..element.bytes()].to_vec()
        })
        .collect()
}

fn unpack(bytes: &[u8], columns: usize, element: Element, place: Place) -> Vec<f64> {
    let elements: Vec<&[u8]> = bytes.chunks(element.bytes()).collect();
    let per_lane = elements.len() / 32;
    let mut matrix = vec![f64::NAN; elements.len()];
    for (at, bytes) in elements.iter().enumerate() {
        let (row, column) = place(at / per_lane / 4, at / per_lane % 4, at % per_lane);
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        matrix[row * columns + column] = element.value(u64::from_le_bytes(word));
    }
    matrix
}

fn product(shape: [usize; 3], a: &[f64], b: &[f64], c: &[f64]) -> Vec<f64> {
    let [m, n, k] = shape;
    let of = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum::<f64>() + c[at];
    (0..m * n).map(of).collect()
}

/// Kernel of a product: each lane loads its registers, multiplies, and stores those of the result.
fn text_of(name: &str, registers: [usize; 4], double: bool) -> String {
    let (bits, bytes) = if double { (64, 8) } else { (32, 4) };
    let list =
        |prefix: &str, number: usize| (0..number).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    let [a, b, c, d] = registers;
    let mut body = String::new();
    for (prefix, number) in [("a", a), ("b", b), ("c", c)] {
        body += &format!("mad.wide.u32 %x, %t, {}, %{prefix}p;\n", number * bytes);
        for i in 0..number {
            body += &format!("ld.global.b{bits} %{prefix}{i}, [%x+{}];\n", i * bytes);
        }
    }
    // Lanes come to the product one by one.
    body += "mov.u32 %n, %t; LOOP: setp.eq.u32 %p, %n, 0; @%p bra MEET; sub.u32 %n, %n, 1; bra LOOP; MEET:\n";
    body += &format!(
        "{name} {{{}}}, {{{}}}, {{{}}}, {{{}}};\nmad.wide.u32 %x, %t, {}, %dp;\n",
        list("d", d),
        list("a", a),
        list("b", b),
        list("c", c),
        d * bytes
    );
    for i in 0..d {
        body += &format!("st.global.b{bits} [%x+{}], %d{i};\n", i * bytes);
    }
    format!(
        "{HEADER}.entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{\n\
         .reg .b{bits} %a<9>, %b<9>, %c<9>, %d<9>; .reg .b32 %t, %n; .reg .b64 %x, %ap, %bp, %cp, %dp; .reg .pred %p;\n\
         ld.param.u64 %ap, [pa]; ld.param.u64 %bp, [pb]; ld.param.u64 %cp, [pc]; ld.param.u64 %dp, [pd];\n\
         mov.u32 %t, %tid.x;\n{body}ret; }}\n"
    )
}

/// Product of matrices, by an instruction of a layout and of the types of `D`, `A`, `B` and `C`.
fn multiply(name: &str, layout: &Layout, types: [Element; 4], a: &[f64], b: &[f64], c: &[f64]) -> Vec<f64> {
    let [m, n, k] = layout.shape;
    let [of_d, of_a, of_b, of_c] = types;
    let double = of_d == Element::F64;
    let registers = |elements: usize, of: Element| elements * of.bytes() / 32 / if double { 8 } else { 4 };
    let numbers = [registers(m * k, of_a), registers(k * n, of_b), registers(m * n, of_c), registers(m * n, of_d)];
    let mut buffer = Buffer::new(1 << 16, Answer::Resident);
    let module = load(&[&text_of(name, numbers, double)], &mut buffer);
    let inputs = [
        buffer.put(&pack(a, k, of_a, layout.a)),
        buffer.put(&pack(b, n, of_b, layout.b)),
        buffer.put(&pack(c, n, of_c, layout.c)),
    ];
    let out = buffer.reserve((m * n * of_d.bytes()) as u64);
    let [x, y, z] = inputs;
    let arguments = [Long(x), Long(y), Long(z), Long(out)];
    launch(&kernel(&module, "k"), &Shape([1, 1, 1], [32, 1, 1], 0), &arguments, &mut buffer).expect("the kernel ends");
    unpack(&buffer.get(out, m * n * of_d.bytes()), n, of_d, layout.c)
}

#[test]
fn products_are_those_of_the_matrices() {
    use Element::{Bf16, F16, F32, F64, S8, S32, Tf32, U8};
    let forms: [(&str, &Layout, [Element; 4]); 18] = [
        ("m16n8k16.row.col.f32.f16.f16.f32", &HALVES_16, [F32, F16, F16, F32]),
        ("m16n8k16.row.col.f16.f16.f16.f16", &HALVES_16, [F16, F16, F16, F16]),
        ("m16n8k16.row.col.f32.f16.f16.f16", &HALVES_16, [F32, F16, F16, F16]),
        ("m16n8k16.row.col.f16.f16.f16.f32", &HALVES_16, [F16, F16, F16, F32]),
        ("m16n8k16.row.col.f32.bf16.bf16.f32", &HALVES_16, [F32, Bf16, Bf16, F32]),
        ("m16n8k8.row.col.f32.f16.f16.f32", &HALVES_8, [F32, F16, F16, F32]),
        ("m16n8k8.row.col.f16.f16.f16.f16", &HALVES_8, [F16, F16, F16, F16]),
        ("m16n8k8.row.col.f32.bf16.bf16.f32", &HALVES_8, [F32, Bf16, Bf16, F32]),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", &TF32_8, [F32, Tf32, Tf32, F32]),
        ("m16n8k4.row.col.f32.tf32.tf32.f32", &TF32_4, [F32, Tf32, Tf32, F32]),
        ("m8n8k4.row.col.f64.f64.f64.f64", &DOUBLES_4, [F64, F64, F64, F64]),
        ("m8n8k16.row.col.s32.s8.s8.s32", &BYTES_SMALL, [S32, S8, S8, S32]),
        ("m8n8k16.row.col.satfinite.s32.u8.s8.s32", &BYTES_SMALL, [S32, U8, S8, S32]),
        ("m16n8k16.row.col.s32.s8.s8.s32", &BYTES_16, [S32, S8, S8, S32]),
        ("m16n8k16.row.col.s32.u8.u8.s32", &BYTES_16, [S32, U8, U8, S32]),
        ("m16n8k32.row.col.s32.s8.s8.s32", &BYTES_32, [S32, S8, S8, S32]),
        ("m16n8k32.row.col.s32.s8.u8.s32", &BYTES_32, [S32, S8, U8, S32]),
        ("m16n8k32.row.col.s32.u8.u8.s32.satfinite", &BYTES_32, [S32, U8, U8, S32]),
    ];
    for (name, layout, types) in forms {
        let [m, n, k] = layout.shape;
        let (a, b, c) = (numbers(m * k, 1, types[1]), numbers(k * n, 77, types[2]), numbers(m * n, 3, types[3]));
        let rounded = |value: &f64| types[0].value(types[0].bits(*value));
        let expected: Vec<f64> = product(layout.shape, &a, &b, &c).iter().map(rounded).collect();
        assert_eq!(multiply(&format!("mma.sync.aligned.{name}"), layout, types, &a, &b, &c), expected, "{name}");
    }
}

#[test]
fn sums_beyond_an_integer_saturate_or_wrap() {
    let types = [Element::S32, Element::U8, Element::U8, Element::S32];
    let (a, b, c) = (vec![255.0; 128], vec![255.0; 128], vec![f64::from(i32::MAX - 5); 64]);
    let of = |name| multiply(name, &BYTES_SMALL, types, &a, &b, &c);
    assert_eq!(of("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32"), vec![f64::from(i32::MAX); 64]);
    let wrapped = (i32::MAX - 5).wrapping_add(16 * 255 * 255);
    assert_eq!(of("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32"), vec![f64::from(wrapped); 64]);
}

#[test]
fn infinities_and_nan_reach_their_rows_and_columns() {
    let types = [Element::F32, Element::F16, Element::F16, Element::F32];
    let (mut a, b, c) = (vec![1.0; 256], vec![1.0; 128], vec![0.0; 128]);
    (a[0], a[16], a[17]) = (f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY);
    let d = multiply("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", &HALVES_16, types, &a, &b, &c);
    for (at, value) in d.iter().enumerate() {
        match at / 8 {
            0 => assert_eq!(*value, f64::INFINITY),
            1 => assert!(value.is_nan()),
            _ => assert_eq!(*value, 16.0),
        }
    }
}

#[test]
fn products_that_no_gpu_has_are_refused() {
    for name in [
        "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m8n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32",
        "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32",
    ] {
        let linked = ptx::link(vec![ptx::Ptx::parse(&text_of(name, [4, 2, 4, 4], false)).expect("it parses")]);
        let error = linked.expect("it links").place(&[]).expect_err(name);
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Kernel in which each lane writes its row of 8 halves to shared memory, in another order, then
/// executes a text with the address of its row in `%x`, and stores `%r0` to `%r3`.
fn rows_text(body: &str) -> String {
    format!(
        "{HEADER}.entry k(.param .u64 in, .param .u64 out) {{ .shared .align 16 .b8 rows[512]; .reg .b32 %r<9>, %x, %t;\n\
         .reg .b64 %a, %y; mov.u32 %t, %tid.x; ld.param.u64 %a, [in]; mad.wide.u32 %a, %t, 16, %a;\n\
         mul.lo.u32 %x, %t, 5; and.b32 %x, %x, 31; shl.b32 %x, %x, 4; mov.u32 %r8, rows; add.u32 %x, %x, %r8;\n\
         ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%a]; st.shared.v4.b32 [%x], {{%r0, %r1, %r2, %r3}};\n\
         mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; bar.warp.sync -1;\n{body}\n\
         ld.param.u64 %y, [out]; mad.wide.u32 %y, %t, 16, %y; st.global.v4.b32 [%y], {{%r0, %r1, %r2, %r3}}; ret; }}\n"
    )
}

/// Row `8 m + r` is row `r` of matrix `m`; the result is of each lane four pairs.
fn run_rows(body: &str) -> (Vec<u16>, Vec<u16>) {
    let rows: Vec<u16> = (0..256u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u16).collect();
    let mut buffer = Buffer::new(1 << 16, Answer::Resident);
    let module = load(&[&rows_text(body)], &mut buffer);
    let (from, to) = (buffer.put(&rows), buffer.reserve(512));
    launch(&kernel(&module, "k"), &Shape([1, 1, 1], [32, 1, 1], 0), &[Long(from), Long(to)], &mut buffer)
        .expect("the kernel ends");
    (rows, buffer.get(to, 256))
}

#[test]
fn matrices_of_eights_are_loaded_by_rows_and_by_columns() {
    for (number, registers) in [(1, "{%r0}"), (2, "{%r0, %r1}"), (4, "{%r0, %r1, %r2, %r3}")] {
        for (trans, space) in [("", ".shared"), (".trans", ".shared"), ("", ".shared::cta")] {
            let (rows, loaded) =
                run_rows(&format!("ldmatrix.sync.aligned.m8n8.x{number}{trans}{space}.b16 {registers}, [%x];"));
            for (at, &half) in loaded.iter().enumerate() {
                let (lane, matrix, within) = (at / 8, at / 2 % 4, at % 2);
                let (group, thread) = (lane / 4, lane % 4);
                let (row, column) =
                    if trans.is_empty() { (group, 2 * thread + within) } else { (2 * thread + within, group) };
                let expected = if matrix < number { rows[matrix * 64 + row * 8 + column] } else { 0 };
                assert_eq!(half, expected, "x{number}{trans}: lane {lane}, matrix {matrix}");
            }
        }
    }
    // The address is in a register of the result.
    let (rows, loaded) = run_rows("mov.b32 %r0, %x; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%r0];");
    assert_eq!(loaded[..4], [rows[0], rows[1], rows[64], rows[65]]);
}

#[test]
fn matrices_of_eights_are_stored_as_they_are_loaded() {
    for trans in ["", ".trans"] {
        let (rows, stored) = run_rows(&format!(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%x]; bar.warp.sync -1;\n\
             stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%x], {{%r4, %r5, %r6, %r7}}; bar.warp.sync -1;\n\
             ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%x];"
        ));
        for (at, &half) in stored.iter().enumerate() {
            let (row, column) = (at / 8 % 8, at % 8);
            let from = if trans.is_empty() { (row, column) } else { (column, row) };
            assert_eq!(half, rows[at / 64 * 64 + from.0 * 8 + from.1], "{trans}: {at}");
        }
    }
}

#[test]
fn a_matrix_of_eights_is_transposed() {
    let (_, moved) = run_rows(
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%x]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;\n\
         ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r2}, [%x]; movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2;",
    );
    for lane in moved.chunks(8) {
        assert_eq!((lane[2], lane[3]), (lane[4], lane[5]));
        assert_eq!((lane[0], lane[1]), (lane[6], lane[7]));
    }
}

// Of C++ compiled by NVRTC: the API of mma.h, and tiles by inline PTX.

const TEXT: &str = include_str!("../kernels/matrices.ptx");

struct Machine {
    buffer: Buffer,
    module: ptx::Module,
}

impl Machine {
    fn new(answer: Answer) -> Self {
        let mut buffer = Buffer::new(1 << 20, answer);
        let module = load(&[TEXT], &mut buffer);
        Self { buffer, module }
    }

    fn put(&mut self, matrix: &[f64], element: Element) -> u64 {
        let bytes: Vec<u8> =
            matrix.iter().flat_map(|value| element.bits(*value).to_le_bytes()[..element.bytes()].to_vec()).collect();
        self.buffer.put(&bytes)
    }

    fn get(&mut self, address: u64, number: usize, element: Element) -> Vec<f64> {
        let bytes: Vec<u8> = self.buffer.get(address, number * element.bytes());
        unpack_rows(&bytes, element)
    }

    /// Runs a kernel of one warp on `A`, `B` and `C`, which becomes the result.
    fn run(&mut self, name: &str, [a, b, c]: [u64; 3]) {
        let shape = Shape([1, 1, 1], [32, 1, 1], 0);
        launch(&kernel(&self.module, name), &shape, &[Long(a), Long(b), Long(c)], &mut self.buffer)
            .expect("the kernel ends");
    }
}

fn unpack_rows(bytes: &[u8], element: Element) -> Vec<f64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    bytes.chunks(element.bytes()).map(|bytes| element.value(word(bytes))).collect()
}

fn transposed(matrix: &[f64], rows: usize) -> Vec<f64> {
    let columns = matrix.len() / rows;
    (0..matrix.len()).map(|at| matrix[at % rows * columns + at / rows]).collect()
}

#[test]
fn fragments_of_the_api_multiply() {
    use Element::{Bf16, F16, F32, F64, S8, S32, Tf32};
    // Name, extents, types of A and C, and which of A, B and C lie by columns.
    let forms: [(&str, [usize; 3], Element, Element, [bool; 3]); 6] = [
        ("wmma_16_16_16", [16, 16, 16], F16, F32, [false, true, false]),
        ("wmma_32_8_16", [32, 8, 16], F16, F16, [true, false, true]),
        ("wmma_8_32_16", [8, 32, 16], S8, S32, [false, true, false]),
        ("wmma_bf16", [16, 16, 16], Bf16, F32, [true, false, false]),
        ("wmma_tf32", [16, 16, 8], Tf32, F32, [false, true, true]),
        ("wmma_f64", [8, 8, 4], F64, F64, [false, false, true]),
    ];
    for answer in [Answer::Resident, Answer::Park, Answer::Remote] {
        for (name, shape, of, of_c, columns) in forms {
            let mut machine = Machine::new(answer);
            let [m, n, k] = shape;
            let (a, b, c) = (numbers(m * k, 5, of), numbers(k * n, 6, of), numbers(m * n, 7, of_c));
            let by = |matrix: &[f64], rows, columns| if columns { transposed(matrix, rows) } else { matrix.to_vec() };
            let addresses = [
                machine.put(&by(&a, m, columns[0]), of),
                machine.put(&by(&b, k, columns[1]), of),
                machine.put(&by(&c, m, columns[2]), of_c),
            ];
            machine.run(name, addresses);
            let rounded = |value: &f64| of_c.value(of_c.bits(*value));
            let expected: Vec<f64> = product(shape, &a, &b, &c).iter().map(rounded).collect();
            let found = machine.get(addresses[2], m * n, of_c);
            assert_eq!(by(&found, n, columns[2]), expected, "{name}");
        }
    }
}

/// Product of halves by tiles: `A` by rows, `B` by columns.
fn tiles(name: &str, block: u32, tile: [usize; 2]) {
    let [m, n, k] = [64, 48, 80];
    let mut machine = Machine::new(Answer::Park);
    let (a, b) = (numbers(m * k, 8, Element::F16), numbers(k * n, 9, Element::F16));
    let (x, y) = (machine.put(&a, Element::F16), machine.put(&transposed(&b, k), Element::F16));
    let z = machine.buffer.reserve((m * n * 4) as u64);
    let kernel = kernel(&machine.module, name);
    let grid = [(n / tile[1]) as u32, (m / tile[0]) as u32, 1];
    let arguments = [Long(x), Long(y), Long(z), Int(n as i32), Int(k as i32)];
    launch(&kernel, &Shape(grid, [block, 1, 1], 0), &arguments, &mut machine.buffer).expect("the kernel ends");
    assert_eq!(machine.get(z, m * n, Element::F32), product([m, n, k], &a, &b, &vec![0.0; m * n]), "{name}");
    assert!(machine.buffer.parks > 0);
}

#[test]
fn a_product_by_tiles_of_the_api() {
    tiles("matmul_wmma", 32, [16, 16]);
}

#[test]
fn a_product_by_tiles_in_shared_memory() {
    tiles("matmul_mma", 128, [32, 16]);
}
