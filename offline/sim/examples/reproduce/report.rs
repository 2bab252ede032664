//! What is printed, and which figures of ours miss what they are held to.

use std::fmt::Display;

/// What a figure of ours is held to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A published figure, and how far from it ours may be.
    Near(f64, f64),
    /// A published figure, and by which part of it ours may differ.
    Within(f64, f64),
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn is_met(self, own: f64) -> bool {
        match self {
            Self::Near(published, allowed) => (own - published).abs() <= allowed,
            Self::Within(published, part) => (own / published - 1.0).abs() <= part,
            Self::AtLeast(least) => own >= least,
            Self::AtMost(most) => own <= most,
        }
    }

    /// What it should be, and how far from that it is.
    fn missed_by(self, own: f64, digits: usize, unit: &str) -> String {
        let (what, target) = match self {
            Self::Near(published, _) | Self::Within(published, _) => ("published", published),
            Self::AtLeast(least) => ("at least", least),
            Self::AtMost(most) => ("at most", most),
        };
        let by = match self {
            Self::Within(..) => format!("{:+.0} %", 100.0 * (own / target - 1.0)),
            _ => format!("{:+.digits$}{unit}", own - target),
        };
        format!("{what} {target:.digits$}{unit}, by {by}")
    }
}

/// What there is; or a line in place of it where its data cannot be read.
pub(crate) fn or_skip<T>(row: &str, found: Result<T, impl Display>) -> Option<T> {
    found.map_err(|error| println!("| {row} | skipped: {error} |")).ok()
}

/// Sections one after the other, and at their end what they missed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    section: String,
    missed: Vec<String>,
}

impl Report {
    /// Begins a section; its name is short, for the list of what was missed.
    pub(crate) fn section(&mut self, name: &str, title: &str) {
        name.clone_into(&mut self.section);
        println!("## {title}\n");
    }

    /// A figure of ours; bold, and kept, if it misses its target.
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
        let missed = target.missed_by(own, digits, unit);
        self.missed.push(format!("| {} | {row} | {column} | {shown} | {missed} |", self.section));
        format!("**{shown}**")
    }

    /// What has no figure of ours though there is a published one, or the other way round; bold, and kept.
    pub(crate) fn differs(&mut self, row: &str, column: &str, shown: &str, why: &str) -> String {
        self.missed.push(format!("| {} | {row} | {column} | {shown} | {why} |", self.section));
        format!("**{shown}**")
    }

    /// The list of what was missed.
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
    fn what_misses_is_bold_and_listed_with_how_far() {
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
