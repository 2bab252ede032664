//! Routes of the API, each with its handler, and their document.

use axum::{Router, routing};
use utoipa::OpenApi;

use crate::{App, handlers, health, metrics};

/// A router of all routes, and a document of all handlers, from one list.
macro_rules! routes {
    ($($method:ident $path:literal $($handler:ident)::+,)+) => {
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "uvmd",
                description = "Activity of NVIDIA's UVM driver on this node, by process and GPU, and the policies that act on it. Bytes and counts are whole numbers below \
                               2^64 with the unit in the name, times are RFC 3339 in UTC, and unknown values are null. Clients ignore fields that they do not \
                               know."
            ),
            paths($($($handler)::+,)+)
        )]
        pub(crate) struct Document;

        pub(crate) fn router() -> Router<App> {
            Router::new()$(.route($path, routing::$method($($handler)::+)))+
        }

        /// Methods and paths of the router.
        #[cfg(test)]
        const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)+];
    };
}

routes! {
    get "/api/v1/status" handlers::node::status,
    get "/api/v1/processes" handlers::processes::processes,
    get "/api/v1/processes/summary" handlers::processes::summary,
    get "/api/v1/processes/{pid}" handlers::processes::process,
    get "/api/v1/processes/{pid}/ranges" handlers::memory::ranges,
    get "/api/v1/processes/{pid}/sites" handlers::memory::sites,
    get "/api/v1/processes/{pid}/heatmap" handlers::memory::heat_map,
    get "/api/v1/processes/{pid}/ops" handlers::ops::ops,
    get "/api/v1/processes/{pid}/ops/trace" handlers::ops::trace,
    get "/api/v1/processes/{pid}/history" handlers::history::process_history,
    get "/api/v1/processes/{pid}/verdict" handlers::verdicts::process_verdicts,
    get "/api/v1/verdicts" handlers::verdicts::verdicts,
    get "/api/v1/evictions" handlers::evictions::evictions,
    get "/api/v1/owners" handlers::owners::owners,
    get "/api/v1/owners/{kind}/{id}" handlers::owners::owner,
    get "/api/v1/owners/{kind}/{id}/report" handlers::owners::report,
    get "/api/v1/owners/{kind}/{id}/history" handlers::history::owner_history,
    get "/api/v1/gpus" handlers::node::gpus,
    get "/api/v1/gpus/{uuid}/history" handlers::history::gpu_history,
    get "/api/v1/processes/{pid}/override" handlers::overrides::process_override,
    get "/api/v1/overrides" handlers::overrides::overrides,
    post "/api/v1/overrides" handlers::overrides::add_override,
    get "/api/v1/overrides/{id}" handlers::overrides::one_override,
    put "/api/v1/overrides/{id}" handlers::overrides::put_override,
    delete "/api/v1/overrides/{id}" handlers::overrides::remove_override,
    get "/api/v1/policy" handlers::policy::policy,
    post "/api/v1/policy/off" handlers::policy::policy_off,
    post "/api/v1/policy/on" handlers::policy::policy_on,
    get "/api/v1/decisions" handlers::decisions::decisions,
    get "/api/v1/decisions/{id}" handlers::decisions::decision,
    get "/api/v1/events" handlers::events::events,
    get "/problems/{slug}" handlers::problems::problem_type,
    get "/metrics" metrics::scrape,
    get "/livez" health::livez,
    get "/readyz" health::readyz,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn handlers_are_documented_at_their_routes() {
        let paths = Document::openapi().paths.paths;
        let documented = paths.iter().flat_map(|(path, item)| {
            let operations =
                [("get", &item.get), ("post", &item.post), ("put", &item.put), ("delete", &item.delete)].into_iter();
            operations.filter(|(_, operation)| operation.is_some()).map(move |(method, _)| (method, path.as_str()))
        });
        assert_eq!(documented.collect::<BTreeSet<_>>(), ROUTES.iter().copied().collect());
    }
}
