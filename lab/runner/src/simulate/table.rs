//! Table of the comparison for readers: a line for each scenario and figure.

use std::fmt;

use serde::Serialize;

use super::compare::{Compared, Row};
use crate::digits::digits;

/// Comparisons of all scenarios.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    pub(super) scenarios: Vec<Compared>,
}

impl Table {
    pub(super) fn holds(&self) -> bool {
        self.scenarios.iter().all(Compared::holds)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lab, simulated) = ("lab", "simulated");
        writeln!(
            f,
            "{:<16} {:>4} {:<16} {lab:>28} {simulated:>14} {:>8} {:>6}",
            "scenario", "MiB", "figure", "off by", "limit"
        )?;
        for Compared { scenario, gpu_mem_mib, figures } in &self.scenarios {
            for Row { figure, lab, simulated, error, limit, holds } in figures {
                let lab = match lab.as_slice() {
                    [] => "-".to_owned(),
                    [least, .., most] if least != most => format!("{} to {}", digits(*least), digits(*most)),
                    [one, ..] => digits(*one),
                };
                let error = error.map_or_else(|| "-".to_owned(), |error| format!("{:+.2}%", 100.0 * error));
                let limit = limit.map_or_else(|| "-".to_owned(), |limit| format!("{}%", 100.0 * limit));
                let mark = if *holds { "" } else { "  MISS" };
                let simulated = digits(*simulated);
                writeln!(
                    f,
                    "{scenario:<16} {gpu_mem_mib:>4} {figure:<16} {lab:>28} {simulated:>14} {error:>8} {limit:>6}{mark}"
                )?;
            }
        }
        Ok(())
    }
}
