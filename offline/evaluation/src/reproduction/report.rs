//! Printed report, and the list of figures that miss their targets.

use std::fmt::Display;

/// Target of one of our figures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Published figure and absolute tolerance.
    Near(f64, f64),
    /// Published figure and relative tolerance.
    Within(f64, f64),
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(self, own: f64) -> bool {
        match self {
            Self::Near(published, allowed) => (own - published).abs() <= allowed,
            Self::Within(published, part) => (own / published - 1.0).abs() <= part,
            Self::AtLeast(minimum) => own >= minimum,
            Self::AtMost(maximum) => own <= maximum,
        }
    }

    /// Target, and distance from it.
    fn miss(self, own: f64, digits: usize, unit: &str) -> String {
        let (relation, target) = match self {
            Self::Near(published, _) | Self::Within(published, _) => ("published", published),
            Self::AtLeast(minimum) => ("at least", minimum),
            Self::AtMost(maximum) => ("at most", maximum),
        };
        let by = match self {
            Self::Within(..) => format!("{:+.0} %", 100.0 * (own / target - 1.0)),
            _ => format!("{:+.digits$}{unit}", own - target),
        };
        format!("{relation} {target:.digits$}{unit}, by {by}")
    }
}

/// The value; or `None` after printing a line in its place, if its data cannot be read.
pub(crate) fn or_skip<T>(row: &str, value: Result<T, impl Display>) -> Option<T> {
    value.map_err(|error| println!("| {row} | skipped: {error} |")).ok()
}

/// Report of sections, and figures that missed their targets.
#[derive(Debug, Default)]
pub(crate) struct Report {
    section: String,
    missed: Vec<String>,
}

impl Report {
    /// Begins a section; its name is short, for the list of misses.
    pub(crate) fn section(&mut self, name: &str, title: &str) {
        name.clone_into(&mut self.section);
        println!("## {title}\n");
    }

    /// Formats one of our figures; bold, and recorded, if it misses its target.
    pub(crate) fn figure(
        &mut self,
        row: &str,
        column: &str,
        own: f64,
        (digits, unit): (usize, &str),
        target: Target,
    ) -> String {
        let shown = format!("{own:.digits$}{unit}");
        if target.is_met(own) {
            return shown;
        }
        let missed = target.miss(own, digits, unit);
        self.missed.push(format!("| {} | {row} | {column} | {shown} | {missed} |", self.section));
        format!("**{shown}**")
    }

    /// Formats a cell for which only one side has a figure, ours or the published one; bold, and
    /// recorded.
    pub(crate) fn differs(&mut self, row: &str, column: &str, shown: &str, reason: &str) -> String {
        self.missed.push(format!("| {} | {row} | {column} | {shown} | {reason} |", self.section));
        format!("**{shown}**")
    }

    /// Prints the list of misses.
    pub(crate) fn end(&self) {
        println!("## Missed\n\nWhy: [what is missed, and why](reproduction-missed.md).\n");
        if self.missed.is_empty() {
            println!("Nothing in the tables above.");
            return;
        }
        println!("| table | row | column | ours | held to |\n| --- | --- | --- | --- | --- |");
        self.missed.iter().for_each(|line| println!("{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_bold_and_listed_with_its_distance() {
        let mut report = Report { section: "pools".into(), ..Report::default() };
        assert_eq!(report.figure("A", "ours", 15.3, (1, " %"), Target::Near(15.5, 0.2)), "15.3 %");
        assert_eq!(report.figure("A", "ours", 15.2, (1, " %"), Target::Near(15.5, 0.2)), "**15.2 %**");
        assert_eq!(report.figure("B", "time", 3.0, (2, ""), Target::Within(2.0, 0.1)), "**3.00**");
        assert_eq!(report.figure("C", "ratio", 1.9, (2, ""), Target::AtLeast(2.0)), "**1.90**");
        assert_eq!(report.figure("C", "ratio", 1.0, (3, ""), Target::AtMost(1.0)), "1.000");
        assert_eq!(
            report.missed,
            [
                "| pools | A | ours | 15.2 % | published 15.5 %, by -0.3 % |",
                "| pools | B | time | 3.00 | published 2.00, by +50 % |",
                "| pools | C | ratio | 1.90 | at least 2.00, by -0.10 |",
            ]
        );
    }
}
