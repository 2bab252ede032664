//! Paths in a module, without its tests.

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, UseTree,
    visit::{self, Visit},
};

/// Segments of a path as written.
pub(crate) type Segments = Vec<String>;

/// Paths in the items of a module.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Names imported by `use`, with their paths.
    pub(crate) names: Vec<(String, Segments)>,
    /// Modules and types imported by `use` with all their items.
    pub(crate) globs: Vec<Segments>,
    /// Paths in code and in arguments of macros.
    pub(crate) written: Vec<Segments>,
    /// Methods called without arguments.
    pub(crate) calls: Vec<String>,
}

/// Whether this is compiled for tests only.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    let is_cfg_test = |attribute: &Attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    };
    attributes.iter().any(is_cfg_test)
}

impl Paths {
    /// Paths of all items except modules, which are read separately.
    pub(crate) fn of(items: &[syn::Item]) -> Self {
        let mut paths = Self::default();
        for item in items {
            paths.visit_item(item);
        }
        paths
    }

    fn add_use(&mut self, tree: &UseTree, above: &[String]) {
        let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_use(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|each| self.add_use(each, above)),
            UseTree::Glob(_) => self.globs.push(above.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                self.names.extend(above.last().map(|last| (last.clone(), above.to_vec())));
            }
            UseTree::Name(name) => self.names.push((name.ident.to_string(), with(&name.ident))),
            UseTree::Rename(renamed) if renamed.ident == "self" => {
                self.names.push((renamed.rename.to_string(), above.to_vec()));
            }
            UseTree::Rename(renamed) => self.names.push((renamed.rename.to_string(), with(&renamed.ident))),
        }
    }

    /// Adds paths among the tokens, and in texts that are paths of this crate, as serde accepts.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.written.push(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                TokenTree::Punct(_) => colons = 0,
                TokenTree::Group(group) => {
                    self.add_tokens(group.stream());
                    colons = 0;
                }
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let text = text.trim_matches('"');
                    if text.starts_with("crate::") || text.starts_with("super::") {
                        self.written.push(text.split("::").map(str::to_owned).collect());
                    }
                    colons = 0;
                }
            }
        }
        self.written.push(path);
        self.written.retain(|path| !path.is_empty());
    }
}

impl Visit<'_> for Paths {
    fn visit_item(&mut self, item: &syn::Item) {
        let attributes: &[Attribute] = match item {
            syn::Item::Mod(_) => return,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        self.add_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.written.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        if call.args.is_empty() {
            self.calls.push(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
    }
}
