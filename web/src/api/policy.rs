//! Whether uvmd acts.

use axum::{Json, extract::State};
use model::api::rule::PolicyState;

use crate::{
    auth::Writer,
    body,
    control::Controls,
    problem::Problem,
    query::{NoParameters, Parameters},
    responses::{Responses, SharedResponse, Text},
};

/// Whether uvmd acts, and who has switched that off.
#[utoipa::path(get, path = "/api/v1/policy", responses((status = OK, body = PolicyState)))]
pub(crate) async fn policy(
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    responses.of_now("policy".to_owned(), move || Ok(Text::json(&controls.now().state()))).await
}

/// Stops all acting, between two calls of the driver, and has what is in force taken back. It stays so over restarts until it is switched on again; a disk
/// that is stuck holds up neither.
#[utoipa::path(post, path = "/api/v1/policy/off", responses((status = OK, body = PolicyState)), security(("token" = [])))]
pub(crate) async fn policy_off(
    Writer(by): Writer,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    _: body::Nothing,
) -> Result<Json<PolicyState>, Problem> {
    controls.switch_off(&by).await?;
    Ok(Json(controls.now().state()))
}

/// Lets acting go on that was switched off here. What the file of the kill switch stops goes on when that is removed.
#[utoipa::path(post, path = "/api/v1/policy/on", responses((status = OK, body = PolicyState)), security(("token" = [])))]
pub(crate) async fn policy_on(
    Writer(by): Writer,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    _: body::Nothing,
) -> Result<Json<PolicyState>, Problem> {
    controls.switch_on(by).await?;
    Ok(Json(controls.now().state()))
}
