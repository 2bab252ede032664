//! Crates of the workspace and the probes, and the arrows between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, MetadataCommand, Package, Target};

use crate::Error;

/// Crate of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Crate {
    /// Folder below the root of the workspace.
    pub folder: PathBuf,
    /// Crates of the workspace that it uses, without development dependencies.
    pub uses: BTreeSet<String>,
    /// Root files of its library and programs.
    pub roots: Vec<PathBuf>,
}

/// Crates by name.
pub type Crates = BTreeMap<String, Crate>;

/// Crates of the workspace, and the probes, which have a separate workspace.
///
/// # Errors
///
/// If cargo cannot read a manifest.
pub fn crates(root: &Path) -> Result<Crates, Error> {
    let mut crates = Crates::new();
    let root = root.canonicalize().map_err(|source| Error::File { path: root.to_owned(), source })?;
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let metadata = MetadataCommand::new().manifest_path(root.join(manifest)).no_deps().exec()?;
        crates.extend(metadata.packages.iter().map(|package| (package.name.to_string(), of(package, &root))));
    }
    Ok(crates)
}

fn of(package: &Package, root: &Path) -> Crate {
    let folder = package.manifest_path.parent().map_or(Path::new(""), |folder| folder.as_std_path());
    let uses = package.dependencies.iter().filter(|used| used.path.is_some());
    let targets = package.targets.iter().filter(|target| is_linked(target));
    Crate {
        folder: folder.strip_prefix(root).unwrap_or(folder).to_owned(),
        uses: uses.filter(|used| used.kind != DependencyKind::Development).map(|used| used.name.clone()).collect(),
        roots: targets.map(|target| target.src_path.clone().into_std_path_buf()).collect(),
    }
}

/// Whether a target is a library of any type, or a program.
fn is_linked(target: &Target) -> bool {
    let is_library = target.is_lib() || target.is_rlib() || target.is_dylib();
    is_library || target.is_cdylib() || target.is_staticlib() || target.is_proc_macro() || target.is_bin()
}

/// All crates of the workspace that a crate links, directly or transitively.
#[must_use]
pub fn closure(crates: &Crates, name: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![name];
    while let Some(at) = open.pop() {
        for used in crates.get(at).into_iter().flat_map(|each| &each.uses) {
            if reached.insert(used.clone()) {
                open.push(used);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_transitive() {
        let uses = |names: &[&str]| Crate { uses: names.iter().map(ToString::to_string).collect(), ..Crate::default() };
        let crates =
            [("lab", uses(&["sim"])), ("sim", uses(&["policy"])), ("policy", uses(&[])), ("web", uses(&["policy"]))];
        let crates = crates.map(|(name, each)| (name.to_owned(), each)).into();
        assert_eq!(closure(&crates, "lab"), BTreeSet::from(["sim".to_owned(), "policy".to_owned()]));
    }
}
