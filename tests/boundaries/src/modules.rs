//! Modules of a crate without its tests, and their uses of each other.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Error, parse,
    paths::{Paths, Segments, is_test},
};

/// Limit on aliases of aliases: more than any source has.
const DEPTH_MAX: u32 = 16;

/// Module of a [`Tree`].
#[derive(Debug)]
pub struct Module {
    /// `crate::a::b`
    pub name: String,
    pub(crate) parent: Option<usize>,
    children: BTreeMap<String, usize>,
    pub(crate) paths: Paths,
}

/// Modules below one root file.
#[derive(Debug, Default)]
pub struct Tree {
    pub(crate) modules: Vec<Module>,
}

/// Target of a path.
enum Reached {
    Module(usize),
    /// Item of this module.
    Item(usize),
}

impl Tree {
    /// Reads the root file of a library or program, and every file below it.
    ///
    /// # Errors
    ///
    /// If a file is missing or not Rust.
    pub fn read(root: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        let folder = root.parent().unwrap_or(Path::new(""));
        tree.add("crate", None, &parse(root)?.items, root, folder)?;
        Ok(tree)
    }

    /// Reads a crate with one file.
    ///
    /// # Errors
    ///
    /// If it is not Rust, or declares a module elsewhere.
    pub fn of_text(text: &str) -> Result<Self, Error> {
        let path = PathBuf::from("text");
        let file = syn::parse_file(text).map_err(|source| Error::Syntax { path: path.clone(), source })?;
        let mut tree = Self::default();
        tree.add("crate", None, &file.items, &path, &path)?;
        Ok(tree)
    }

    /// Adds a module. `folder`: the folder of its children's files.
    fn add(
        &mut self,
        name: &str,
        parent: Option<usize>,
        items: &[syn::Item],
        file: &Path,
        folder: &Path,
    ) -> Result<usize, Error> {
        let at = self.modules.len();
        self.modules.push(Module { name: name.to_owned(), parent, children: BTreeMap::new(), paths: Paths::of(items) });
        for item in items {
            let syn::Item::Mod(child) = item else { continue };
            if is_test(&child.attrs) {
                continue;
            }
            let (own, folder) = (child.ident.to_string(), folder.join(child.ident.to_string()));
            let full = format!("{name}::{own}");
            let added = if let Some((_, items)) = &child.content {
                self.add(&full, Some(at), items, file, &folder)?
            } else {
                let path = folder.with_extension("rs");
                if !path.is_file() {
                    return Err(Error::NoFile { path: file.to_owned(), name: own });
                }
                self.add(&full, Some(at), &parse(&path)?.items, &path, &folder)?
            };
            self.modules.get_mut(at).map(|module| module.children.insert(own, added));
        }
        Ok(at)
    }

