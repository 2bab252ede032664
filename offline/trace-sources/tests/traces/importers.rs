//! Importers on small traces, valid and invalid.

use std::path::Path;

use crate::support::sample;
use trace::{
    BlockId, KernelId,
    OpKind::{self, Free, Malloc},
    OpStream,
    Role::{Activation, Gradient, Input, Other, Weight, Workspace},
    TensorId,
};
use trace_sources::import::{self, Trace, g10, kineto, minimalloc, singa};

fn kinds(stream: &OpStream) -> Vec<OpKind> {
    stream.ops().values().iter().map(|op| op.kind).collect()
}

#[test]
fn a_g10_graph_is_an_iteration_with_roles_from_the_kernels_names() {
    let set = g10::load(&sample("tiny.kernels.csv")).unwrap();
    let it = &set.iteration;
    assert_eq!(it.name(), "samples/tiny");
    let roles: Vec<_> = it.tensors().values().iter().map(|tensor| tensor.role).collect();
    assert_eq!(roles, [Input, Weight, Activation, Gradient, Workspace, Other], "no kernel updates tensor 5");
    assert_eq!(it.kernels()[KernelId(1)].duration_ns, 1_250_001);
    assert_eq!((it.workspace_bytes(KernelId(1)), it.duration_ns()), (16384, 3_750_251));
    assert_eq!(set.faulting[KernelId(1)], g10::Faulting { all_ns: 3_500_000, outputs_ns: 2_000_000 });
    assert_eq!(set.address_offset_bytes[TensorId(2)], 8192);
}

#[test]
fn published_g10_times_replace_those_of_a_graph() {
    let set = g10::load(&sample("tiny.kernels.csv")).unwrap();
    let path = sample("tiny.times.txt");
    let times = g10::load_times(&path).unwrap();
    assert_eq!(set.with_times(&path, &times).unwrap().duration_ns(), 1_875_125);
    let short = g10::parse_times(Path::new("short"), &b"0000 1.0 ms\n"[..]).unwrap();
    let error = set.with_times(Path::new("short"), &short).unwrap_err();
    assert_eq!(error.to_string(), "short: kernels: 1 here, 4 in samples/tiny");
}

#[test]
fn a_reused_address_of_a_singa_log_is_another_block() {
    let stream = singa::load_log(&sample("memory.log")).unwrap();
    let [a, b, c] = [0, 1, 2].map(BlockId);
    assert_eq!(kinds(&stream), [Malloc(a), Malloc(b), Free(b), Malloc(c), Free(c), Free(a)]);
    assert_eq!(stream.blocks()[b].address, stream.blocks()[c].address);
    assert_eq!(stream.live_bytes().values(), [4096, 4352, 4096, 4608, 4096, 0]);
}

#[test]
fn a_compressed_file_is_read_and_a_truncated_one_is_rejected() {
    let log = |name| singa::load_log(&sample(name));
    assert_eq!(log("memory.log.gz").unwrap(), log("memory.log").unwrap());
    let cut = log("cut.log.gz").unwrap_err().to_string();
    assert!(cut.contains("cut.log.gz:"), "{cut}");
    let absent = log("absent.log").unwrap_err().to_string();
    assert!(absent.ends_with("absent.log: No such file or directory (os error 2)"), "{absent}");
}

#[test]
fn the_time_of_singas_own_detector_is_cut_out() {
    let busy = singa::load_busy(&sample("detector.log")).unwrap();
    assert_eq!(busy.len(), 2);
    let times = |busy: &[singa::Busy]| -> Vec<_> {
        let stream = singa::load_ops(&sample("operations.txt"), busy).unwrap();
        stream.ops().values().iter().map(|op| op.time_ns).collect()
    };
    assert_eq!(times(&[]), [1000, 1010, 1500, 1600, 1700]);
    assert_eq!(times(&busy), [1000, 1010, 1200, 1250, 1300], "1600 lies within a span that begins at 1550");
}

#[test]
fn a_profile_is_the_stream_of_one_gpu_with_launches_joined_to_their_work() {
    let run = kineto::load(&sample("profile.json"), None).unwrap();
    assert_eq!(run.device, 0);
    let omitted = kineto::Omitted { other_devices: 1, cpu_memory: 1, not_launched: 1, ..Default::default() };
    assert_eq!(run.omitted, omitted);
    let stream = run.stream;
    let launch = stream.launches().values().first().unwrap();
    assert_eq!((launch.start_ns, launch.duration_ns, launch.stream), (Some(120_000), Some(4_000), 7));
    assert_eq!(stream.signatures()[launch.signature].grid, [24, 1, 1]);
    let times: Vec<_> = stream.ops().values().iter().map(|op| op.time_ns).collect();
    assert_eq!(times, [101_000, 105_750, 140_000, 150_000], "the time of a launch is the return of its call");
    assert_eq!(stream.live_bytes().values(), [10_240, 10_240, 9_216, 4_096], "as the profiler reports");
}

