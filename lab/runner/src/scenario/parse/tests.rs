use super::*;

const TWO_TENANTS: &str = r#"
name = "two_tenants"
gpu_mem_mib = 64
[[process]]
name = "fits"
alloc = [ { name = "a", mib = 24 } ]
steps = [ { cpu_write = "a" }, { repeat = 20, steps = [ { gpu_read = "a" }, { gpu_write = "a", order = "random", seed = 7 } ] }, { verify = "a" } ]
[[process]]
name = "streams"
alloc = [ { name = "b", mib = 128 } ]
steps = [ { gpu_write = "b" }, { repeat = 4, steps = [ { gpu_read = "b" } ] }, { verify = "b" } ]
"#;

/// A scenario with one process, one allocation `a` of 4096 bytes, and these steps.
fn with_steps(steps: &str) -> String {
    format!("name = \"s\"\n[[process]]\nname = \"p\"\nalloc = [{{ name = \"a\", kib = 4 }}]\nsteps = [\n  {steps}\n]\n")
}

/// Debug output of the parsed steps.
fn steps(text: &str) -> String {
    format!("{:?}", parse("test.toml", &with_steps(text)).unwrap().processes[0].steps)
}

/// Error message of an invalid scenario.
fn error(text: &str) -> String {
    parse("test.toml", text).unwrap_err().to_string()
}

#[test]
fn a_scenario_is_read_with_its_defaults() {
    let scenario = parse("two_tenants.toml", TWO_TENANTS).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.gpu_mem_mib, scenario.processes.len()), ("two_tenants", 64, 2));
    assert_eq!((scenario.gpu_count, scenario.nvlink, scenario.managed_bytes()), (1, false, 152 * MIB));
    let [fits, _] = scenario.processes.as_slice() else { panic!() };
    assert_eq!(fits.allocations, [Allocation { name: "a".to_owned(), bytes: 24 * MIB }]);
    assert_eq!(
        (fits.gpus.as_slice(), fits.start_after, fits.kill_after, fits.memory_limit_bytes),
        (&[0][..], Duration::ZERO, None, None)
    );
    let expected = "[Access { by: Cpu, kind: Read, part: Part { allocation: 0, offset_bytes: 0, length_bytes: 4096 }, \
                    stride_bytes: 1024, order: Sequential }]";
    assert_eq!(steps("{ cpu_read = \"a\" }"), expected);
    let random = steps("{ gpu_write = \"a\", order = \"random\" }");
    assert!(random.contains("by: Gpu { gpu: 0, window: 256, access_millibytes: 32000 }, kind: Write"), "{random}");
    assert!(random.ends_with("order: Random { seed: 1 } }]"), "{random}");
}

#[test]
fn a_process_may_start_late_be_killed_be_confined_and_use_some_gpus() {
    let text = "name = \"s\"\ngpus = 2\nnvlink = true\ndriver_parameters = { uvm_perf_thrashing_lapse_usec = 1000000 }\n\
                [[process]]\nname = \"p\"\ngpus = [1]\nstart_after_ms = 5\nkill_after_ms = 7\nmemory_limit = \"1 MiB\"\n\
                alloc = [{ name = \"a\", kib = 4 }]\nsteps = [{ gpu_read = \"a\" }]\n[[process]]\nname = \"q\"\n";
    let scenario = parse("t", text).unwrap();
    assert!(scenario.nvlink && scenario.driver_parameters["uvm_perf_thrashing_lapse_usec"] == 1_000_000);
    let Process { gpus, start_after, kill_after, memory_limit_bytes, steps, .. } = &scenario.processes[0];
    assert_eq!((gpus.as_slice(), start_after.as_millis(), *memory_limit_bytes), (&[1][..], 5, Some(MIB)));
    assert_eq!(kill_after.unwrap().as_millis(), 7);
    assert!(format!("{steps:?}").contains("gpu: 1"), "its first GPU, unless a step names one");
    assert_eq!(scenario.processes[1].gpus, [0, 1]);
}

