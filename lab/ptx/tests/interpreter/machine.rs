//! Execution: divergence, barriers, shuffles of partial warps, parking, linking, errors.

use crate::common::Argument::Long;
use crate::common::{Answer, BASE, Buffer, Shape, kernel, launch, load};
use proptest::prelude::*;
use ptx::{KernelError, Launch, LinkError, Ptx};
use std::sync::atomic::{AtomicBool, Ordering};

const HEADER: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";

/// Kernel with `%t`, the thread's number in its block, and `%o`, the address of its result.
fn text(body: &str) -> String {
    format!(
        "{HEADER}.entry k(.param .u64 out) {{ .reg .b32 %t; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .b64 %o;\n\
         .reg .pred %p<9>; .reg .b64 %s; .reg .b32 %n; .reg .b32 %c; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x;\n\
         mov.u32 %n, %ntid.x; mad.lo.u32 %r19, %c, %n, %t; ld.param.u64 %s, [out]; mad.wide.u32 %o, %r19, 4, %s;\n\
         {body}\n}}\n"
    )
}

fn run_with(text: &str, blocks: u32, threads: u32, answer: Answer) -> Result<Vec<u32>, KernelError> {
    let mut buffer = Buffer::new(1 << 20, answer);
    let module = load(&[text], &mut buffer);
    let out = buffer.put(&vec![7u32; (blocks * threads) as usize]);
    let shape = Shape([blocks, 1, 1], [threads, 1, 1], 0);
    launch(&kernel(&module, "k"), &shape, &[Long(out)], &mut buffer)?;
    Ok(buffer.get(out, (blocks * threads) as usize))
}

fn run(body: &str, threads: u32) -> Vec<u32> {
    run_with(&text(body), 1, threads, Answer::Resident).expect("the kernel ends")
}

#[test]
fn copies_to_shared_memory_end_with_zeros() {
    // Thread t takes 4 (t mod 5) of the 16 bytes at its place; one that takes none has no address.
    let text = |copy: &str| {
        format!(
            "{HEADER}.entry k(.param .u64 out) {{ .shared .align 16 .b8 copies[512]; .reg .b32 %t, %r<9>; .reg .b64 %d<9>;
             .reg .pred %p; mov.u32 %t, %tid.x; ld.param.u64 %d0, [out]; mad.wide.u32 %d0, %t, 16, %d0;
             mul.lo.u32 %r0, %t, 16; mov.u32 %r1, copies; add.u32 %r0, %r0, %r1; mad.lo.u32 %r4, %t, 4, 1;
             mov.u32 %r5, 7; st.global.v4.u32 [%d0], {{%r4, %r5, %r5, %r4}}; st.shared.v4.u32 [%r0], {{%r5, %r5, %r5, %r5}};
             rem.u32 %r2, %t, 5; mul.lo.u32 %r2, %r2, 4; setp.eq.u32 %p, %r2, 0; mov.u64 %d1, %d0; @%p mov.u64 %d1, 0;
             {copy} cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all;
             ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r0]; st.global.v4.u32 [%d0], {{%r4, %r5, %r6, %r7}}; ret; }}\n"
        )
    };
    let results = |text: &str| {
        let mut buffer = Buffer::new(1 << 16, Answer::Park);
        let module = load(&[text], &mut buffer);
        let out = buffer.reserve(512);
        launch(&kernel(&module, "k"), &Shape([1, 1, 1], [32, 1, 1], 0), &[Long(out)], &mut buffer).expect("it ends");
        buffer.get::<u32>(out, 128)
    };
    let found = results(&text("cp.async.cg.shared.global.L2::128B [%r0], [%d1], 16, %r2;"));
    for (at, word) in found.iter().enumerate() {
        let (thread, word_of) = (at as u32 / 4, at as u32 % 4);
        let own = if word_of % 3 == 0 { 4 * thread + 1 } else { 7 };
        assert_eq!(*word, if word_of < thread % 5 { own } else { 0 }, "thread {thread}, word {word_of}");
    }
    for (bytes, name) in [(4, "ca"), (8, "ca"), (16, "cg")] {
        let found = results(&text(&format!("cp.async.{name}.shared.global [%r0], [%d0], {bytes};")));
        for (at, word) in found.iter().enumerate() {
            let (thread, word_of) = (at as u32 / 4, at as u32 % 4);
            let copied = if word_of % 3 == 0 { 4 * thread + 1 } else { 7 };
            assert_eq!(*word, if word_of * 4 < bytes { copied } else { 7 }, "{bytes} bytes");
        }
    }
}

