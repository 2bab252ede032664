//! The comparison as text, Markdown and JSON.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{
    judge::{self, Control},
    measured::{Machine, Record},
    model::Model,
    plan::{Plan, Text},
    policy::{self, HARMFUL},
    rows::{Row, Section, Summary, rows},
};
use crate::{
    digits::digits,
    scenario::{Target, parse::parse, size::MIB},
};

/// Comparison of all scenarios.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// Machine of the runs.
    machine: Option<Machine>,
    /// Options of uvmd in all runs.
    uvmd: Vec<String>,
    /// Costs of modelled times.
    model: Model,
    rows: Vec<Row>,
    controls: Vec<Control>,
    /// Number of planned runs without a record.
    missing: usize,
    holds: bool,
    /// Records of all runs.
    runs: Vec<Record>,
}

impl Comparison {
    /// Compare the records of all plans.
    pub(super) fn new(plans: &[Plan], runs: Vec<Record>) -> anyhow::Result<Self> {
        let model = Model::new()?;
        let mut targets: Vec<(&str, Vec<Target>)> = Vec::new();
        for Text { name, text } in plans.iter().map(|plan| &plan.scenario) {
            targets.push((name, parse(name, text)?.targets));
        }
        let targets_of = |scenario: &str| {
            targets.iter().find(|(name, _)| *name == scenario).map_or(&[][..], |(_, targets)| targets.as_slice())
        };
        let mut rows = rows(&runs, &model);
        judge::judge(&mut rows, targets_of);
        let controls = judge::controls(&rows, &runs);
        let missing = plans.iter().map(|plan| plan.runs.len()).sum::<usize>().saturating_sub(runs.len());
        let holds = missing == 0
            && !rows.is_empty()
            && rows.iter().all(|row| if is_control(row) { row.is_valid() } else { row.holds() })
            && controls.iter().all(|control| control.holds);
        let machine = runs.iter().find_map(|run| run.machine.clone());
        let uvmd = plans.first().map(|plan| plan.uvmd.clone()).unwrap_or_default();
        Ok(Self { machine, uvmd, model, rows, controls, missing, holds, runs })
    }

    pub(super) const fn holds(&self) -> bool {
        self.holds
    }

    fn scenarios(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.iter().map(|row| row.scenario.as_str()).collect();
        names.dedup();
        names
    }

    /// Machine, options and cost model of the comparison, as sentences.
    fn circumstances(&self) -> String {
        let Model { machine: modelled, to_gpu_bytes_per_second, to_host_bytes_per_second, batch_ns, kernel_ns } =
            &self.model;
        let on = self.machine.as_ref().map_or_else(String::new, |machine| {
            let Machine { arch, driver, kernel, .. } = machine;
            format!("The software GPU ({arch}), driver {driver}, Linux {kernel}. ")
        });
        format!(
            "{on}uvmd's options: {}. Modelled time is link bytes at {:.1} GB/s to the GPU and {:.1} GB/s to the host, {:.0} us a batch of faults and \
             {:.0} us a kernel, one after the other ({modelled}).",
            self.uvmd.join(" "),
            to_gpu_bytes_per_second / 1e9,
            to_host_bytes_per_second / 1e9,
            batch_ns / 1e3,
            kernel_ns / 1e3,
        )
    }

    /// Table in Markdown, for the documentation.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let mut line = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        line(self.circumstances() + "\n");
        line("| scenario | policy | rate | process | fault entries | link to GPU, MiB | link to host, MiB | evicted, MiB | replays | modelled, ms | targets |".to_owned());
        line("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |".to_owned());
        for row in &self.rows {
            let checks: Vec<String> =
                row.checks.iter().map(|check| check.to_string().trim().replace("  ", " ")).collect();
            for (at, section) in sections(row).into_iter().enumerate() {
                let Cells([faults, to_gpu, to_host, evicted]) = Cells::of(section);
                let of_row = |text: String| if at == 0 { text } else { String::new() };
                line(format!(
                    "| {} | {} | {} | {} | {faults} | {to_gpu} | {to_host} | {evicted} | {} | {} | {} |",
                    of_row(row.scenario.clone()),
                    of_row(row.policy.clone()),
                    of_row(format!("{}x", row.rate)),
                    section.name,
                    of_row(count(row.replays)),
                    of_row(milliseconds(row.modelled_seconds)),
                    of_row(checks.join("<br>")),
                ));
            }
        }
        for control in &self.controls {
            line(format!("\n{}", control_line(control)));
        }
        text
    }
}

fn is_control(row: &Row) -> bool {
    policy::control_policies().any(|policy| policy == row.policy) || row.policy == HARMFUL
}

/// Sections of a row. The total is omitted for a single process, which equals it.
fn sections(row: &Row) -> Vec<&Section> {
    match row.tenants.as_slice() {
        [] => vec![&row.total],
        [one] => vec![one],
        several => several.iter().chain([&row.total]).collect(),
    }
}

/// Cells of a process.
struct Cells([String; 4]);

