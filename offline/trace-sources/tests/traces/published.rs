//! Importers on published traces, if present, compared with known figures.
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp, reason = "published figures")]

use crate::support::g10;
use published::G10_SETS;
use trace::{Alignment, Circle, KernelId, OpKind, OpStream};
use trace_sources::import::{g10 as import_g10, kineto, minimalloc, singa};

const GIB: f64 = (1_u64 << 30) as f64;

fn count(stream: &OpStream, kind: fn(&OpKind) -> bool) -> usize {
    stream.ops().values().iter().filter(|op| kind(&op.kind)).count()
}

#[test]
fn g10_graphs_have_their_known_sizes_and_peaks() {
    // Tensors, kernels, persistent GiB, other GiB, peak of others in GiB, GiB of the largest
    // kernel, cycles at 1.2 GHz.
    let known = [
        (1463, 1369, 16.60, 131.44, 31.16, 2.25, 8_742_558_777),
        (1563, 1489, 17.00, 167.44, 40.40, 1.91, 4_459_141_336),
        (2171, 929, 0.09, 787.70, 133.83, 31.65, 71_633_241_480),
        (3330, 1299, 0.23, 1085.95, 273.23, 15.31, 135_107_260_924),
        (4341, 2319, 1.30, 1709.82, 342.77, 24.50, 159_444_570_406_u64),
    ];
    let Some(data) = published::data() else { return };
    for (set, (tensors, kernels, persistent, others, peak, largest, cycles)) in G10_SETS.into_iter().zip(known) {
        let it = g10(&data, set).iteration;
        assert_eq!((it.tensors().len(), it.kernels().len()), (tensors, kernels), "{set:?}");
        let gib = |bytes: u64| (bytes as f64 / GIB * 100.0).round() / 100.0;
        assert_eq!(gib(it.persistent_bytes()), persistent, "{set:?}");
        assert_eq!(gib(it.total_bytes() - it.persistent_bytes()), others, "{set:?}");
        assert_eq!(gib(it.peak().bytes - it.persistent_bytes()), peak, "{set:?}");
        let largest_kernel = it.kernels().ids().map(|kernel| it.working_set_bytes(kernel)).max().unwrap();
        assert_eq!(gib(largest_kernel), largest, "{set:?}");
        // The artifact's program counts in floats and truncates each kernel.
        let count = |ns: u64| (ns as f64 / 1e6 * 1.2e9 / 1000.0) as u64;
        let own: u64 = it.kernels().values().iter().map(|kernel| count(kernel.duration_ns)).sum();
        assert_eq!(own, cycles, "{set:?}");
        let circle = Circle::of_iteration(&it, Alignment::NONE).unwrap();
        assert_eq!(circle.peak_bytes() + circle.persistent_bytes, it.peak().bytes, "{set:?}");
    }
}

#[test]
fn published_g10_times_and_workspaces_equal_those_of_the_graphs() {
    let Some(data) = published::data() else { return };
    for name in G10_SETS {
        let (set, (model, batch)) = (g10(&data, name), name.split_once('/').unwrap());
        let column = |end| data.join(format!("g10/raw/results/{model}/cudnn{batch}{end}.txt"));
        let times = import_g10::load_times(&column("")).unwrap();
        assert_eq!(set.with_times(&column(""), &times).unwrap(), set.iteration);
        let (all, outputs) = (import_g10::load_times(&column("PF")), import_g10::load_times(&column("InputPF")));
        let own = set.faulting.values();
        assert_eq!(all.unwrap().values(), own.iter().map(|kernel| kernel.all_ns).collect::<Vec<_>>());
        assert_eq!(outputs.unwrap().values(), own.iter().map(|kernel| kernel.outputs_ns).collect::<Vec<_>>());
        let workspaces = import_g10::load_workspaces(&column("Workspace")).unwrap();
        for (kernel, &bytes) in workspaces.iter() {
            // Tensors of a graph have sizes of whole pages.
            let of_graph = set.iteration.workspace_bytes(kernel);
            assert_eq!(of_graph, bytes.next_multiple_of(4096), "{name} {kernel}");
        }
    }
}

#[test]
fn a_kernel_of_resnet152_has_its_roles() {
    let Some(data) = published::data() else { return };
    let it = g10(&data, "ResNet152/1280").iteration;
    let bytes = |role| {
        it.tensors().values().iter().filter(|tensor| tensor.role == role).map(|tensor| tensor.bytes).sum::<u64>()
    };
    // 60.2 million parameters of 4 bytes; the size of each tensor is in whole pages.
    let weights = bytes(trace::Role::Weight) as f64 / 4e6;
    assert!((60.1..60.6).contains(&weights), "{weights} million");
    assert_eq!(it.kernels()[KernelId(0)].name, "LoadData_A0");
}