#[test]
fn a_warp_that_spins_lets_a_parked_one_go_on() {
    // The first warp waits for a flag, which the second sets after it has read memory that is not resident.
    let body = "setp.ge.u32 %p0, %t, 32; @%p0 bra SETTER;
        WAIT: ld.volatile.global.u32 %r0, [%s+65544]; setp.ne.u32 %p1, %r0, 9; @%p1 bra WAIT; bra.uni END;
        SETTER: add.u64 %d0, %s, 65536; ld.global.u32 %r1, [%d0]; add.u32 %r1, %r1, 9; st.global.u32 [%s+65544], %r1;
        END: st.global.u32 [%o], %t; ret;";
    let results = run_with(&text(body), 1, 64, Answer::Park).expect("the kernel ends");
    assert_eq!(results[..32], (0..32).collect::<Vec<u32>>());
}

#[test]
fn nested_loops_diverge_and_meet() {
    // Sum over i < t of (i mod 5) iterations, with an exit of every seventh thread in the loop.
    let body = "mov.u32 %r0, 0; mov.u32 %r1, 0;
        OUTER: setp.ge.u32 %p0, %r1, %t; @%p0 bra END;
        rem.u32 %r2, %r1, 5;
        INNER: setp.eq.u32 %p1, %r2, 0; @%p1 bra NEXT; add.u32 %r0, %r0, 1; sub.u32 %r2, %r2, 1; bra INNER;
        NEXT: add.u32 %r1, %r1, 1; rem.u32 %r3, %t, 7; setp.eq.u32 %p2, %r3, 6; setp.gt.and.u32 %p2, %r1, 3, %p2; @%p2 exit; bra.uni OUTER;
        END: activemask.b32 %r4; st.global.u32 [%o], %r0; ret;";
    let expected: Vec<u32> = (0..70).map(|t| if t % 7 == 6 { 7 } else { (0..t).map(|i| i % 5).sum() }).collect();
    assert_eq!(run(body, 70), expected);
}

#[test]
fn diverged_lanes_meet_again() {
    let body = "and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0; @%p0 bra EVEN; mov.u32 %r1, 5; bra JOIN;
        EVEN: mov.u32 %r1, 6; JOIN: activemask.b32 %r2; st.global.u32 [%o], %r2; ret;";
    assert_eq!(run(body, 40), [vec![u32::MAX; 32], vec![255; 8]].concat());
}

#[test]
fn barriers_count_threads() {
    // Reversal by shared memory, where the threads of the last warp exit before the second barrier.
    let body = ".shared .align 4 .b32 s[96]; shl.b32 %r0, %t, 2; mov.u32 %r1, s; add.u32 %r1, %r1, %r0; st.shared.u32 [%r1], %t;
        bar.sync 0; sub.u32 %r2, 95, %t; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; ld.shared.u32 %r4, [%r2];
        st.global.u32 [%o], %r4; setp.ge.u32 %p0, %t, 64; @%p0 exit; bar.sync 0; st.shared.u32 [%r1], %r4; bar.sync 0;
        sub.u32 %r5, 63, %t; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; st.global.u32 [%o], %r6; ret;";
    let expected: Vec<u32> = (0..96).map(|t| if t >= 64 { 95 - t } else { 95 - (63 - t) }).collect();
    assert_eq!(run(body, 96), expected);
}