impl Cells {
    fn of(section: &Section) -> Self {
        let at_most = if section.evicted_at_most && section.evicted_bytes.median > 0.0 { "<=" } else { "" };
        Self([
            count(section.fault_entries),
            mib(section.link_bytes_htod),
            mib(section.link_bytes_dtoh),
            at_most.to_owned() + &mib(section.evicted_bytes),
        ])
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a median of counts")]
fn count(summary: Summary) -> String {
    digits(summary.median.round() as u64)
}

fn mib(summary: Summary) -> String {
    format!("{:.1}", summary.median / MIB as f64)
}

fn milliseconds(summary: Summary) -> String {
    format!("{:.2}", summary.median * 1e3)
}

fn control_line(control: &Control) -> String {
    let Control { policy, holds, reason } = control;
    format!("{} {policy}, a control policy: {reason}", if *holds { "ok  " } else { "MISS" })
}

/// Text of at most 100 columns.
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.circumstances())?;
        for scenario in self.scenarios() {
            writeln!(
                f,
                "\n{scenario:<16} {:>5} {:<12} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10}",
                "rate", "process", "faults", "MiB in", "MiB out", "evicted", "replays", "model, ms"
            )?;
            for row in self.rows.iter().filter(|row| row.scenario == scenario) {
                show(f, row)?;
            }
        }
        writeln!(f)?;
        for control in &self.controls {
            writeln!(f, "{}", control_line(control))?;
        }
        if self.missing > 0 {
            writeln!(f, "{} planned runs are missing", self.missing)?;
        }
        let judged = || self.rows.iter().filter(|row| policy::acts(&row.policy) && !is_control(row));
        let missed = judged().filter(|row| !row.holds()).count();
        let invalid = self.rows.iter().filter(|row| !row.is_valid()).count();
        let verdict = if self.holds { "PASS" } else { "FAIL" };
        let reached = judged().count() - missed;
        writeln!(f, "{verdict}: {reached} rows reach their targets, {missed} do not; {invalid} had problems")
    }
}

fn show(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    for (at, section) in sections(row).into_iter().enumerate() {
        let Cells([faults, to_gpu, to_host, evicted]) = Cells::of(section);
        let of_row = |text: String| if at == 0 { text } else { String::new() };
        writeln!(
            f,
            "{:<16} {:>5} {:<12} {faults:>9} {to_gpu:>9} {to_host:>9} {evicted:>9} {:>8} {:>10}",
            of_row(row.policy.clone()),
            of_row(format!("{}x", row.rate)),
            section.name.chars().take(12).collect::<String>(),
            of_row(count(row.replays)),
            of_row(milliseconds(row.modelled_seconds)),
        )?;
    }
    for check in &row.checks {
        writeln!(f, "    {check}")?;
    }
    if !row.decisions.is_empty() {
        let decisions: Vec<String> = row.decisions.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
        writeln!(f, "    decisions: {}", decisions.join(", "))?;
    }
    if !row.verified {
        writeln!(f, "    MISS data: not every byte of every run is verified")?;
    }
    row.problems.iter().try_for_each(|problem| writeln!(f, "    problem: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{plan::Run, policy::DRIVER, rows::tests::record};

    fn plan(runs: usize) -> Plan {
        let text = "name = \"s\"\n[[process]]\nname = \"p\"\n[[target]]\nfigure = \"link_bytes\"\nat_most = 0.5\n";
        let run = Run { policy: DRIVER.to_owned(), seed: 1, rate: 1.0 };
        Plan { scenario: Text { name: "s".to_owned(), text: text.to_owned() }, runs: vec![run; runs], uvmd: Vec::new() }
    }

    fn compared(copied: u64) -> Comparison {
        let runs = vec![record(DRIVER, 1, 1.0, 1 << 30, 0), record("cycle", 1, 1.0, copied, 0)];
        Comparison::new(&[plan(2)], runs).unwrap()
    }

    #[test]
    fn a_row_that_misses_a_target_is_marked_and_fails_all() {
        let (good, bad) = (compared(1 << 28), compared(3 << 28));
        assert!(good.holds() && !bad.holds());
        assert!(good.to_string().contains("ok   link_bytes: 25.0 % of the driver's, at most 50.0 %"), "{good}");
        assert!(bad.to_string().contains("MISS link_bytes: 75.0 % of the driver's"), "{bad}");
        assert!(bad.to_string().ends_with("FAIL: 0 rows reach their targets, 1 do not; 0 had problems\n"), "{bad}");
        assert!(bad.markdown().contains("| s | cycle | 1x | p |"), "{}", bad.markdown());
    }

    #[test]
    fn a_missing_run_fails_all() {
        let runs = vec![record(DRIVER, 1, 1.0, 1 << 30, 0)];
        let comparison = Comparison::new(&[plan(2)], runs).unwrap();
        assert!(!comparison.holds() && comparison.to_string().contains("1 planned runs are missing"));
    }

    #[test]
    fn lines_of_the_table_are_not_too_long() {
        let text = compared(1 << 28).to_string();
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 100), "{text}");
    }
}