#[test]
fn singa_logs_free_what_they_allocate() {
    let Some(data) = published::data() else { return };
    let singa = data.join("singa");
    let known = [
        ("imagenet-vgg-batch-16", 10_455),
        ("cifar-100-vgg-batch-128", 10_455),
        ("imagenet-resnet-batch-16", 13_021),
        ("imagenet-googlenet-batch-64", 9_269),
    ];
    for (name, mallocs) in known {
        let stream = singa::load_log(&singa.join(format!("{name}.mem-info.log.gz"))).unwrap();
        let card = singa::load_card(&singa.join(format!("{name}.cuda-memory.log.gz"))).unwrap();
        let own = count(&stream, |kind| matches!(kind, OpKind::Malloc(_)));
        eprintln!("{name}: {own} mallocs, {} ops, {} readings", stream.ops().len(), card.len());
        assert_eq!(card.len(), stream.ops().len(), "{name}");
        assert_eq!(own, mallocs, "{name}");
    }
}

#[test]
fn the_op_trace_of_vgg_has_its_known_number_of_ops() {
    let Some(data) = published::data() else { return };
    let singa = data.join("singa");
    let busy = singa::load_busy(&singa.join("cifar10-vgg.swap-overhead.log.gz")).unwrap();
    let path = singa.join("cifar10-vgg.vec_block_full.csv.gz");
    let stream = singa::load_ops(&path, &busy).unwrap();
    // A write is logged before each free, and omitted.
    assert_eq!(stream.ops().len(), 57_759 - 10_455);
    assert_eq!(count(&stream, |kind| matches!(kind, OpKind::Malloc(_))), 10_455);
    assert_eq!(count(&stream, |kind| matches!(kind, OpKind::Free(_))), 10_455);
    let span = |stream: &OpStream| {
        let times = stream.ops().values();
        times.last().unwrap().time_ns - times.first().unwrap().time_ns
    };
    let uncut = span(&singa::load_ops(&path, &[]).unwrap());
    let cut: u64 = busy.iter().map(|busy| busy.end_ns - busy.begin_ns).sum();
    eprintln!("{} spans, {cut} ns of {uncut} ns are of the detector", busy.len());
    assert_eq!(span(&stream), uncut - cut);
}

#[test]
fn profiles_have_their_known_launches_and_allocations() {
    let Some(data) = published::data() else { return };
    // Kernels, mallocs, the profiler's own peak in MiB, and the median time from the return of a
    // launch to its start in ms.
    let known = [
        ("df_index_resolver", 19_370, 13_385, 6322, 0.002),
        ("ns_resolution_rank0", 4_350, 0, 0, 76.0),
        ("trace_diff_control", 8_568, 0, 0, 0.59),
    ];
    for (name, kernels, mallocs, peak_mib, lead_ms) in known {
        let run = kineto::load(&data.join(format!("kineto/{name}.json.gz")), None).unwrap();
        let stream = &run.stream;
        let copies = |name: &str| name.starts_with("Memcpy") || name.starts_with("Memset");
        let mut leads = Vec::new();
        for op in stream.ops().values() {
            let OpKind::Launch(launch) = op.kind else { continue };
            let launch = &stream.launches()[launch];
            if !copies(&stream.signatures()[launch.signature].name) {
                leads.push(launch.start_ns.unwrap().saturating_sub(op.time_ns));
            }
        }
        leads.sort_unstable();
        let median_ms = leads[leads.len() / 2] as f64 / 1e6;
        let own = count(stream, |kind| matches!(kind, OpKind::Malloc(_)));
        eprintln!(
            "{name}: device {}, {} kernels, {own} mallocs, median lead {median_ms} ms, {:?}",
            run.device,
            leads.len(),
            run.omitted
        );
        assert_eq!((leads.len(), own), (kernels, mallocs), "{name}");
        assert_eq!(stream.live_bytes().values().iter().max().unwrap() >> 20, peak_mib, "{name}");
        assert!((median_ms / lead_ms - 1.0).abs() < 0.1 || (median_ms - lead_ms).abs() < 0.001, "{name}: {median_ms}");
    }
}

#[test]
fn instances_of_minimalloc_peak_at_their_optimum_or_below() {
    let Some(data) = published::data() else { return };
    for name in ["A", "B", "C", "E", "K"] {
        let circle = minimalloc::load(&data.join(format!("minimalloc/{name}.1048576.csv"))).unwrap();
        eprintln!("{name}: {} blocks, peak {}", circle.spans.len(), circle.peak_bytes());
        assert!(circle.peak_bytes() <= 1 << 20, "{name}");
    }
}