#[test]
fn a_size_is_given_in_one_of_four_ways() {
    for size in ["mib = 2", "kib = 2048", "bytes = 2097152", "size = \"2 MiB\"", "size = 2097152"] {
        let text = with_steps("").replace("kib = 4", size);
        assert_eq!(parse("test.toml", &text).unwrap().managed_bytes(), 2 * MIB, "{size}");
    }
}

#[test]
fn part_of_an_allocation_is_given_in_bytes_or_with_a_unit_and_reaches_to_the_end() {
    let part = |offset: u64, length: u64| format!("offset_bytes: {offset}, length_bytes: {length} }}");
    let access = steps("{ gpu_read = \"a\", offset = \"1 KiB\", length = 2048, stride = 8, window = 1 }");
    assert!(access.contains(&part(1024, 2048)) && access.contains("stride_bytes: 8"), "{access}");
    assert!(access.contains("window: 1,"), "{access}");
    assert!(steps("{ cpu_read = \"a\", offset = 4088 }").contains(&part(4088, 8)));
}

#[test]
fn exit_is_true_or_a_code_and_sleep_is_in_milliseconds() {
    assert_eq!(steps("{ sleep_ms = 5 }, { exit = true }"), "[Sleep(5ms), Exit { code: 0 }]");
    assert_eq!(steps("{ exit = 3 }"), "[Exit { code: 3 }]");
}

#[test]
fn steps_may_be_separate_tables() {
    let text = "name = \"s\"\n[[process]]\nname = \"p\"\nalloc = [{ name = \"a\", mib = 1 }]\n\
                [[process.steps]]\nrepeat = 2\n[[process.steps.steps]]\ngpu_read = \"a\"\n";
    assert!(format!("{:?}", parse("t", text).unwrap()).contains("Repeat { until: Times(2), steps: [Access"));
}

#[test]
fn conflicting_threads_are_rejected() {
    let threads = |one: &str, other: &str| with_steps(&format!("{{ parallel = [[{{ {one} }}], [{{ {other} }}]] }}"));
    let (low, high) = ("length = 2048", "offset = 2048");
    for (one, other) in [
        ("gpu_read = \"a\"".to_owned(), "cpu_read = \"a\"".to_owned()),
        ("gpu_atomic = \"a\"".to_owned(), "cpu_atomic = \"a\"".to_owned()),
        (format!("gpu_write = \"a\", {low}"), format!("cpu_write = \"a\", {high}")),
    ] {
        parse("t", &threads(&one, &other)).unwrap();
    }
    for (one, other) in [
        ("gpu_write = \"a\"", "cpu_read = \"a\""),
        ("gpu_write = \"a\"", "gpu_write = \"a\", offset = 4088"),
        ("gpu_atomic = \"a\"", "verify = \"a\""),
        ("repeat = 2, steps = [{ gpu_write = \"a\" }]", "cpu_atomic = \"a\""),
    ] {
        let message = error(&threads(one, other));
        assert!(message.contains("step 1: threads 1 and 2 use the same part of \"a\""), "{message}");
    }
    assert!(error(&with_steps("{ parallel = [[]] }")).contains("from 2 to 16 lists"));
    let deep = error(&threads("repeat = 2, steps = [{ gpu_read = \"b\" }]", "sleep_ms = 1"));
    assert!(deep.contains("step 1.1.1.1: no allocation"), "{deep}");
}

#[test]
fn an_error_names_file_line_column_and_step() {
    let text = with_steps("{ cpu_write = \"a\" },\n  { repeat = 2, steps = [ { gpu_read = \"nowhere\" } ] }");
    assert_eq!(error(&text), "test.toml:7:27: process \"p\", step 2.1: no allocation is named \"nowhere\"");
}