#[test]
fn a_trace_without_gpu_work_is_rejected() {
    let error = kineto::parse(Path::new("f"), &br#"{"traceEvents": []}"#[..], None).unwrap_err();
    assert_eq!(error.to_string(), "f: no work of a GPU");
}

#[test]
fn an_instance_of_minimalloc_is_one_round_of_a_circle() {
    let circle = minimalloc::load(&sample("blocks.csv")).unwrap();
    assert_eq!((circle.period, circle.spans.len(), circle.peak_bytes()), (21, 5, 12));
    let spaced = std::env::temp_dir().join(format!("uvmd-spaced-{}.csv", std::process::id()));
    std::fs::write(&spaced, "id, lower ,upper, size\nx,0,3,4\n").unwrap();
    assert!(matches!(import::load(&spaced), Ok(Trace::Circle(circle)) if circle.spans.len() == 1));
    std::fs::remove_file(&spaced).unwrap();
    let reordered = minimalloc::parse(Path::new(""), &b"size,id,upper,lower\n4,x,3,0\n"[..]).unwrap();
    assert_eq!((reordered.spans[0].bytes, reordered.spans[0].length), (4, 3));
}

#[test]
fn the_kind_of_a_file_is_detected_from_its_contents() {
    let kind = |name| match import::load(&sample(name)).unwrap() {
        Trace::Iteration(_) => "iteration",
        Trace::Ops(_) => "ops",
        Trace::Circle(_) => "circle",
    };
    assert_eq!(kind("tiny.kernels.csv"), "iteration");
    assert_eq!(kind("memory.log"), "ops");
    assert_eq!(kind("operations.txt"), "ops");
    assert_eq!(kind("profile.json"), "ops");
    assert_eq!(kind("blocks.csv"), "circle");
    assert_eq!(kind("iteration.json"), "iteration");
    assert_eq!(kind("stream.json"), "ops");
    let error = import::load(&sample("wrong.json")).unwrap_err().to_string();
    assert!(error.ends_with("wrong.json: kernel 0 refers to unknown tensor 3; number of tensors: 1"), "{error}");
    let error = import::load(&sample("detector.log")).unwrap_err().to_string();
    assert!(error.contains("detector.log:1: unknown kind of trace; known are: "), "{error}");
}

#[test]
fn an_error_names_file_line_and_reason() {
    let log = |text: &str| singa::parse_log(Path::new("a.log"), text.as_bytes()).unwrap_err().to_string();
    assert_eq!(log("MALLOC: 0x10 8 5\n\nFREE: 0x20 6\n"), "a.log:3: 0x20 is not allocated");
    assert_eq!(log("MALLOC: 0x10 8 5\nFREE: 0x10 4\n"), "a.log:2: time decreases from 5 ns to 4 ns");
    assert_eq!(log("MALLOC: 0x10 -8 5\n"), "a.log:1: invalid bytes \"-8\": expected a whole number");
    assert_eq!(log("MALLOC: 0x10 8\n"), "a.log:1: expected 3 fields, found 2");
    assert_eq!(log("HELLO\n"), "a.log:1: invalid operation \"HELLO\": expected MALLOC: or FREE:");

    let csv = |text: &str| minimalloc::parse(Path::new("b.csv"), text.as_bytes()).unwrap_err().to_string();
    assert_eq!(csv(""), "b.csv:1: no lines");
    assert_eq!(csv("id,lower,size\n"), "b.csv:1: no column \"upper\"");
    assert_eq!(csv("id,lower,upper,size,gaps\n"), "b.csv:1: unknown column \"gaps\"");
    assert_eq!(csv("id,lower,upper,size\n0,5,5,1\n"), "b.csv:2: block 0 ends at 5 and begins at 5");

    let profile = |text: &str| kineto::parse(Path::new("c.json"), text.as_bytes(), None).unwrap_err().to_string();
    let kernel = "[{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\",\n\"ts\": -1, \"dur\": 1, \"args\": {\"device\": 0, \"stream\": 1}}]";
    assert_eq!(profile(kernel), "c.json:2: invalid ts -1: expected a time in microseconds");
    assert_eq!(profile("{\n\"traceEvents\": [}"), "c.json:2: expected value");
}

#[test]
fn an_error_in_a_graph_names_the_invalid_file_and_line() {
    let tensors = std::fs::read_to_string(sample("tiny.tensors.csv")).unwrap();
    let kernels = std::fs::read_to_string(sample("tiny.kernels.csv")).unwrap();
    let wrong = |tensors: &str, kernels: &str| {
        let of = |tensors: &str, kernels: &str| {
            g10::parse((Path::new("t"), tensors.as_bytes()), (Path::new("k"), kernels.as_bytes()))
        };
        of(tensors, kernels).unwrap_err().to_string()
    };
    assert_eq!(
        wrong(&tensors, &kernels.replace(",1 3,1", ",1 9,1")),
        "k:5: kernel 3 refers to unknown tensor 9; number of tensors: 6"
    );
    assert_eq!(
        wrong(&tensors, &kernels.replace(",1 3,1", ",1 4,1")),
        "k:5: tensor 4 is a workspace and read by kernel 3"
    );
    assert_eq!(wrong(&tensors, &kernels.replace("2 4\n", "2\n")), "k:3: workspace 4 is not among the kernel's outputs");
    assert_eq!(wrong(&tensors, &kernels.replace("\n2,", "\n7,")), "k:4: kernel 7 out of order: expected 2");
    assert_eq!(
        wrong(&tensors, &kernels.replace("1.250001", "1.2e3")),
        "k:3: invalid ideal_ms \"1.2e3\": expected a time in milliseconds"
    );
    assert_eq!(wrong(&tensors.replace("12288", "0"), &kernels), "t:4: tensor 2 holds no bytes");
    assert_eq!(
        wrong("tensor_id\n", &kernels),
        "t:1: invalid header \"tensor_id\": expected tensor_id,is_global,size_bytes,address_offset"
    );
    let error = g10::load(&sample("blocks.csv")).unwrap_err().to_string();
    assert!(error.ends_with("does not end in .kernels.csv, so the file of its tensors is unknown"), "{error}");
}
