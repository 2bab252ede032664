//! `/openapi.json`: the API as OpenAPI 3.1 says it, made of the handlers and the types that they answer with.

use axum::{Router, http::header, response::IntoResponse, routing::get};
use utoipa::{
    OpenApi, ToSchema,
    openapi::{
        ContentBuilder, Ref, RefOr, ResponseBuilder, Schema,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::router::OpenApiRouter;

use crate::{
    problem,
    query::{NoParameters, Parameters},
};

/// The name of the way to have read permission over TCP.
const TOKEN: &str = "token";

/// What requests may leave fields out of.
const IN_REQUESTS: [&str; 3] = ["Override", "Selector", "Budget"];

#[derive(OpenApi)]
#[openapi(info(
    title = "uvmd",
    description = "What NVIDIA's UVM driver does on this node, by process and GPU, and what is done about it. Bytes and counts are whole numbers below \
                   2^64 with the unit in the name, times are RFC 3339 in UTC, and what is not known is null. Clients ignore fields that they do not \
                   know."
))]
struct Document;

/// The routes with the document of them, at `/openapi.json`.
pub(crate) fn documented<S: Clone + Send + Sync + 'static>(
    routes: impl FnOnce(OpenApiRouter<S>) -> OpenApiRouter<S>,
) -> Router<S> {
    let (documented, mut document) = routes(OpenApiRouter::with_openapi(Document::openapi())).split_for_parts();
    let components = document.components.get_or_insert_default();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "A token that uvmd was configured with: one to read with, one to change things with as well. On its Unix socket, root, uvmd's own user and the \
         members of a group need none.",
    ));
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token.build()));
    components.schemas.insert(problem::Body::name().into_owned(), <problem::Body as utoipa::PartialSchema>::schema());
    components
        .schemas
        .insert(problem::FieldError::name().into_owned(), <problem::FieldError as utoipa::PartialSchema>::schema());
    let answered = components.schemas.iter_mut().filter(|(name, _)| !IN_REQUESTS.contains(&name.as_str()));
    answered.for_each(|(_, schema)| with_every_field(schema));
    for item in document.paths.paths.values_mut() {
        [&mut item.get, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten().for_each(with_problems);
    }
    // Nothing in it has keys that are no text.
    let text = document.to_json().unwrap_or_default();
    let answer =
        async move |_: Parameters<NoParameters>| ([(header::CONTENT_TYPE, "application/json")], text).into_response();
    documented.route("/openapi.json", get(answer))
}

/// Every field is in every answer, null where nothing is known, though readers do without some of those that earlier versions did not send.
fn with_every_field(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => object.required = object.properties.keys().cloned().collect(),
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(with_every_field),
        RefOr::Ref(_) | RefOr::T(_) => {}
    }
}

/// Whatever is not answered as said is a problem.
fn with_problems(operation: &mut Operation) {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(problem::Body::name())));
    let response = ResponseBuilder::new()
        .description("A problem, as in RFC 9457")
        .content("application/problem+json", body.build());
    operation.responses.responses.insert("default".to_owned(), response.build().into());
}
