//! Decisions that uvmd reports after a run, from its public API.

use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::uvmd::Client;

/// Compared part of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Decision {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) verdict: Option<String>,
    pub(super) stage: String,
    pub(super) stage_reason: Option<String>,
    /// Last error of the driver or the guard.
    #[serde(default)]
    pub(super) last_error: Option<serde_json::Value>,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    /// Kinds of advice that it has given.
    #[serde(default)]
    pub(super) advice: Vec<String>,
    pub(super) done: Done,
    pub(super) before: Option<Window>,
    pub(super) after: Option<Window>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) to_gpu_bytes: u64,
    pub(super) to_host_bytes: u64,
    pub(super) touches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) window_seconds: f64,
}

#[derive(Deserialize)]
struct Response {
    decisions: Vec<Decision>,
}

/// Tolerance for a rollback after two windows: the interval of policies.
const INTERVAL: Duration = Duration::from_millis(100);

/// Number of calls of the driver by a uvmd.
pub(crate) fn calls(client: &Client) -> anyhow::Result<u64> {
    Ok(ask(client)?.iter().map(|decision| decision.done.calls).sum())
}

/// Whether a uvmd has advice in force.
pub(crate) fn has_advised(client: &Client) -> anyhow::Result<bool> {
    Ok(ask(client)?
        .iter()
        .any(|decision| !decision.advice.is_empty() && ["trial", "confirmed"].contains(&decision.stage.as_str())))
}

pub(super) fn ask(client: &Client) -> anyhow::Result<Vec<Decision>> {
    Ok(client.get::<Response>("/api/v1/decisions?limit=1000")?.decisions)
}

impl Decision {
    /// Whether the decision was rolled back within two of its windows.
    pub(super) fn was_rolled_back_in_time(&self) -> anyhow::Result<bool> {
        let time = |text: &str| humantime::parse_rfc3339(text).with_context(|| format!("uvmd's time {text:?}"));
        let age = time(&self.updated_at)?.duration_since(time(&self.created_at)?).unwrap_or_default();
        let longest = [self.before, self.after].into_iter().flatten().map(|window| window.window_seconds);
        let window = Duration::try_from_secs_f64(longest.fold(0.0, f64::max)).unwrap_or_default();
        Ok(self.stage == "rolled_back" && age <= window * 2 + INTERVAL)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Decision of `harmful`, created 10 s after the start of 2026, with windows of 2 s.
    pub(in crate::compare) fn decision(stage: &str, updated_at: &str) -> Decision {
        serde_json::from_value(json!({
            "id": 1, "name": "p", "policy": "harmful", "verdict": null, "stage": stage, "stage_reason": "worse",
            "created_at": "2026-01-01T00:00:10Z", "updated_at": updated_at,
            "done": { "calls": 3, "failed": 0, "to_gpu_bytes": 1, "to_host_bytes": 2, "touches": 0, "longest_ns": 9 },
            "before": { "window_seconds": 2.0, "replays": 1 }, "after": null,
        }))
        .unwrap()
    }

    #[test]
    fn rolled_back_within_two_windows_is_in_time() {
        assert!(decision("rolled_back", "2026-01-01T00:00:14Z").was_rolled_back_in_time().unwrap());
        assert!(!decision("rolled_back", "2026-01-01T00:00:16Z").was_rolled_back_in_time().unwrap());
        assert!(!decision("confirmed", "2026-01-01T00:00:12Z").was_rolled_back_in_time().unwrap());
        assert!(decision("rolled_back", "yesterday").was_rolled_back_in_time().is_err());
    }
}
