//! The file of names: written when names have changed, at most once a second, and as a heartbeat.

use std::{
    fs::{self, File},
    io::Read,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use api::owner_names::{self, OwnerNames};

use crate::{file, registry::Registry};

/// File of names.
#[derive(Debug)]
pub struct NamesFile {
    path: PathBuf,
    /// Interval of writes without a change.
    heartbeat: Duration,
    /// Generation and time of the last write.
    written: Option<(u64, SystemTime)>,
}

impl NamesFile {
    /// File at this path.
    #[must_use]
    pub const fn new(path: PathBuf, heartbeat: Duration) -> Self {
        Self { path, heartbeat, written: None }
    }

    /// Names in the file of the previous run, if they are valid.
    #[must_use]
    pub fn former(&self) -> Option<OwnerNames> {
        let mut text = String::new();
        File::open(&self.path).ok()?.take(owner_names::BYTES_MAX).read_to_string(&mut text).ok()?;
        let former: OwnerNames = serde_json::from_str(&text).ok()?;
        former.clone().check(None).is_ok().then_some(former)
    }

    /// Writes the names if they have changed, or if the heartbeat is due. Returns whether it did.
    ///
    /// # Errors
    /// If the file cannot be written; the next call tries again.
    pub fn update(
        &mut self,
        registry: &Registry,
        now: SystemTime,
        contacted_at: Option<SystemTime>,
    ) -> anyhow::Result<bool> {
        let is_current = self.written.is_some_and(|(generation, at)| {
            // After the clock was set back, the heartbeat is due.
            let age = now.duration_since(at).unwrap_or(self.heartbeat);
            generation == registry.generation() && age < self.heartbeat
        });
        if is_current {
            return Ok(false);
        }
        let text = serde_json::to_vec(&registry.document(now, contacted_at))?;
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        file::replace(&self.path, &text).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.written = Some((registry.generation(), now));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn file_is_written_on_changes_and_as_a_heartbeat() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/owners.json");
        let mut file = NamesFile::new(path, SECOND * 15);
        let mut registry = Registry::new(BTreeSet::new(), SECOND);
        let start = SystemTime::UNIX_EPOCH + SECOND * 100;
        let mut update = |registry: &Registry, seconds| file.update(registry, start + SECOND * seconds, None).unwrap();
        assert!(update(&registry, 0));
        assert!(!update(&registry, 14));
        let metadata = json!({ "uid": "3f2a9c1e-1111-2222-3333-444444444444", "namespace": "ml", "name": "llm" });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {} });
        registry.apply(&serde_json::from_value(pod).unwrap());
        assert!(update(&registry, 14));
        assert!(!update(&registry, 28));
        assert!(update(&registry, 29));
        assert_eq!(file.former().unwrap().pods[0].name, "llm");
    }
}
