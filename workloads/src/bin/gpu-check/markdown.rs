//! Results as Markdown: a file for docs/measurements.

use std::fmt::{self, Write};

use sys::uvm::{counters::Counted, queue::RECORDS};
use workloads::residency::Prediction;

use crate::{
    counting::{PhaseCounts, WorkloadCounts},
    daemon::Discovery,
    recording::{Queue, Rates, Recorded},
    results::{Check, Results, Verdict},
    source::Source,
    steps::duplicated_mib,
    timing::{self, Condition, Faults, Times, Work},
};

/// Complete report.
pub(crate) fn page(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let Results { date, command, version, elapsed_s, driver, gpu, checks, counts, records, timed_bytes, times, facts } =
        results;
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
    write_discoveries(&mut out, counts)?;
    write_records(&mut out, records)?;
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

/// All but the counts of each phase and the facts, for the terminal.
pub(crate) fn summary(results: &Results) -> Result<String, fmt::Error> {
    let mut out = String::new();
    write_checks(&mut out, &results.checks)?;
    write_discoveries(&mut out, &results.counts)?;
    write_records(&mut out, &results.records)?;
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
    let WorkloadCounts { workload, bytes, iterations, phases, discoveries: _, failure } = workload;
    writeln!(out, "## {workload}: {} MiB, rounds: {iterations}\n", bytes >> 20)?;
    if let Some(failure) = failure {
        writeln!(out, "It failed: {}\n", failure.replace('\n', " "))?;
    }
    let sources = phases.first().map_or(&[][..], |phase| &phase.uvmd);
    let names: Vec<_> = sources.iter().map(|counts| counts.source.name()).collect();
    let names = if names.is_empty() { "uvmd".to_owned() } else { names.join(" / ") };
    writeln!(out, "Predicted / the driver's counters / {names}; `-` where not known.\n")?;
    writeln!(out, "| phase | ms | bytes host to GPU | bytes GPU to host | GPU faults | CPU faults | |")?;
    writeln!(out, "| --- | --: | --: | --: | --: | --: | --- |")?;
    for PhaseCounts { phase, elapsed_ms, predicted, tools, uvmd, differences } in phases {
        let cell = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let faults = predicted.map(|Prediction { gpu_faults, .. }| if gpu_faults { "some" } else { "none" });
        let sides = |of: fn(&Counted) -> u64| {
            let mut sides = vec![cell(tools.as_ref().map(of))];
            sides.extend(uvmd.iter().map(|counts| of(&counts.counted).to_string()));
            if uvmd.is_empty() {
                sides.push("-".to_owned());
            }
            sides.join(" / ")
        };
        writeln!(
            out,
            "| {phase} | {elapsed_ms:.3} | {} / {} | {} / {} | {} / {} | {} | {} |",
            cell(predicted.map(|predicted| predicted.bytes_htod)),
            sides(|counted| counted.bytes_htod),
            cell(predicted.map(|predicted| predicted.bytes_dtoh)),
            sides(|counted| counted.bytes_dtoh),
            faults.unwrap_or("-"),
            sides(|counted| counted.fault_entries),
            sides(|counted| counted.cpu_faults),
            if differences.is_empty() { "" } else { "**differs**" },
        )?;
    }
    writeln!(out)
}

fn write_discoveries(out: &mut String, counts: &[WorkloadCounts]) -> fmt::Result {
    let all: Vec<Discovery> = counts.iter().flat_map(|workload| &workload.discoveries).copied().collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Discovery of processes by the tools\n")?;
    writeln!(
        out,
        "Times from the start of a process, in ms; medians, in brackets the least and the most. No fault is earlier \
         than the allocation of memory. Late: counted only after it.\n"
    )?;
    writeln!(out, "| source | processes | counted | memory allocated | late |\n| --- | --: | --: | --: | --: |")?;
    for source in Source::COUNTED {
        let of_source: Vec<_> = all.iter().filter(|discovery| discovery.source == source).collect();
        let counted: Vec<_> = of_source.iter().map(|discovery| discovery.counted_ms).collect();
        let allocated: Vec<_> = of_source.iter().map(|discovery| discovery.allocated_ms).collect();
        let (Some(counted_ms), Some(allocated_ms)) = (timing::median(&counted), timing::median(&allocated)) else {
            continue;
        };
        writeln!(
            out,
            "| {} | {} | {counted_ms:.0} {} | {allocated_ms:.0} {} | {} |",
            source.name(),
            of_source.len(),
            spread(&counted, 0),
            spread(&allocated, 0),
            of_source.iter().filter(|discovery| discovery.counted_ms > discovery.allocated_ms).count(),
        )?;
    }
    writeln!(out)
}

fn write_records(out: &mut String, records: &[Recorded]) -> fmt::Result {
    if records.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Records of the driver's tools\n")?;
    writeln!(out, "A queue of {RECORDS} records, read every 100 ms as by uvmd.\n")?;
    writeln!(
        out,
        "| workload | MiB | records of | read | dropped | most pending | most a second |\n\
         | --- | --: | --- | --: | --: | --: | --: |"
    )?;
    for Recorded { workload, bytes, queue, rates } in records {
        let Rates { read, dropped, pending_max, per_second_max } = rates;
        let kinds = match queue {
            Queue::Moves => "copies, CPU faults",
            Queue::Faults => "GPU faults",
        };
        let mib = bytes >> 20;
        writeln!(out, "| {workload} | {mib} | {kinds} | {read} | {dropped} | {pending_max} | {per_second_max:.0} |")?;
    }
    writeln!(out)
}

fn write_times(out: &mut String, bytes: u64, times: &[Times]) -> fmt::Result {
    let Some(alone) = times.iter().find(|times| times.condition == Condition::Bare) else { return Ok(()) };
    let faults = times.iter().find_map(|times| times.faults);
    let mib = bytes >> 20;
    writeln!(out, "## Time\n")?;
    writeln!(
        out,
        "Medians, in turns; in brackets the fastest and the slowest. Ratios are to unobserved, and us those per fault \
         beyond it.\n"
    )?;
    let tables = [
        (Work::GpuRead, format!("{mib} MiB, written by the CPU, then read once by the GPU")),
        (Work::CpuWrite, format!("{mib} MiB, written by the CPU for the first time")),
        (Work::DuplicatedWrite, format!("{} MiB with read duplication, written by the CPU", duplicated_mib(mib))),
    ];
    for (work, title) in tables {
        write_work(out, work, &title, times, alone, faults)?;
    }
    Ok(())
}

fn write_work(
    out: &mut String,
    work: Work,
    title: &str,
    times: &[Times],
    alone: &Times,
    faults: Option<Faults>,
) -> fmt::Result {
    let Some(alone_ms) = alone.median_ms(work) else { return Ok(()) };
    let faults = faults.map(|faults| faults.of(work)).filter(|faults| *faults > 0);
    let number = faults.map_or_else(|| "faults not counted".to_owned(), |faults| format!("{faults} faults"));
    writeln!(out, "{title} ({number}):\n")?;
    writeln!(out, "| condition | rounds | ms | ratio | us a fault |\n| --- | --: | --: | --: | --: |")?;
    for times in times {
        let Some(ms) = times.median_ms(work) else { continue };
        let measured = times.of(work);
        // Prefetches replace the faults of the GPU.
        let price = faults.filter(|_| times.condition != Condition::Prefetched);
        let price =
            price.map_or_else(|| "-".to_owned(), |faults| format!("{:.3}", (ms - alone_ms) * 1e3 / faults as f64));
        writeln!(
            out,
            "| {} | {} | {ms:.3} {} | {:.3} | {price} |",
            times.condition.name(),
            measured.len(),
            spread(measured, 3),
            ms / alone_ms,
        )?;
    }
    writeln!(out)
}

fn spread(values: &[f64], digits: usize) -> String {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("({min:.digits$} to {max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{counting::SourceCounts, facts::Fact, results::tests::results, testing::MIB};

    fn times(condition: Condition, gpu_ms: [f64; 3]) -> Times {
        let faults = (condition == Condition::Counters).then_some(Faults { gpu_read: 500, ..Faults::default() });
        Times { condition, gpu_ms: gpu_ms.to_vec(), cpu_ms: vec![10.0; 3], duplicated_ms: Vec::new(), faults }
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
        let uvmd = Condition::Uvmd(Source::Probes);
        results.times = vec![times(Condition::Bare, [10.0, 90.0, 9.0]), times(uvmd, [10.5, 10.4, 12.0])];
        let page = page(&results).unwrap();
        assert!(page.contains("| uvmd's probes | 3 | 10.500 (10.400 to 12.000) | 1.050 | - |"), "{page}");
    }

    #[test]
    fn price_of_a_fault_is_the_time_beyond_the_unobserved_one() {
        let mut results = results();
        results.times = vec![times(Condition::Bare, [10.0; 3]), times(Condition::Counters, [11.0; 3])];
        let page = page(&results).unwrap();
        assert!(page.contains("read once by the GPU (500 faults):"), "{page}");
        let line = "| the driver's counters attached | 3 | 11.000 (11.000 to 11.000) | 1.100 | 2.000 |";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn processes_that_were_counted_after_their_allocation_are_late() {
        let mut results = results();
        let discovery = |counted_ms| Discovery { source: Source::ToolsMoves, counted_ms, allocated_ms: 300.0 };
        let discoveries = vec![discovery(110.0), discovery(90.0), discovery(310.0)];
        results.counts = vec![WorkloadCounts { discoveries, ..WorkloadCounts::default() }];
        let line = "| uvmd's tools, level moves | 3 | 110 (90 to 310) | 300 (300 to 300) | 1 |";
        let page = page(&results).unwrap();
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn records_have_their_rate() {
        let mut results = results();
        let rates = Rates { read: 7, dropped: 2, pending_max: 5, per_second_max: 90.0 };
        results.records = vec![Recorded { workload: "w".to_owned(), bytes: MIB, queue: Queue::Faults, rates }];
        let page = page(&results).unwrap();
        assert!(page.contains("| w | 1 | GPU faults | 7 | 2 | 5 | 90 |"), "{page}");
    }

    #[test]
    fn counts_stand_side_by_side_and_a_difference_shows() {
        let counted = Counted { fault_entries: 3, cpu_faults: 0, bytes_htod: MIB, bytes_dtoh: 0 };
        let phase = PhaseCounts {
            phase: "gpu-read".to_owned(),
            elapsed_ms: 2.0,
            predicted: Some(Prediction { bytes_htod: MIB, bytes_dtoh: 0, gpu_faults: true }),
            tools: Some(counted),
            uvmd: vec![SourceCounts { source: Source::ToolsMoves, counted }],
            differences: vec!["something".to_owned()],
        };
        let workload = "cpu-write-gpu-read".to_owned();
        let mut results = results();
        let iterations = 1;
        let phases = vec![phase];
        results.counts = vec![WorkloadCounts { workload, bytes: MIB, iterations, phases, ..WorkloadCounts::default() }];
        let page = page(&results).unwrap();
        let line =
            "| gpu-read | 2.000 | 1048576 / 1048576 / 1048576 | 0 / 0 / 0 | some / 3 / 3 | 0 / 0 | **differs** |";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("the driver's counters / uvmd's tools, level moves;"), "{page}");
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
