//! Built-in page. Its files are compiled in; it loads nothing from other sites.

use axum::{Router, http::header, response::IntoResponse, routing::get};

use crate::query::{NoParameters, Parameters};

/// Path, content type and text of a file.
type File = (&'static str, &'static str, &'static str);

macro_rules! script {
    ($name:literal) => {
        (
            concat!("/page/", $name, ".js"),
            "text/javascript; charset=utf-8",
            include_str!(concat!("../page/", $name, ".js")),
        )
    };
}

const FILES: [File; 31] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    script!("api"),
    script!("auth"),
    script!("cards"),
    script!("columns"),
    script!("decisions"),
    script!("detail"),
    script!("dom"),
    script!("evidence"),
    script!("format"),
    script!("heat"),
    script!("history"),
    script!("lists"),
    script!("main"),
    script!("marks"),
    script!("matrix"),
    script!("memory"),
    script!("owner"),
    script!("picker"),
    script!("rates"),
    script!("rounds"),
    script!("samples"),
    script!("sites"),
    script!("spark"),
    script!("status"),
    script!("table"),
    script!("tiles"),
    script!("verdicts"),
    script!("words"),
];

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, content_type, text)| {
        let file =
            async move |_: Parameters<NoParameters>| ([(header::CONTENT_TYPE, content_type)], text).into_response();
        router.route(path, get(file))
    })
}
