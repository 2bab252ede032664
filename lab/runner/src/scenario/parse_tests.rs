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

fn steps(text: &str) -> Vec<Step> {
    parse("test.toml", &with_steps(text)).unwrap().processes.remove(0).steps
}

/// The message for a scenario that must not parse.
fn error(text: &str) -> String {
    parse("test.toml", text).unwrap_err().to_string()
}

#[test]
fn a_scenario_is_read_with_its_defaults() {
    let scenario = parse("two_tenants.toml", TWO_TENANTS).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.gpu_mem_mib, scenario.processes.len()), ("two_tenants", 64, 2));
    assert_eq!(scenario.managed_bytes(), 152 * MIB);
    let [fits, streams] = scenario.processes.as_slice() else { panic!() };
    assert_eq!(fits.allocations, [Allocation { name: "a".to_owned(), bytes: 24 * MIB }]);
    let whole_by_cpu = Access {
        by: Processor::Cpu,
        kind: Kind::Write,
        allocation: 0,
        offset_bytes: 0,
        length_bytes: 24 * MIB,
        stride_bytes: 1024,
        order: Order::Sequential,
    };
    assert_eq!(fits.steps[0], Step::Access(whole_by_cpu));
    let Step::Repeat { times: 20, steps } = &fits.steps[1] else { panic!() };
    let Step::Access(random) = &steps[1] else { panic!() };
    assert_eq!((random.order, random.by), (Order::Random { seed: 7 }, Processor::Gpu { window: 256 }));
    assert_eq!(streams.steps[2], Step::Verify { allocation: 0 });
}

#[test]
fn a_size_is_given_in_one_of_four_ways() {
    for size in ["mib = 2", "kib = 2048", "bytes = 2097152", "size = \"2 MiB\"", "size = 2097152"] {
        let text = with_steps("").replace("kib = 4", size);
        assert_eq!(parse("test.toml", &text).unwrap().managed_bytes(), 2 * MIB, "{size}");
    }
}

#[test]
fn part_of_an_allocation_is_given_in_bytes_or_with_a_unit() {
    let [Step::Access(access)] =
        &steps("{ gpu_read = \"a\", offset = \"1 KiB\", length = 2048, stride = 8, window = 1 }")[..]
    else {
        panic!()
    };
    assert_eq!((access.offset_bytes, access.length_bytes, access.stride_bytes), (1024, 2048, 8));
    assert_eq!((access.count(), access.by), (256, Processor::Gpu { window: 1 }));
}

#[test]
fn a_length_left_out_reaches_to_the_end() {
    let [Step::Access(access)] = &steps("{ cpu_read = \"a\", offset = 4088 }")[..] else { panic!() };
    assert_eq!((access.length_bytes, access.count()), (8, 1));
}

#[test]
fn exit_is_true_or_a_code_and_sleep_is_in_milliseconds() {
    assert_eq!(steps("{ sleep_ms = 5 }, { exit = true }"), [Step::Sleep { milliseconds: 5 }, Step::Exit { code: 0 }]);
    assert_eq!(steps("{ exit = 3 }"), [Step::Exit { code: 3 }]);
}

#[test]
fn steps_may_be_written_as_tables_of_their_own() {
    let text = "name = \"s\"\n[[process]]\nname = \"p\"\nalloc = [{ name = \"a\", mib = 1 }]\n\
                [[process.steps]]\nrepeat = 2\n[[process.steps.steps]]\ngpu_read = \"a\"\n";
    assert!(matches!(parse("t", text).unwrap().processes[0].steps[0], Step::Repeat { times: 2, .. }));
}

#[test]
fn an_error_names_file_line_column_and_step() {
    let text = with_steps("{ cpu_write = \"a\" },\n  { repeat = 2, steps = [ { gpu_read = \"nowhere\" } ] }");
    assert_eq!(error(&text), "test.toml:7:27: process \"p\", step 2.1: no allocation is named \"nowhere\"");
}

#[test]
fn a_step_that_cannot_be_done_is_refused_with_the_reason() {
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
        ("{ cpu_read = \"a\", window = 4 }", "window is for the GPU"),
        ("{ gpu_read = \"a\", order = \"backwards\" }", "backwards"),
        ("{ gpu_read = \"a\", strde = 8 }", "unknown field `strde`"),
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
fn a_scenario_that_cannot_be_run_is_refused_with_the_reason() {
    let process = "[[process]]\nname = \"p\"\n";
    let allocation = |allocation: &str| format!("name = \"s\"\n{process}alloc = [{allocation}]\n");
    let cases = [
        (String::new(), "missing field `name`"),
        ("name = \"s\"\n".to_owned(), "0 processes"),
        ("name = \"\"\n".to_owned() + process, "cannot be the name of the scenario"),
        ("name = 3\n".to_owned() + process, "invalid type"),
        ("name = \"s\"\nspeed = 3\n".to_owned() + process, "unknown field `speed`"),
        ("name = \"s\"\ngpu_mem_mib = 0\n".to_owned() + process, "must be an even number from 4"),
        ("name = \"s\"\ngpu_mem_mib = 33\n".to_owned() + process, "must be an even number from 4"),
        (format!("name = \"s\"\n{process}{process}"), "two processes named \"p\""),
        (allocation("{ name = \"a\", mib = 1 }, { name = \"a\", mib = 1 }"), "two allocations named \"a\""),
        (allocation("{ name = \"a\" }"), "give one of size, mib, kib and bytes, not 0"),
        (allocation("{ name = \"a\", mib = 1, kib = 1 }"), "give one of size, mib, kib and bytes, not 2"),
        (allocation("{ name = \"a\", mib = 0 }"), "is empty"),
        (allocation("{ name = \"a\", bytes = 12 }"), "not a multiple of 8"),
        (allocation("{ name = \"a\", mib = 9000000000000000000 }"), "larger than 1 TiB"),
        (allocation("{ name = \"a\", mib = -1 }"), "invalid"),
        (allocation("{ name = \"a\", size = \"big\" }"), "not a size"),
        ("name = \"s\"\nx y\n".to_owned(), "test.toml:2:"),
    ];
    for (text, reason) in cases {
        let message = error(&text);
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn endless_nesting_is_refused() {
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario = load(&path).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(scenario.name.as_str()), "a scenario's file has its name");
        count += 1;
    }
    assert!(count >= 3);
}

#[test]
fn the_example_in_the_documentation_can_be_run() {
    let document = include_str!("../../../../docs/scenarios.md");
    let example = document.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scenario = parse("docs/scenarios.md", example).unwrap();
    assert!(scenario.processes.len() > 1);
}
