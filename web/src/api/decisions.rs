//! What was decided.

use std::{cmp::Reverse, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use model::{
    Stage,
    api::{
        decision::{Decision, Decisions},
        text::time,
    },
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::parameters::UpTo;
use crate::{
    auth::ReadPermission,
    control::DecisionSource,
    paging::{Cursor, Cursors, LIMIT_MAX},
    problem::{NoParameters, Parameters, Problem},
    responses::{Responses, SharedResponse, Text},
};

/// Which decisions.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionFilter {
    /// Those about the process with this pid.
    process: Option<u32>,
    /// Those that stand there.
    #[param(inline)]
    stage: Option<StageName>,
    /// How many at most; 100 unless given.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<UpTo<LIMIT_MAX>>,
    /// From where the page before told.
    #[param(value_type = Option<String>)]
    r#continue: Option<Cursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StageName {
    Denied,
    Shadow,
    Trial,
    Confirmed,
    RolledBack,
    Ended,
}

impl StageName {
    const fn is_of(self, stage: &Stage) -> bool {
        matches!(
            (self, stage),
            (Self::Denied, Stage::Denied(_))
                | (Self::Shadow, Stage::Shadow(_))
                | (Self::Trial, Stage::Trial)
                | (Self::Confirmed, Stage::Confirmed)
                | (Self::RolledBack, Stage::RolledBack(_))
                | (Self::Ended, Stage::Ended(_))
        )
    }
}

/// What was decided, the newest first. The oldest that are over are forgotten. Ranges need read permission, and are null without.
#[utoipa::path(
    get,
    path = "/api/v1/decisions",
    params(DecisionFilter),
    responses((status = OK, body = Decisions)),
    security((), ("token" = []))
)]
pub(crate) async fn decisions(
    ReadPermission(all): ReadPermission,
    Parameters(filter): Parameters<DecisionFilter>,
    State(decided): State<DecisionSource>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let DecisionFilter { process, stage, limit, r#continue } = filter;
    let part = cursors.part(format!("decisions process={process:?} stage={stage:?}"), limit, r#continue)?;
    let question = format!("{part} all={all}");
    let make = move || {
        let is_wanted = |decision: &&model::Decision| {
            process.is_none_or(|pid| decision.process.pid == pid)
                && stage.is_none_or(|stage| stage.is_of(&decision.stage))
        };
        let known = decided.now();
        let wanted = known.iter().filter(is_wanted).map(|decision| (Reverse(decision.id.0), decision)).collect();
        let page = cursors.page(&part, wanted, |decision| told(decision, all))?;
        let time = time(std::time::SystemTime::now());
        Ok(Text::page(&[("time", time.into())], &[("decisions", &page.items)], &page))
    };
    responses.of_now(question, make).await
}

/// One decision.
#[utoipa::path(
    get,
    path = "/api/v1/decisions/{id}",
    params(("id" = u64, Path, description = "Its name")),
    responses((status = OK, body = Decision)),
    security((), ("token" = []))
)]
pub(crate) async fn decision(
    ReadPermission(all): ReadPermission,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(decided): State<DecisionSource>,
) -> Result<Json<Decision>, Problem> {
    let decisions = decided.now();
    let named = decisions.iter().find(|decision| decision.id.to_string() == id);
    named.map(|decision| Json(told(decision, all))).ok_or_else(|| {
        let detail = format!("no decision {id} is known; /api/v1/decisions lists those that are");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })
}

fn told(decision: &model::Decision, all: bool) -> Decision {
    let decision = Decision::from(decision);
    if all { decision } else { decision.redacted() }
}
