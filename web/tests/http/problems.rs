//! Problem types: each has a page, and a section in docs/problems.md.

use std::{collections::BTreeSet, env, fs, path::Path};

use axum::http::StatusCode;
use web::{ProblemKind, problem_document};

use crate::support::{assert_problem, counting, get, router};

#[test]
fn the_document_lists_every_problem_type() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/problems.md");
    let document = problem_document();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &document).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == document,
        "docs/problems.md is out of date: run UPDATE_DOCS=1 cargo test -p web --test http problems"
    );
}

#[test]
fn every_problem_type_has_a_unique_slug_and_title() {
    let slugs: BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
    let titles: BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.title()).collect();
    assert_eq!((slugs.len(), titles.len()), (ProblemKind::ALL.len(), ProblemKind::ALL.len()));
    for kind in ProblemKind::ALL {
        assert!(kind.slug().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{kind:?}");
        assert!(kind.status().is_client_error() || kind.status().is_server_error(), "{kind:?}");
    }
}

#[tokio::test]
async fn every_problem_type_is_served_as_a_page() {
    let router = router(counting());
    for kind in ProblemKind::ALL {
        let page = get(&router, kind.uri()).await;
        assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/markdown; charset=utf-8"));
        assert!(page.text.starts_with(&format!("# {}\n", kind.title())), "{}", page.text);
        assert!(page.text.contains(kind.uri()), "{}", page.text);
    }
    assert_problem(&get(&router, "/problems/no-such").await, StatusCode::NOT_FOUND, "/problems/no-such");
}