    /// Modules of this crate that a module uses: those that define the items, even if others
    /// re-export them.
    pub(crate) fn used_by(&self, at: usize) -> Vec<usize> {
        let Some(Module { paths, .. }) = self.modules.get(at) else { return Vec::new() };
        let all = paths.names.iter().map(|(_, path)| path).chain(&paths.globs).chain(&paths.written);
        let mut used: Vec<_> = all.filter_map(|path| self.resolve(at, path, 0)).map(Reached::module).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Full path of an item of another crate; `None` for items of this one.
    pub(crate) fn foreign(&self, at: usize, path: &[String]) -> Option<Segments> {
        let mut path = path.to_vec();
        for _ in 0..DEPTH_MAX {
            let first = path.first()?;
            if matches!(first.as_str(), "crate" | "self" | "super" | "Self") {
                return None;
            }
            let named =
                self.modules.get(at)?.paths.names.iter().find(|(name, of)| name == first && of.first() != Some(name));
            let Some((_, stands_for)) = named else { break };
            path = [stands_for, path.get(1..)?].concat();
        }
        Some(path)
    }

    fn resolve(&self, at: usize, path: &[String], depth: u32) -> Option<Reached> {
        let (first, rest) = path.split_first()?;
        let mut reached = match first.as_str() {
            "crate" => Reached::Module(0),
            "self" => Reached::Module(at),
            "super" => Reached::Module(self.modules.get(at)?.parent?),
            name => self.step(at, name, depth)?,
        };
        for name in rest {
            let Reached::Module(module) = reached else { break };
            reached = match name.as_str() {
                "super" => Reached::Module(self.modules.get(module)?.parent?),
                "self" => Reached::Module(module),
                name => self.step(module, name, depth).unwrap_or(Reached::Item(module)),
            };
        }
        Some(reached)
    }

    /// Target of a name in a module; `None` for its own items and for other crates.
    fn step(&self, at: usize, name: &str, depth: u32) -> Option<Reached> {
        let module = self.modules.get(at)?;
        if let Some(child) = module.children.get(name) {
            return Some(Reached::Module(*child));
        }
        if depth >= DEPTH_MAX {
            return None;
        }
        if let Some((_, path)) = module.paths.names.iter().find(|(own, _)| own == name) {
            return self.resolve(at, path, depth + 1);
        }
        module.paths.globs.iter().find_map(|path| match self.resolve(at, path, depth + 1)? {
            Reached::Module(other) if other != at => self.step(other, name, depth + 1),
            _ => None,
        })
    }
}

impl Reached {
    fn module(self) -> usize {
        match self {
            Self::Module(at) | Self::Item(at) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the modules that `crate::a` uses.
    fn used(text: &str) -> Vec<String> {
        let tree = Tree::of_text(text).unwrap();
        let a = tree.modules.iter().position(|module| module.name == "crate::a").unwrap();
        tree.used_by(a).into_iter().map(|at| tree.modules[at].name.clone()).collect()
    }

    #[test]
    fn every_kind_of_path_is_a_use() {
        for names in [
            "use crate::b::X;",
            "use crate::{b::{self, X as Y}};",
            "use super::b::*;",
            "fn f() { crate::b::f() }",
            "fn f() -> super::b::X { todo!() }",
            "fn f() { println!(\"{}\", crate::b::f()) }",
            "macro_rules! m { () => { $crate::b::f() } }",
            "#[serde(with = \"crate::b\")] struct S;",
            "impl crate::b::X for u8 {}",
            "fn f() { self::super::b::f() }",
        ] {
            assert_eq!(used(&format!("mod a {{ {names} }} mod b {{}}")), ["crate::b"], "{names}");
        }
    }

    #[test]
    fn re_exported_item_is_used_at_its_definition() {
        assert_eq!(used("pub use b::c::X; mod a { use crate::X; } mod b { pub mod c {} }"), ["crate::b::c"]);
        assert_eq!(used("mod a { use super::b::X; } mod b { mod c {} pub use c::X; }"), ["crate::b::c"]);
    }

    #[test]
    fn tests_and_other_crates_use_nothing() {
        assert!(used("mod a { #[cfg(test)] mod tests { use crate::b; } } mod b {}").is_empty());
        assert!(used("mod a { #[cfg(test)] use crate::b; #[cfg(test)] fn f() { crate::b::g() } } mod b {}").is_empty());
        assert!(used("mod a { use b::X; use std::fmt; fn f() { b::g() } }").is_empty());
    }

    #[test]
    fn every_module_is_read_and_one_without_a_file_is_an_error() {
        let tree = Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
        let names: Vec<_> = tree.modules.iter().map(|module| module.name.as_str()).collect();
        assert!(names.contains(&"crate::cycles") && names.contains(&"crate::paths"), "{names:?}");
        assert!(!names.iter().any(|name| name.ends_with("tests")), "{names:?}");
        assert!(matches!(Tree::of_text("mod nowhere;"), Err(Error::NoFile { .. })));
    }
}
