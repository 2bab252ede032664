//! The built-in page. Its files are compiled in; it loads nothing from anywhere else.

use axum::{Router, http::header, response::IntoResponse, routing::get};

use crate::problem::{NoParameters, Parameters};

/// Path, content type and text of each file.
const FILES: [(&str, &str, &str); 11] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/columns.js", "text/javascript; charset=utf-8", include_str!("../page/columns.js")),
    ("/page/detail.js", "text/javascript; charset=utf-8", include_str!("../page/detail.js")),
    ("/page/format.js", "text/javascript; charset=utf-8", include_str!("../page/format.js")),
    ("/page/main.js", "text/javascript; charset=utf-8", include_str!("../page/main.js")),
    ("/page/rates.js", "text/javascript; charset=utf-8", include_str!("../page/rates.js")),
    ("/page/spark.js", "text/javascript; charset=utf-8", include_str!("../page/spark.js")),
    ("/page/table.js", "text/javascript; charset=utf-8", include_str!("../page/table.js")),
    ("/page/tiles.js", "text/javascript; charset=utf-8", include_str!("../page/tiles.js")),
];

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, content_type, text)| {
        let file =
            async move |_: Parameters<NoParameters>| ([(header::CONTENT_TYPE, content_type)], text).into_response();
        router.route(path, get(file))
    })
}
