//! Results as Markdown: a file for docs/measurements.

use std::fmt::{self, Write};

use workloads::residency::Prediction;

use crate::{
    counting::{PhaseCounts, WorkloadCounts},
    results::{Check, Results, Verdict},
    timing::{Condition, Times},
};

/// Complete report.
pub(crate) fn page(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let Results { date, command, version, elapsed_s, driver, gpu, checks, counts, timed_bytes, times, facts } = results;
    writeln!(out, "# GPU check of {date}\n")?;
    match gpu {
        Some(gpu) => writeln!(
            out,
            "{} ({}), {} GiB, compute capability {}.{}; driver {}; uvmd {version}.",
            gpu.name,
            gpu.uuid,
            gpu.total_bytes >> 30,
            gpu.compute_capability.0,
            gpu.compute_capability.1,
            driver.as_deref().unwrap_or("unknown"),
        )?,
        None => writeln!(out, "No GPU here: nothing was measured. uvmd {version}.")?,
    }
    writeln!(out, "Made by `{command}` in {elapsed_s:.0} s.\n")?;
    write_checks(&mut out, checks)?;
    for workload in counts {
        write_counts(&mut out, workload)?;
    }
    write_times(&mut out, *timed_bytes, times)?;
    let mut section = "";
    writeln!(out, "## Facts")?;
    for fact in facts {
        if fact.section != section {
            section = fact.section;
            writeln!(out, "\n### {section}\n")?;
        }
        if fact.value.contains('\n') {
            writeln!(out, "- {}:\n\n  ```text\n  {}\n  ```\n", fact.name, fact.value.replace('\n', "\n  "))?;
        } else {
            writeln!(out, "- {}: `{}`", fact.name, fact.value)?;
        }
    }
    Ok(out)
}

/// Checks and times, for the terminal.
pub(crate) fn summary(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    write_checks(&mut out, &results.checks)?;
    write_times(&mut out, results.timed_bytes, &results.times)?;
    Ok(out)
}

fn write_checks(out: &mut String, checks: &[Check]) -> fmt::Result {
    if checks.is_empty() {
        return Ok(());
    }
    writeln!(out, "| check | | |\n| --- | --- | --- |")?;
    for Check { name, verdict, detail } in checks {
        let verdict = match verdict {
            Verdict::Right => "right",
            Verdict::Differs => "**differs**",
            Verdict::NotChecked => "not checked",
        };
        writeln!(out, "| {name} | {verdict} | {} |", detail.replace('\n', " ").replace('|', "\\|"))?;
    }
    writeln!(out)
}

fn write_counts(out: &mut String, workload: &WorkloadCounts) -> fmt::Result {
    let WorkloadCounts { workload, bytes, iterations, phases, failure } = workload;
    writeln!(out, "## {workload}: {} MiB, rounds: {iterations}\n", bytes >> 20)?;
    if let Some(failure) = failure {
        writeln!(out, "It failed: {}\n", failure.replace('\n', " "))?;
    }
    writeln!(out, "Predicted / the driver's counters / uvmd; `-` where not known.\n")?;
    writeln!(out, "| phase | ms | bytes host to GPU | bytes GPU to host | GPU faults | CPU faults | |")?;
    writeln!(out, "| --- | --: | --: | --: | --: | --: | --- |")?;
    for PhaseCounts { phase, elapsed_ms, predicted, tools, uvmd, differences } in phases {
        let cell = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let faults = predicted.map(|Prediction { gpu_faults, .. }| if gpu_faults { "some" } else { "none" });
        writeln!(
            out,
            "| {phase} | {elapsed_ms:.3} | {} / {} / {} | {} / {} / {} | {} / {} / {} | {} / {} | {} |",
            cell(predicted.map(|predicted| predicted.bytes_htod)),
            cell(tools.map(|tools| tools.bytes_htod)),
            cell(uvmd.map(|uvmd| uvmd.bytes_htod)),
            cell(predicted.map(|predicted| predicted.bytes_dtoh)),
            cell(tools.map(|tools| tools.bytes_dtoh)),
            cell(uvmd.map(|uvmd| uvmd.bytes_dtoh)),
            faults.unwrap_or("-"),
            cell(tools.map(|tools| tools.fault_entries)),
            cell(uvmd.map(|uvmd| uvmd.fault_entries)),
            cell(tools.map(|tools| tools.cpu_faults)),
            cell(uvmd.map(|uvmd| uvmd.cpu_faults)),
            if differences.is_empty() { "" } else { "**differs**" },
        )?;
    }
    writeln!(out)
}

