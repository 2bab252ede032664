//! Accesses in the log, held against what kernels, copies and fills access.

use std::{collections::HashMap, fs, ptr};

use cudarc::driver::sys::{CUresult, CUstreamCaptureMode};
use serde_json::{Value, json};

use crate::{
    kernels::{KERNELS, function, launch, load},
    support::{Context, managed, ok, stream, succeeds},
};

const GRANULE_BYTES: u64 = 4096;

#[test]
#[ignore = "run by another test in a process of its own"]
fn a_program_that_accesses_memory() {
    let _context = Context::new();
    let module = load(KERNELS);
    let (add, count) = (function(module, c"add"), function(module, c"count"));
    let own = stream(1);
    let (left, right, sum) = (managed(12_000), managed(12_000), managed(12_000));
    // 1,500 words lie in two granules, 10 in one: what the first launch accessed is not the second's.
    assert_eq!(launch(add, 12, 128, own, &mut [left, right, sum, 1500]), CUresult::CUDA_SUCCESS);
    assert_eq!(launch(add, 1, 32, own, &mut [left + GRANULE_BYTES, right, sum, 10]), CUresult::CUDA_SUCCESS);
    ok!(cuMemsetD8Async(right, 1, 5000, own));
    ok!(cuMemcpyDtoDAsync_v2(sum + 2 * GRANULE_BYTES, left, 16, own));
    ok!(cuStreamSynchronize(own));
    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    ok!(cuStreamBeginCapture_v2(own, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok!(cuMemsetD8Async(left, 1, 8, own));
    assert_eq!(launch(count, 1, 32, own, &mut [left + 2 * GRANULE_BYTES]), CUresult::CUDA_SUCCESS);
    ok!(cuStreamEndCapture(own, &raw mut graph));
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, own));
    ok!(cuStreamSynchronize(own));
}

fn log_of(settings: &[(&str, &str)]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let all: Vec<_> = [("CUDA_LAB_LOG", path.to_str().unwrap())].into_iter().chain(settings.iter().copied()).collect();
    succeeds("accesses::a_program_that_accesses_memory", &all);
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_log_has_the_accesses_of_each_operation() {
    let log = log_of(&[("CUDA_LAB_LOG_ACCESSES", "1")]);
    let calls: HashMap<u64, &str> =
        log.iter().map(|line| (line["seq"].as_u64().unwrap(), line["op"].as_str().unwrap())).collect();
    let mallocs: Vec<u64> =
        log.iter().filter(|line| line["op"] == "malloc").map(|line| line["address"].as_u64().unwrap()).collect();
    let [left, right, sum] = mallocs.try_into().unwrap();
    let accesses: Vec<_> = log.iter().filter(|line| line["op"] == "access").collect();
    let found: Vec<_> = accesses
        .iter()
        .map(|line| {
            (calls[&line["of"].as_u64().unwrap()], &line["node"], line["read"].clone(), line["written"].clone())
        })
        .collect();
    let two = 2 * GRANULE_BYTES;
    let rest = 12_000 - two;
    let none = &Value::Null;
    assert_eq!(
        found,
        [
            ("launch", none, json!([[left, two], [right, two]]), json!([[sum, two]])),
            (
                "launch",
                none,
                json!([[left + GRANULE_BYTES, GRANULE_BYTES], [right, GRANULE_BYTES]]),
                json!([[sum, GRANULE_BYTES]])
            ),
            ("memset", none, json!([]), json!([[right, two]])),
            ("memcpy", none, json!([[left, GRANULE_BYTES]]), json!([[sum + two, rest]])),
            ("graph_launch", &json!(0), json!([]), json!([[left, GRANULE_BYTES]])),
            ("graph_launch", &json!(1), json!([[left + two, rest]]), json!([[left + two, rest]])),
        ]
    );
}

#[test]
fn the_log_has_no_accesses_unless_asked() {
    assert!(log_of(&[]).iter().all(|line| line["op"] != "access"));
}
