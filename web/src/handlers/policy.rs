//! State and switching of acting.

use api::rule::PolicyState;
use axum::{Json, extract::State};

use crate::{
    auth::Writer,
    body,
    control::Controls,
    problem::Problem,
    query::{NoParameters, Parameters},
    responses::{Responses, SharedResponse, Text},
};

/// Get the state of the switch
///
/// Whether uvmd may act, and who disabled acting.
#[utoipa::path(get, path = "/api/v1/policy", responses((status = OK, body = PolicyState)))]
pub(crate) async fn policy(
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    responses.of_now("policy".to_owned(), move || Ok(Text::json(&state(&controls)))).await
}

/// Stop all acting
///
/// Stops between two calls of the driver, and rolls back what is in effect. It stays off over restarts until it is switched on again, and does not wait for
/// the disk.
#[utoipa::path(post, path = "/api/v1/policy/off", responses((status = OK, body = PolicyState)), security(("token" = [])))]
pub(crate) async fn policy_off(
    Writer(by): Writer,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    _: body::EmptyBody,
) -> Result<Json<PolicyState>, Problem> {
    controls.switch_off(&by).await?;
    Ok(Json(state(&controls)))
}

/// Permit acting
///
/// Permits acting again after it was stopped over the API. The file of the kill switch stops acting until it is removed.
#[utoipa::path(post, path = "/api/v1/policy/on", responses((status = OK, body = PolicyState)), security(("token" = [])))]
pub(crate) async fn policy_on(
    Writer(by): Writer,
    _: Parameters<NoParameters>,
    State(controls): State<Controls>,
    _: body::EmptyBody,
) -> Result<Json<PolicyState>, Problem> {
    controls.switch_on(by).await?;
    Ok(Json(state(&controls)))
}

/// State of acting, with its sentences.
fn state(controls: &Controls) -> PolicyState {
    controls.now().state().described()
}