#[test]
fn an_invalid_step_is_rejected_with_the_reason() {
    let cases = [
        ("{ gpu_read = \"a\", offset = 4096 }", "outside of \"a\", which has 4096 bytes"),
        ("{ gpu_read = \"a\", offset = 8, length = 4096 }", "outside of \"a\""),
        ("{ gpu_read = \"a\", offset = \"16777216 GiB\" }", "outside of \"a\""),
        ("{ gpu_read = \"a\", offset = 8, length = 18446744073709551615 }", "18446744073709551615"),
        ("{ gpu_read = \"a\", offset = 4 }", "multiple of 8"),
        ("{ gpu_read = \"a\", length = 12 }", "multiple of 8"),
        ("{ gpu_read = \"a\", length = 0 }", "nothing to access"),
        ("{ gpu_read = \"a\", stride = 0 }", "stride = 0"),
        ("{ gpu_read = \"a\", stride = 12 }", "multiple of 8"),
        ("{ gpu_read = \"a\", stride = -8 }", "not negative"),
        ("{ gpu_read = \"a\", stride = \"1 KB\" }", "not a size"),
        ("{ gpu_read = \"a\", window = 0 }", "window must be from 1 to 4096"),
        ("{ gpu_read = \"a\", window = 4097 }", "window must be from 1 to 4096"),
        ("{ cpu_read = \"a\", window = 4 }", "cpu_read takes no window"),
        ("{ gpu_read = \"a\", order = \"backwards\" }", "backwards"),
        ("{ gpu_read = \"a\", access_rate = 0.0 }", "access_rate must be above 0"),
        ("{ gpu_read = \"a\", gpu = 1 }", "gpu1 is not the process's; it has gpus = [0]"),
        ("{ prefetch = \"a\" }", "to is missing"),
        ("{ prefetch = \"a\", to = \"gpu\" }", "\"gpu\" is not a place"),
        ("{ prefetch = \"a\", to = \"cpu\", offset = 8 }", "multiple of 4096"),
        ("{ advise = \"a\" }", "advise needs one of"),
        ("{ advise = \"a\", read_duplication = true, accessed_by = \"cpu\" }", "not 2"),
        ("{ advise = \"a\", preferred_location = true }", "must be a place, or false"),
        ("{ device_alloc = \"x\" }", "needs one of size and mib"),
        ("{ kill = false }", "kill = false"),
        ("{ kill = true }, { verify = \"a\" }", "step 2: is never reached"),
        ("{ gpu_read = \"a\", strde = 8 }", "gpu_read takes no strde"),
        ("{ repeat = 0, steps = [ { verify = \"a\" } ] }", "repeat must be from 1"),
        ("{ repeat = 4294967296, steps = [ { verify = \"a\" } ] }", "repeat must be from 1"),
        ("{ repeat = 2 }", "repeat needs steps"),
        ("{ repeat = 2, steps = [] }", "repeat needs steps"),
        ("{ repeat = 2, stride = 8, steps = [ { verify = \"a\" } ] }", "repeat takes no stride"),
        ("{ verify = \"a\", offset = 8 }", "verify takes no offset"),
        ("{ verify = \"b\" }", "no allocation is named \"b\""),
        ("{ gpu_read = \"a\", gpu_write = \"a\" }", "more than one step: gpu_read and gpu_write"),
        ("{ stride = 8 }", "names no step"),
        ("{ exit = false }", "exit = false"),
        ("{ exit = 256 }", "exit code from 0 to 255"),
        ("{ exit = true }, { verify = \"a\" }", "step 2: is never reached"),
    ];
    for (step, reason) in cases {
        let message = error(&with_steps(step));
        assert!(message.contains(reason), "{step}: {message}");
        assert!(message.starts_with("test.toml:6:"), "{step}: {message}");
    }
}

