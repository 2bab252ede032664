//! Cycles of modules.
//!
//! Rule: the children of one module form no cycle, each taken with everything below it, at every
//! level. A module and its parent are one component, in which either may use the other: a file and
//! the folder of its parts.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use crate::modules::Tree;

/// Cycle of modules, which use each other directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Modules in alphabetical order.
    pub members: Vec<String>,
    /// Arrows between two of them, with the modules below them at their ends.
    pub arrows: Vec<String>,
}

/// Arrows between modules below two siblings.
type Arrows = BTreeMap<(usize, usize), BTreeSet<(usize, usize)>>;

/// All cycles of a crate.
#[must_use]
pub fn cycles(tree: &Tree) -> Vec<Cycle> {
    let mut arrows = Arrows::new();
    for from in 0..tree.modules.len() {
        for to in tree.used_by(from) {
            if let Some(siblings) = siblings(tree, from, to) {
                arrows.entry(siblings).or_default().insert((from, to));
            }
        }
    }
    // Only siblings are joined, so that one graph serves all levels.
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<_> = tree.modules.iter().map(|_| graph.add_node(())).collect();
    for &(from, to) in arrows.keys() {
        if let (Some(from), Some(to)) = (nodes.get(from), nodes.get(to)) {
            graph.add_edge(*from, *to, ());
        }
    }
    let components = tarjan_scc(&graph).into_iter().filter(|component| component.len() > 1);
    let mut found: Vec<_> =
        components.map(|component| cycle(tree, &arrows, &component.iter().map(|at| at.index()).collect())).collect();
    found.sort_by(|one, other| one.members.cmp(&other.members));
    found
}

/// Siblings that are or contain the two modules. `None` if one of the two is above the other.
fn siblings(tree: &Tree, from: usize, to: usize) -> Option<(usize, usize)> {
    let (from, to) = (line(tree, from), line(tree, to));
    let differ = from.iter().zip(&to).find(|(one, other)| one != other)?;
    Some((*differ.0, *differ.1))
}

/// Path from the root to the module.
fn line(tree: &Tree, at: usize) -> Vec<usize> {
    let mut line: Vec<_> = std::iter::successors(Some(at), |&at| tree.modules.get(at)?.parent).collect();
    line.reverse();
    line
}

fn cycle(tree: &Tree, arrows: &Arrows, component: &BTreeSet<usize>) -> Cycle {
    let name = |at: &usize| tree.modules.get(*at).map_or_else(String::new, |module| module.name.clone());
    let mut members: Vec<_> = component.iter().map(name).collect();
    members.sort();
    let inside = arrows.iter().filter(|((from, to), _)| component.contains(from) && component.contains(to));
    let arrows =
        inside.flat_map(|(_, each)| each).map(|(from, to)| format!("{} -> {}", name(from), name(to))).collect();
    Cycle { members, arrows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Cycle> {
        cycles(&Tree::of_text(text).unwrap())
    }

    #[test]
    fn modules_that_use_each_other_are_a_cycle() {
        let found = of("mod a { use super::b; } mod b { use super::a; } mod c { use crate::{a, b}; }");
        let members = ["crate::a", "crate::b"].map(str::to_owned).into();
        let arrows = ["crate::a -> crate::b", "crate::b -> crate::a"].map(str::to_owned).into();
        assert_eq!(found, [Cycle { members, arrows }]);
    }

    #[test]
    fn cycle_through_parts_and_other_modules_is_found() {
        let found = of(
            "mod a { mod part { use crate::b; } } mod b { use crate::c::part; } mod c { pub mod part { use crate::a; } }",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].members, ["crate::a", "crate::b", "crate::c"]);
        assert_eq!(found[0].arrows[0], "crate::a::part -> crate::b");
    }

    #[test]
    fn cycle_below_one_module_is_found() {
        let found = of("mod a { mod x { use super::y; } mod y { use crate::a::x; } }");
        assert_eq!(found[0].members, ["crate::a::x", "crate::a::y"]);
    }

    #[test]
    fn module_with_its_parts_and_one_way_arrows_are_no_cycle() {
        assert_eq!(
            of("mod a { use part::X; struct Y; mod part { use super::Y; use crate::Z; } } struct Z; use a::Y;"),
            []
        );
        assert_eq!(of("mod a { use crate::b; } mod b { use crate::c; } mod c {}"), []);
    }
}