#[test]
fn producers_arrive_and_consumers_wait() {
    let body = ".shared .align 4 .b32 s[64]; and.b32 %r0, %t, 31; shl.b32 %r0, %r0, 2; mov.u32 %r1, s; add.u32 %r0, %r0, %r1;
        setp.ge.u32 %p0, %t, 32; @%p0 bra PRODUCE; bar.sync 3, 64; ld.shared.u32 %r2, [%r0]; st.global.u32 [%o], %r2; ret;
        PRODUCE: mul.lo.u32 %r2, %t, 3; st.shared.u32 [%r0], %r2; bar.arrive 3, 64; st.global.u32 [%o], 1; ret;";
    let expected: Vec<u32> = (0..64).map(|t| if t < 32 { (t + 32) * 3 } else { 1 }).collect();
    assert_eq!(run(body, 64), expected);
}

#[test]
fn barriers_reduce() {
    let body = "setp.lt.u32 %p0, %t, 41; bar.red.popc.u32 %r0, 1, %p0; bar.red.and.pred %p1, 1, %p0; bar.red.or.pred %p2, 1, !%p0;
        selp.u32 %r1, 1000, 0, %p1; selp.u32 %r2, 2000, 0, %p2; add.u32 %r0, %r0, %r1; add.u32 %r0, %r0, %r2; st.global.u32 [%o], %r0; ret;";
    assert_eq!(run(body, 70), vec![2041; 70]);
}

#[test]
fn shuffles_of_partial_warps() {
    // Two halves with their own masks, which come to the same shuffle at different times.
    let body = "and.b32 %r0, %t, 3; setp.eq.u32 %p0, %r0, 0; selp.b32 %r1, 0x11111111, 0xeeeeeeee, %p0;
        @%p0 bra SLOW; bra GO; SLOW: mul.lo.u32 %r5, %t, 3; GO: shfl.sync.down.b32 %r2|%p1, %t, 4, 31, %r1;
        selp.u32 %r3, 100, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%o], %r2; ret;";
    let expected: Vec<u32> = (0..32).map(|t| if t + 4 < 32 { t + 104 } else { t }).collect();
    assert_eq!(run(body, 32), expected);
    // Lanes that exited are not waited for.
    let body = "setp.ge.u32 %p0, %t, 20; @%p0 exit; shfl.sync.bfly.b32 %r2, %t, 1, 31, 0xffffffff;
        vote.sync.ballot.b32 %r3, %p0, 0xffffffff; add.u32 %r2, %r2, %r3; st.global.u32 [%o], %r2; ret;";
    let expected: Vec<u32> = (0..32).map(|t| if t < 20 { t ^ 1 } else { 7 }).collect();
    assert_eq!(run(body, 32), expected);
}

#[test]
fn segments_of_shuffles() {
    // Width 8: clamp 7 with the segment mask 0x18.
    let body = "shfl.sync.idx.b32 %r0, %t, 3, 0x181f, -1; shfl.sync.up.b32 %r1, %t, 2, 0x1800, -1;
        mad.lo.u32 %r0, %r0, 100, %r1; st.global.u32 [%o], %r0; ret;";
    let expected: Vec<u32> = (0..32).map(|t| (t / 8 * 8 + 3) * 100 + if t % 8 >= 2 { t - 2 } else { t }).collect();
    assert_eq!(run(body, 32), expected);
}

#[test]
fn matches_and_reductions() {
    let body = "and.b32 %r0, %t, 1; match.any.sync.b32 %r1, %r0, -1; redux.sync.max.s32 %r2, %t, -1; match.all.sync.b32 %r3|%p0, %r0, -1;
        selp.u32 %r4, 1, 0, %p0; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; st.global.u32 [%o], %r1; ret;";
    let expected: Vec<u32> = (0..32).map(|t| if t & 1 == 0 { 0x5555_5555 + 31 } else { 0xaaaa_aaaau32 + 31 }).collect();
    assert_eq!(run(body, 32), expected);
}