fn write_times(out: &mut String, bytes: u64, times: &[Times]) -> fmt::Result {
    let bare =
        |of: fn(&Times) -> Option<f64>| times.iter().find(|times| times.condition == Condition::Bare).and_then(of);
    let (Some(gpu_alone), Some(cpu_alone)) = (bare(Times::median_gpu_ms), bare(Times::median_cpu_ms)) else {
        return Ok(());
    };
    writeln!(out, "## Time\n")?;
    writeln!(
        out,
        "{} MiB written by the CPU, then read once by the GPU; medians, in turns; in brackets the fastest and the slowest.\n",
        bytes >> 20
    )?;
    writeln!(out, "| condition | rounds | GPU ms | ratio | CPU ms | ratio |\n| --- | --: | --: | --: | --: | --: |")?;
    for times in times {
        let (Some(gpu), Some(cpu)) = (times.median_gpu_ms(), times.median_cpu_ms()) else { continue };
        let condition = match times.condition {
            Condition::Bare => "unobserved",
            Condition::Uvmd => "uvmd's probes attached",
            Condition::Tools => "the driver's counters attached",
            Condition::Prefetched => "unobserved, prefetched by the program",
        };
        writeln!(
            out,
            "| {condition} | {} | {gpu:.3} {} | {:.3} | {cpu:.3} {} | {:.3} |",
            times.gpu_ms.len(),
            spread(&times.gpu_ms),
            gpu / gpu_alone,
            spread(&times.cpu_ms),
            cpu / cpu_alone
        )?;
    }
    writeln!(out)
}

fn spread(values: &[f64]) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("({min:.3} to {max:.3})")
}

#[cfg(test)]
mod tests {
    use sys::uvm::counters::Counted;

    use super::*;
    use crate::{facts::Fact, results::tests::results, testing::MIB};

    fn times(condition: Condition, gpu_ms: [f64; 3]) -> Times {
        Times { condition, gpu_ms: gpu_ms.to_vec(), cpu_ms: vec![10.0; 3] }
    }

    #[test]
    fn the_page_has_date_gpu_and_command() {
        let page = page(&results()).unwrap();
        assert!(page.starts_with("# GPU check of 2026-08-21T14:06:23Z\n\na GPU of the tests (GPU-9a31"), "{page}");
        assert!(page.contains("driver 580.159.04") && page.contains("Made by `gpu-check` in 62 s."), "{page}");
    }

    #[test]
    fn without_a_gpu_the_page_reports_that_nothing_was_measured() {
        let page = page(&Results { gpu: None, ..results() }).unwrap();
        assert!(page.contains("No GPU here: nothing was measured."), "{page}");
    }

    #[test]
    fn slowdown_is_a_ratio_of_medians() {
        let mut results = results();
        results.times = vec![times(Condition::Bare, [10.0, 90.0, 9.0]), times(Condition::Uvmd, [10.5, 10.4, 12.0])];
        let page = page(&results).unwrap();
        assert!(page.contains("| uvmd's probes attached | 3 | 10.500 (10.400 to 12.000) | 1.050 | 10.000"), "{page}");
    }

    #[test]
    fn counts_stand_side_by_side_and_a_difference_shows() {
        let counted = Counted { fault_entries: 3, cpu_faults: 0, bytes_htod: MIB, bytes_dtoh: 0 };
        let phase = PhaseCounts {
            phase: "gpu-read".to_owned(),
            elapsed_ms: 2.0,
            predicted: Some(Prediction { bytes_htod: MIB, bytes_dtoh: 0, gpu_faults: true }),
            tools: Some(counted),
            uvmd: None,
            differences: vec!["something".to_owned()],
        };
        let workload = "cpu-write-gpu-read".to_owned();
        let mut results = results();
        results.counts =
            vec![WorkloadCounts { workload, bytes: MIB, iterations: 1, phases: vec![phase], failure: None }];
        let page = page(&results).unwrap();
        let line = "| gpu-read | 2.000 | 1048576 / 1048576 / - | 0 / 0 / - | some / 3 / - | 0 / - | **differs** |";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn facts_of_several_lines_keep_them() {
        let mut results = results();
        let fact = |name: &str, value: &str| Fact { section: "system", name: name.to_owned(), value: value.to_owned() };
        results.facts = vec![fact("one", "1"), fact("two", "2\n3")];
        let page = page(&results).unwrap();
        assert!(page.ends_with("### system\n\n- one: `1`\n- two:\n\n  ```text\n  2\n  3\n  ```\n\n"), "{page}");
    }
}