#[test]
fn an_invalid_scenario_is_rejected_with_the_reason() {
    let process = "[[process]]\nname = \"p\"\n";
    let allocation = |allocation: &str| format!("name = \"s\"\n{process}alloc = [{allocation}]\n");
    let target = |target: &str| format!("name = \"s\"\n{process}[[target]]\n{target}\n");
    let cases = [
        (String::new(), "name is missing"),
        ("name = \"s\"\n".to_owned(), "0 processes"),
        ("name = \"\"\n".to_owned() + process, "cannot be the name of the scenario"),
        ("name = 3\n".to_owned() + process, "invalid type"),
        ("name = \"s\"\nspeed = 3\n".to_owned() + process, "takes no speed"),
        ("name = \"s\"\ngpu_mem_mib = 0\n".to_owned() + process, "must be an even number from 4"),
        ("name = \"s\"\ngpu_mem_mib = 33\n".to_owned() + process, "must be an even number from 4"),
        (format!("name = \"s\"\n{process}{process}"), "two processes named \"p\""),
        ("name = \"s\"\ngpus = 3\n".to_owned() + process, "must be from 1 to 2"),
        ("name = \"s\"\ndriver_parameters = { \"a b\" = 1 }\n".to_owned() + process, "name of a module parameter"),
        ("name = \"s\"\n".to_owned() + process + "gpus = [1]\n", "different numbers below 1"),
        ("name = \"s\"\n".to_owned() + process + "gpus = []\n", "different numbers below 1"),
        (allocation("{ name = \"a\", mib = 1 }, { name = \"a\", mib = 1 }"), "two allocations named \"a\""),
        (allocation("{ name = \"a\" }"), "give one of size, mib, kib and bytes, not 0"),
        (allocation("{ name = \"a\", mib = 1, kib = 1 }"), "give one of size, mib, kib and bytes, not 2"),
        (allocation("{ name = \"a\", mib = 0 }"), "is empty"),
        (allocation("{ name = \"a\", bytes = 12 }"), "not a multiple of 8"),
        (allocation("{ name = \"a\", mib = 9000000000000000000 }"), "larger than 1 TiB"),
        (allocation("{ name = \"a\", mib = -1 }"), "invalid"),
        (allocation("{ name = \"a\", size = \"big\" }"), "not a size"),
        (target("figure = \"replays\""), "needs one of at_most and within"),
        (target("figure = \"replays\"\nat_most = 1.0\nwithin = 0.1"), "needs one of at_most and within"),
        (target("figure = \"replays\"\nat_most = -1.0"), "must not be negative"),
        (target("figure = \"replays\"\nprocess = \"p\"\nat_most = 1.0"), "only for all processes together"),
        (target("figure = \"link_bytes\"\nprocess = \"q\"\nat_most = 1.0"), "there is no process \"q\""),
        (target("figure = \"speed\"\nat_most = 1.0"), "speed"),
        ("name = \"s\"\nx y\n".to_owned(), "test.toml:2:"),
    ];
    for (text, reason) in cases {
        let message = error(&text);
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn too_deep_nesting_is_rejected() {
    let deep = "{ repeat = 1, steps = [ ".repeat(17) + "{ verify = \"a\" }" + &" ] }".repeat(17);
    assert!(error(&with_steps(&deep)).contains("nested more than 16 deep"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let message = load(Path::new("/nonexistent/x.toml")).unwrap_err().to_string();
    assert!(message.starts_with("/nonexistent/x.toml:1:1: cannot be read"), "{message}");
}

#[test]
fn every_scenario_in_the_repository_can_be_run() {
    let folder = |name: &str| fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap();
    let mut count = 0;
    for entry in folder("scenarios").chain(folder("compare")) {
        let path = entry.unwrap().path();
        let scenario = load(&path).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(scenario.name.as_str()), "a scenario's file has its name");
        count += 1;
    }
    assert!(count >= 3);
}

#[test]
fn the_example_in_the_documentation_can_be_run() {
    let document = include_str!("../../../../../docs/scenarios.md");
    let example = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = parse("docs/scenarios.md", example).unwrap();
    assert!(scenario.processes.len() > 1);
}

#[test]
fn a_variation_changes_orders_and_rates_but_not_the_work() {
    let text = with_steps("{ gpu_read = \"a\", order = \"random\" }, { sleep_ms = 1000 }");
    let varied = |seed, access_rate_factor| {
        let scenario = parse_varied("t", &text, Variation { seed, access_rate_factor }).unwrap();
        format!("{:?}", scenario.processes[0].steps)
    };
    assert_eq!(varied(0, 1.0), format!("{:?}", parse("t", &text).unwrap().processes[0].steps));
    assert_ne!(varied(1, 1.0), varied(2, 1.0));
    assert!(varied(0, 10.0).contains("access_millibytes: 320000"), "{}", varied(0, 10.0));
    let words = |text: &str| text.split("seed: ").next().map(str::to_owned);
    assert_eq!(words(&varied(1, 1.0)), words(&varied(2, 1.0)));
}