#[test]
fn indexed_branches() {
    let body = "rem.u32 %r0, %t, 3; L: .branchtargets A, B, C; brx.idx %r0, L; A: mov.u32 %r1, 10; bra E; B: mov.u32 %r1, 20; bra E;
        C: mov.u32 %r1, 30; E: st.global.u32 [%o], %r1; ret;";
    assert_eq!(run(body, 33), (0..33).map(|t| t % 3 * 10 + 10).collect::<Vec<_>>());
}

#[test]
fn a_lane_that_spins_lets_others_go_on() {
    let body = ".shared .align 4 .b32 lock; .shared .align 4 .b32 sum; setp.ne.u32 %p0, %t, 0; @%p0 bra READY;
        st.shared.u32 [lock], 0; st.shared.u32 [sum], 0; READY: bar.sync 0;
        SPIN: atom.shared.cas.b32 %r0, [lock], 0, 1; setp.ne.u32 %p1, %r0, 0; @%p1 bra SPIN;
        ld.shared.u32 %r1, [sum]; add.u32 %r1, %r1, %t; st.shared.u32 [sum], %r1; st.shared.u32 [lock], 0;
        bar.sync 0; ld.shared.u32 %r2, [sum]; st.global.u32 [%o], %r2; ret;";
    assert_eq!(run(body, 64), vec![63 * 32; 64]);
}

#[test]
fn parked_accesses_are_performed_once() {
    // Each thread adds to counters in two far granules by one instruction, then stores.
    let body = "and.b32 %r0, %r19, 1; mul.wide.u32 %d0, %r0, 0x40000; add.s64 %d0, %d0, %s; add.s64 %d0, %d0, 0x20000;
        atom.global.add.u32 %r1, [%d0], 1; st.global.u32 [%o], %r19; ld.global.u32 %r2, [%o]; add.u32 %r2, %r2, 1;
        red.global.add.u32 [%d0], 1; st.global.u32 [%o], %r2; ret;";
    for answer in [Answer::Park, Answer::Remote, Answer::Go] {
        let mut buffer = Buffer::new(1 << 20, answer);
        let module = load(&[&text(body)], &mut buffer);
        let out = buffer.reserve(0xc0000);
        let counts =
            launch(&kernel(&module, "k"), &Shape([6, 1, 1], [96, 1, 1], 0), &[Long(out)], &mut buffer).expect("ends");
        assert_eq!(buffer.get::<u32>(out, 576), (1..=576).collect::<Vec<_>>());
        for counter in [out + 0x20000, out + 0x60000] {
            assert_eq!(buffer.get::<u32>(counter, 1), [576]);
        }
        assert_eq!((counts.loads, counts.stores, counts.atomics), (576, 1152, 1152));
    }
}

