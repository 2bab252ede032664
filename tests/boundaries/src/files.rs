//! Places of modules: module `x` in `x.rs`, its parts in `x/`, without other paths.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::{Error, parse};

/// All Rust sources below a folder, without generated ones.
///
/// # Errors
///
/// If a folder cannot be read.
pub fn sources(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::File { path: folder.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().map_err(unreadable)?.is_dir() {
            if name != "target" && name != "out" && !name.as_encoded_bytes().starts_with(b".") {
                found.extend(sources(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Sources that are `mod.rs`, or that set the file of a module.
///
/// # Errors
///
/// If a source cannot be read.
pub fn elsewhere(sources: &[PathBuf]) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for path in sources {
        if is_mod_rs(path) {
            found.push(format!("{}: shall be the folder's name with .rs, beside it", path.display()));
        }
        if names_a_file(&parse(path)?) {
            found.push(format!("{}: names the file of a module", path.display()));
        }
    }
    Ok(found)
}

/// Whether this module is in the folder of its parts.
fn is_mod_rs(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "mod.rs")
}

/// Whether an attribute sets a module's file.
fn names_a_file(file: &syn::File) -> bool {
    struct Named(bool);
    impl Visit<'_> for Named {
        fn visit_attribute(&mut self, attribute: &syn::Attribute) {
            let is_path = attribute.path().is_ident("path");
            let may_be = attribute.path().is_ident("cfg_attr");
            let is_there = matches!(&attribute.meta, syn::Meta::List(list) if may_be && has_path(list.tokens.clone()));
            self.0 |= is_path || is_there;
            visit::visit_attribute(self, attribute);
        }
    }
    let mut named = Named(false);
    named.visit_file(file);
    named.0
}

fn has_path(tokens: TokenStream) -> bool {
    let tokens: Vec<_> = tokens.into_iter().collect();
    tokens.windows(2).any(|two| match two {
        [TokenTree::Ident(name), TokenTree::Punct(sign)] => name == "path" && sign.as_char() == '=',
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_named(text: &str) -> bool {
        names_a_file(&syn::parse_file(text).unwrap())
    }

    #[test]
    fn module_by_path_is_found_anywhere() {
        assert!(is_named("#[path = \"other.rs\"] mod it;"));
        assert!(is_named("mod inner { #[cfg(test)] #[path = \"other.rs\"] mod it; }"));
        assert!(is_named("#[cfg_attr(unix, path = \"unix.rs\")] mod it;"));
        assert!(!is_named("#[serde(path = \"a\")] struct It; #[cfg_attr(test, derive(Debug))] struct Other;"));
    }

    #[test]
    fn mod_rs_file_is_found() {
        assert!(is_mod_rs(Path::new("src/act/mod.rs")));
        assert!(!is_mod_rs(Path::new("src/act.rs")));
    }

    #[test]
    fn sources_in_every_folder_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let all = sources(folder).unwrap();
        for path in ["src/files.rs", "tests/workspace.rs"] {
            assert!(all.contains(&folder.join(path)), "{all:?}");
        }
    }
}
