//! Titles of the columns of uvmctl's tables, read from its sources, so that no table can be forgotten.
#![cfg(test)]

use std::{collections::BTreeMap, fs, path::Path};

use syn::{
    Expr, ExprCall, ExprLit, ItemMod, Lit, Macro, Token,
    punctuated::Punctuated,
    visit::{self, Visit},
};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../uvmctl/src");

/// What one file has.
#[derive(Default)]
struct Titles {
    /// In the order of the table.
    columns: Vec<String>,
    /// Those that narrow terminals shorten or omit.
    conceded: Vec<String>,
}

/// Texts among the arguments of a call.
fn texts(call: &ExprCall) -> Vec<String> {
    let text = |argument: &Expr| match argument {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    };
    call.args.iter().map_while(text).collect()
}

impl<'a> Visit<'a> for Titles {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if item.ident != "tests" && item.ident != "testing" {
            visit::visit_item_mod(self, item);
        }
    }

    /// Such as `vec!`.
    fn visit_macro(&mut self, of_list: &'a Macro) {
        let list = of_list.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for item in list.iter().flatten() {
            self.visit_expr(item);
        }
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let names: Vec<_> = function.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["Column", "text" | "number"] | ["counter" | "number"] => {
                    self.columns.extend(texts(call).into_iter().next());
                }
                // Of uvmctl top: the name for --sort first.
                ["column"] => self.columns.extend(texts(call).into_iter().nth(1)),
                ["Concession", _] => self.conceded.extend(texts(call)),
                _ => {}
            }
        }
        visit::visit_expr_call(self, call);
    }
}

/// Of the files that have any, by their names.
fn all() -> BTreeMap<String, Titles> {
    let mut all = BTreeMap::new();
    let mut folders = vec![Path::new(SOURCES).to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let mut titles = Titles::default();
                titles.visit_file(&syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap());
                let name = path.strip_prefix(SOURCES).unwrap().with_extension("").display().to_string();
                all.insert(name, titles);
            }
        }
    }
    all.retain(|_, titles| !titles.columns.is_empty() || !titles.conceded.is_empty());
    all
}

#[test]
fn columns_match_the_golden_file() {
    let lines = all().into_iter().map(|(file, titles)| format!("{file}: {}\n", titles.columns.join(", ")));
    surface::hold("columns.txt", &lines.collect::<String>());
}

#[test]
fn conceded_columns_exist() {
    for (file, Titles { columns, conceded }) in all() {
        for title in conceded {
            assert!(
                columns.iter().any(|column| column.strip_suffix("/s").unwrap_or(column) == title),
                "{file}: {title}"
            );
        }
    }
}