#[test]
fn functions_with_parameters_by_value() {
    let module = format!(
        "{HEADER}.func (.param .b32 r) sum(.param .align 8 .b8 pair[8], .param .b32 x);\n{}\
         .func (.param .b32 r) sum(.param .align 8 .b8 pair[8], .param .b32 x) {{ .reg .b32 %a<4>; ld.param.v2.b32 {{%a0, %a1}}, [pair];\n\
         ld.param.b32 %a2, [x]; mad.lo.u32 %a0, %a0, %a1, %a2; st.param.b32 [r+0], %a0; ret; }}",
        &text("and.b32 %r5, %t, 2; setp.ne.u32 %p0, %r5, 0;
         @%p0 bra SKIP; { .param .align 8 .b8 a[8]; st.param.b32 [a+0], %t; st.param.b32 [a+4], 10; .param .b32 b; st.param.b32 [b], 3;
         .param .b32 c; call.uni (c), sum, (a, b); ld.param.b32 %r0, [c]; } bra DONE; SKIP: mov.u32 %r0, 1; DONE: st.global.u32 [%o], %r0; ret;")
        [HEADER.len()..]
    );
    let results = run_with(&module, 1, 40, Answer::Resident).expect("the kernel ends");
    assert_eq!(results, (0..40).map(|t| if t & 2 == 0 { t * 10 + 3 } else { 1 }).collect::<Vec<_>>());
}

#[test]
fn texts_link() {
    let main = format!(
        "{HEADER}.extern .global .align 4 .b32 v; .weak .global .align 4 .b32 w = 5;\n{}",
        &text("ld.global.u32 %r0, [v]; ld.global.u32 %r1, [w]; add.u32 %r0, %r0, %r1; st.global.u32 [%o], %r0; ret;")
            [HEADER.len()..]
    );
    let other = format!("{HEADER}.visible .global .align 4 .b32 v = 40; .visible .global .align 4 .b32 w = 2;");
    let mut buffer = Buffer::new(1 << 16, Answer::Resident);
    let module = load(&[&main, &other], &mut buffer);
    let out = buffer.reserve(4);
    launch(&kernel(&module, "k"), &Shape([1, 1, 1], [1, 1, 1], 0), &[Long(out)], &mut buffer).expect("ends");
    assert_eq!(buffer.get::<u32>(out, 1), [42]);
    let parse = |text: &str| Ptx::parse(text).expect("parses");
    assert_eq!(ptx::link(vec![parse(&main)]).err(), Some(LinkError::Undefined("v".into())));
    assert_eq!(ptx::link(vec![parse(&other), parse(&other)]).err(), Some(LinkError::Duplicate("v".into())));
}

#[test]
fn initializers() {
    let text = format!(
        "{HEADER}.visible .global .align 8 .b8 bytes[6] = {{1, 2, 0xff}}; .visible .global .align 8 .u64 table[3] = {{bytes+2, 9}};\n\
         .visible .const .align 4 .f32 f[2] = {{0f3F800000, 2.5}}; .visible .global .align 4 .u16 m[2][3] = {{{{1}}, {{2, 3}}}};\n\
         .visible .global .align 8 .b8 p[8] = {{0xFF(bytes), 0xFF00(bytes)}};"
    );
    let mut buffer = Buffer::new(1 << 16, Answer::Resident);
    let module = load(&[&text], &mut buffer);
    let at = |name: &str| module.variable(name).expect("is there").1;
    assert_eq!(buffer.get::<u8>(at("bytes"), 6), [1, 2, 255, 0, 0, 0]);
    assert_eq!(buffer.get::<u64>(at("table"), 3), [at("bytes") + 2, 9, 0]);
    assert_eq!(buffer.get::<f32>(at("f"), 2), [1.0, 2.5]);
    assert_eq!(buffer.get::<u16>(at("m"), 6), [1, 0, 0, 2, 3, 0]);
    assert_eq!(buffer.get::<u8>(at("p"), 2), at("bytes").to_le_bytes()[..2]);
}

#[test]
fn errors_end_the_kernel() {
    let fails = |body: &str, threads| run_with(&text(body), 1, threads, Answer::Resident).expect_err("fails");
    assert!(matches!(fails("st.global.u32 [%s+2], %t; ret;", 1), KernelError::Misaligned { bytes: 4, .. }));
    assert!(
        matches!(fails("mov.u64 %d0, 0x1000; ld.global.u32 %r0, [%d0]; ret;", 1), KernelError::Memory(fault) if fault.address == 0x1000)
    );
    assert!(matches!(fails("ld.shared.u32 %r0, [%r19+64]; ret;", 1), KernelError::OutOfSpace { space: "shared", .. }));
    assert!(matches!(fails("trap;", 1), KernelError::Trap { line: 7 }));
    assert!(matches!(
        fails("setp.eq.u32 %p0, %t, 0; @%p0 bra W; bar.sync 1, 96; W: bar.sync 1, 128; ret;", 64),
        KernelError::Deadlock { .. }
    ));
    assert!(matches!(
        fails("setp.eq.u32 %p0, %t, 0; @%p0 bra W; shfl.sync.idx.b32 %r0, %t, 0, 31, -1; W: bar.sync 0; ret;", 32),
        KernelError::Deadlock { .. }
    ));
    assert!(matches!(fails("ret;", 1025), KernelError::Refused { .. }));
}

#[test]
fn unknown_instructions_are_named() {
    for instruction in [
        "wgmma.mma_async.sync.aligned.m64n8k16 %r0;",
        "add.rn.weird.f32 %r0, %r1, %r2;",
        "ld.global.v3.u32 {%r0, %r1}, [%o];",
    ] {
        let linked = Ptx::parse(&text(instruction)).and_then(|text| {
            ptx::link(vec![text]).expect("links").place(&[]).map_err(|error| match error {
                LinkError::Ptx(error) => error,
                other => panic!("{other}"),
            })
        });
        let error = linked.expect_err("unknown");
        assert!(error.reason.contains(instruction.split(' ').next().unwrap_or_default()), "{error}");
        assert_eq!(error.line, 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Text with a few characters changed gives a module or an error, never a panic.
    #[test]
    fn bad_text_is_an_error(edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~]{0,3}"), 1..5)) {
        let mut text = include_str!("../kernels/kernels.ptx").to_owned();
        text.truncate(20_000);
        for (at, insert) in edits {
            let at = at.index(text.len());
            text.replace_range(at..(at + 2).min(text.len()), &insert);
        }
        if let Ok(parsed) = Ptx::parse(&text) && let Ok(linked) = ptx::link(vec![parsed]) {
            let addresses = vec![BASE; linked.variables().len()];
            let _module = linked.place(&addresses);
        }
    }
}

#[test]
fn elements_of_arrays() {
    // As tinygrad's renderer has them, and scaled by the size of the element.
    let body = ".local .align 16 .b8 local0[32]; .shared .align 4 .b32 s[8]; .reg .b64 %x; mov.u64 %x, local0[0]; add.u64 %x, %x, 8;
        st.local.u32 [%x], 5; ld.local.u32 %r1, [local0+8]; mov.u32 %r2, s[3]; mov.u32 %r3, s[0]; sub.u32 %r2, %r2, %r3;
        st.shared.u32 [s+12], 70; ld.shared.u32 %r3, s[3]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1; ret;";
    assert_eq!(run(body, 3), vec![5 + 12 + 70; 3]);
    let error = Ptx::parse(&text("mov.u32 %r1, %r2[0];")).expect_err("a register is no array");
    assert!(error.reason.contains("%r2 is not an array"), "{error}");
}

#[test]
fn spaces_of_addresses() {
    let body = ".local .align 8 .b32 l[2]; .shared .align 8 .b32 s[2]; .reg .b64 %a<5>; cvta.local.u64 %a1, l; cvta.shared.u64 %a2, s;
        mov.u64 %a3, out; cvta.param.u64 %a3, %a3; mov.u64 %a4, %o; mov.u32 %r0, 0; mov.u32 %r5, 1;\n"
        .to_owned()
        + &["%a1", "%a2", "%a3", "%a4"].map(|address| {
            ["local", "shared", "param", "global", "const"]
                .map(|space| format!("isspacep.{space} %p1, {address}; selp.u32 %r1, %r5, 0, %p1; or.b32 %r0, %r0, %r1; shl.b32 %r5, %r5, 1;\n"))
                .concat()
        })
        .concat()
        + "st.global.u32 [%o], %r0; ret;";
    // Constants are in global memory here.
    assert_eq!(run(&body, 2), vec![1 | 1 << 6 | 1 << 12 | 1 << 18 | 1 << 19; 2]);
}

#[test]
fn sleeping_lanes_let_others_go_on() {
    // Thread 0 of the second warp waits for the last thread of the first, in its sleep.
    let body = ".shared .align 4 .b32 s; setp.eq.u32 %p0, %t, 63; @%p0 st.volatile.shared.u32 [s], 9; setp.ne.u32 %p1, %t, 0; @%p1 bra END;
        AGAIN: nanosleep.u32 100; ld.volatile.shared.u32 %r1, [s]; setp.eq.u32 %p2, %r1, 0; @%p2 bra AGAIN;
        st.global.u32 [%o], %r1; END: ret;";
    assert_eq!(run(body, 64)[0], 9);
}

#[test]
fn failed_assertions_end_the_kernel() {
    let text = format!(
        "{HEADER}.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .global .align 1 .b8 message[6] = {{110, 32, 62, 32, 48, 0}}; .global .align 1 .b8 file[5] = {{97, 46, 99, 117, 0}};\n\
         .global .align 1 .b8 function[2] = {{102, 0}};\n\
         .entry k(.param .u64 out) {{ .reg .b32 %t; .reg .pred %p; .reg .b64 %d; .reg .b64 %o; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 40;\n\
         ld.param.u64 %o, [out]; st.global.u32 [%o], %t; @%p bra END;\n\
         {{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %d, message; st.param.b64 [a], %d;\n\
         mov.u64 %d, file; cvta.global.u64 %d, %d; st.param.b64 [b], %d; st.param.b32 [c], 17; mov.u64 %d, function;\n\
         st.param.b64 [d], %d; st.param.b64 [e], 1; call.uni __assertfail, (a, b, c, d, e); }}\n\
         END: ret; }}"
    );
    assert_eq!(run_with(&text, 1, 40, Answer::Resident).expect("nothing fails").len(), 40);
    for answer in [Answer::Resident, Answer::Park, Answer::Remote] {
        let error = run_with(&text, 1, 41, answer).expect_err("a thread fails");
        assert_eq!(error, KernelError::Assertion { text: "n > 0, a.cu:17, f".to_owned() });
    }
}

#[test]
fn atomics_of_many_lanes_are_performed_one_by_one() {
    // Each thread gets another old value; the block's sum is its number of threads.
    let body = ".shared .align 4 .b32 s; atom.shared.add.u32 %r1, [s], 1; bar.sync 0; ld.shared.u32 %r2, [s];
        mad.lo.u32 %r1, %r2, 1000, %r1; st.global.u32 [%o], %r1; ret;";
    let mut results = run(body, 70);
    results.sort_unstable();
    assert_eq!(results, (0..70).map(|old| 70_000 + old).collect::<Vec<_>>());
    for answer in [Answer::Resident, Answer::Park, Answer::Remote, Answer::Go] {
        let body = "sub.u64 %d1, %o, %s; sub.u64 %o, %o, %d1; red.global.add.u32 [%o+4], %t; atom.global.max.u32 %r1, [%o+8], %r19; ret;";
        let results = run_with(&text(body), 3, 70, answer).expect("the kernel ends");
        assert_eq!(results[..3], [7, 7 + 3 * (69 * 70 / 2), 209]);
    }
}

#[test]
fn cancelled_kernels_end() {
    let mut buffer = Buffer::new(1 << 12, Answer::Resident);
    let module = load(&[&text("AGAIN: st.global.u32 [%o], 1; bra AGAIN;")], &mut buffer);
    let out = buffer.put(&[0u32; 64]);
    let kernel = kernel(&module, "k");
    let arguments = out.to_le_bytes().to_vec();
    let launch = Launch { grid: [1, 1, 1], block: [64, 1, 1], arguments, resident_blocks: 1, ..Launch::default() };
    let cancel = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| cancel.store(true, Ordering::Relaxed));
        kernel.run_until(&launch, &mut buffer, &cancel)
    });
    assert_eq!(result, Err(KernelError::Cancelled));
}
