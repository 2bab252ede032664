//! Random circles, and where published traces are.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

use trace::{Circle, Span};

/// The folder of published traces, which are not part of the project: `UVMD_DATA`, or a folder beside the project. Says so where there is none.
pub(crate) fn data() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("UVMD_DATA").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // Past the test harness, which would keep it to itself.
    let line = format!("skipped: no published traces in {} (UVMD_DATA names another folder)\n", folder.display());
    SAID.call_once(|| std::io::stderr().write_all(line.as_bytes()).unwrap());
    None
}

/// Numbers that look random and are the same every time.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Blocks that begin anywhere and last for up to the period; a few in more than one copy.
    pub(crate) fn circle(&mut self, blocks: u64, period: u64, most_bytes: u64) -> Circle {
        let mut spans: Vec<_> = (0..blocks)
            .map(|source| {
                let copies = if self.below(10) == 0 { 2 } else { 1 };
                let length = if copies > 1 { period } else { 1 + self.below(period) };
                let bytes = 1 + self.below(most_bytes);
                Span { source, bytes, start: self.below(period), length, copies }
            })
            .collect();
        spans.sort_by_key(|span| span.start);
        Circle { period, spans, persistent_bytes: 0, turns: 1 }
    }
}
