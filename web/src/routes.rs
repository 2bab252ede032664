//! Routes of the API, each with its handler, and their document.

use axum::{Router, routing};
use utoipa::OpenApi;

use crate::{App, api, health, metrics};

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
    get "/api/v1/status" api::node::status,
    get "/api/v1/processes" api::processes::processes,
    get "/api/v1/processes/summary" api::processes::summary,
    get "/api/v1/processes/{pid}" api::processes::process,
    get "/api/v1/processes/{pid}/ranges" api::memory::ranges,
    get "/api/v1/processes/{pid}/sites" api::memory::sites,
    get "/api/v1/processes/{pid}/heatmap" api::memory::heat_map,
    get "/api/v1/processes/{pid}/ops" api::ops::ops,
    get "/api/v1/processes/{pid}/ops/trace" api::ops::trace,
    get "/api/v1/processes/{pid}/history" api::history::process_history,
    get "/api/v1/processes/{pid}/verdict" api::verdicts::process_verdicts,
    get "/api/v1/verdicts" api::verdicts::verdicts,
    get "/api/v1/evictions" api::evictions::evictions,
    get "/api/v1/owners" api::owners::owners,
    get "/api/v1/owners/{kind}/{id}" api::owners::owner,
    get "/api/v1/owners/{kind}/{id}/history" api::history::owner_history,
    get "/api/v1/gpus" api::node::gpus,
    get "/api/v1/gpus/{uuid}/history" api::history::gpu_history,
    get "/api/v1/processes/{pid}/override" api::overrides::process_override,
    get "/api/v1/overrides" api::overrides::overrides,
    post "/api/v1/overrides" api::overrides::add_override,
    get "/api/v1/overrides/{id}" api::overrides::one_override,
    put "/api/v1/overrides/{id}" api::overrides::put_override,
    delete "/api/v1/overrides/{id}" api::overrides::remove_override,
    get "/api/v1/policy" api::policy::policy,
    post "/api/v1/policy/off" api::policy::policy_off,
    post "/api/v1/policy/on" api::policy::policy_on,
    get "/api/v1/decisions" api::decisions::decisions,
    get "/api/v1/decisions/{id}" api::decisions::decision,
    get "/api/v1/events" api::events::events,
    get "/problems/{slug}" api::problems::problem_type,
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
