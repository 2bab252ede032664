//! Problems that each operation responds with, by status.

use std::collections::BTreeMap;

use serde_json::json;
use utoipa::{
    ToSchema,
    openapi::{ContentBuilder, Ref, ResponseBuilder, path::Operation},
};

use crate::problem::{Body, Kind};

/// Problems of all operations.
const EVERYWHERE: [Kind; 8] = [
    Kind::InvalidParameter,
    Kind::InvalidHost,
    Kind::InvalidToken,
    Kind::UnknownHost,
    Kind::InternalError,
    Kind::CollectorUnavailable,
    Kind::Overloaded,
    Kind::NotFound,
];
/// Problems of operations that require permission.
const WITH_PERMISSION: [Kind; 2] = [Kind::TokenRequired, Kind::PermissionDenied];
/// Problems of changes.
const OF_CHANGES: [Kind; 7] = [
    Kind::InvalidBody,
    Kind::InsufficientToken,
    Kind::ForeignOrigin,
    Kind::BodyTooLarge,
    Kind::DiskStalled,
    Kind::ChangeNotSaved,
    Kind::ChangeNotAudited,
];
/// Problems of changes of one override.
const OF_OVERRIDES: [Kind; 3] = [Kind::OverrideInFile, Kind::PreconditionFailed, Kind::InvalidHeader];
/// Problems of a request body.
const OF_BODIES: [Kind; 4] =
    [Kind::UnsupportedMediaType, Kind::InvalidField, Kind::TooManyOverrides, Kind::OverrideExists];

/// Lists the problems that an operation responds with.
pub(super) fn describe(path: &str, is_change: bool, operation: &mut Operation) {
    let requires_permission = operation.security.as_ref().is_some_and(|ways| {
        // An empty alternative means that no permission is required.
        !ways.iter().any(|way| serde_json::to_value(way).is_ok_and(|way| way == json!({})))
    });
    let is_of_override = path.starts_with("/api/v1/overrides");
    let has_cursor = operation.parameters.iter().flatten().any(|parameter| parameter.name == "continue");
    let mut kinds = EVERYWHERE.to_vec();
    kinds.extend(WITH_PERMISSION.into_iter().filter(|_| requires_permission));
    kinds.extend(OF_CHANGES.into_iter().filter(|_| is_change));
    kinds.extend(OF_OVERRIDES.into_iter().filter(|_| is_change && is_of_override));
    kinds.extend(OF_BODIES.into_iter().filter(|_| operation.request_body.is_some()));
    kinds.extend([Kind::InvalidCursor].into_iter().filter(|_| has_cursor));
    kinds.extend([Kind::InvalidHeader].into_iter().filter(|_| !is_change && path == "/api/v1/overrides/{id}"));
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in Kind::ALL.iter().filter(|kind| kinds.contains(kind)) {
        by_status.entry(kind.status().as_u16()).or_default().push(*kind);
    }
    for (status, kinds) in by_status {
        let titles: Vec<_> = kinds.iter().map(|kind| format!("{} (`{}`)", kind.title(), kind.uri())).collect();
        let example = kinds.first().map(|kind| {
            json!({
                "type": kind.uri(), "title": kind.title(), "status": status, "detail": kind.description(), "errors": [],
            })
        });
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name(Body::name()))).example(example);
        let documented = operation.responses.responses.remove(&status.to_string());
        // A response that is documented already, as of a health check, gets a second content type.
        let mut response = match documented {
            Some(utoipa::openapi::RefOr::T(response)) => response,
            _ => ResponseBuilder::new().description(titles.join("; ")).build(),
        };
        response.content.insert("application/problem+json".to_owned(), body.build());
        operation.responses.responses.insert(status.to_string(), response.into());
    }
    let too_long = ResponseBuilder::new().description("The head of the request is longer than 16 KiB; no body");
    operation.responses.responses.insert("431".to_owned(), too_long.build().into());
}
