//! Lists and details of decisions.

use std::{cmp::Reverse, sync::Arc};

use api::decision::{Decision, Decisions};
use axum::{
    Json,
    extract::{Path, State},
};
use model::{Stage, text::time};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::parameters::{PidParameter, UpTo, Uuid};
use crate::{
    auth::ReadPermission,
    control::DecisionSource,
    paging::Cursors,
    problem::{Kind, Problem},
    query::{ListParameters, NoParameters, NoSelector, PageParameters, Parameters},
    responses::{Responses, SharedResponse, Text},
};

/// Process, GPU and stage of decisions.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DecisionFilter {
    /// Process id.
    #[param(value_type = Option<u32>, minimum = 1)]
    pid: Option<PidParameter>,
    /// UUID of a GPU.
    #[param(value_type = Option<String>, pattern = "^GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]
    gpu: Option<Uuid>,
    /// Current stage.
    #[param(inline)]
    stage: Option<StageName>,
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

/// List decisions
///
/// Decisions and their effects, newest first. The oldest that ended are dropped. Ranges require read permission, and are null without it.
#[utoipa::path(
    get,
    path = "/api/v1/decisions",
    params(DecisionFilter, PageParameters),
    responses((status = OK, body = Decisions)),
    security((), ("token" = []))
)]
pub(crate) async fn decisions(
    ReadPermission(all): ReadPermission,
    list: ListParameters<NoSelector, DecisionFilter>,
    State(source): State<DecisionSource>,
    State(cursors): State<Arc<Cursors>>,
    responses: Responses,
) -> Result<SharedResponse, Problem> {
    let (_, DecisionFilter { pid, gpu, stage }, page_request) = list.page("decisions", &cursors)?;
    let cache_key = format!("{page_request} all={all}");
    let make = move || {
        let is_selected = |decision: &&model::Decision| {
            pid.is_none_or(|UpTo(pid)| decision.process.pid == pid)
                && gpu.is_none_or(|Uuid(uuid)| decision.gpu == uuid)
                && stage.is_none_or(|stage| stage.is_of(&decision.stage))
        };
        let known = source.now();
        let selected = known.iter().filter(is_selected).map(|decision| (Reverse(decision.id.0), decision)).collect();
        let page = cursors.page(&page_request, selected, |decision| visible(decision, all))?;
        let time = time(std::time::SystemTime::now());
        Ok(Text::page(&[("time", time.into())], &[("decisions", &page.items)], &page))
    };
    responses.of_now(cache_key, make).await
}

/// Get a decision
///
/// One decision and its effects. Ranges require read permission, and are null without it.
#[utoipa::path(
    get,
    path = "/api/v1/decisions/{id}",
    params(("id" = u64, Path, description = "Number of the decision")),
    responses((status = OK, body = Decision)),
    security((), ("token" = []))
)]
pub(crate) async fn decision(
    ReadPermission(all): ReadPermission,
    Path(id): Path<String>,
    _: Parameters<NoParameters>,
    State(source): State<DecisionSource>,
) -> Result<Json<Decision>, Problem> {
    let decisions = source.now();
    let found = decisions.iter().find(|decision| decision.id.to_string() == id);
    found.map(|decision| Json(visible(decision, all))).ok_or_else(|| {
        let detail = format!("there is no decision {id}; /api/v1/decisions lists them");
        Problem::new(Kind::NotFound, detail)
    })
}

fn visible(decision: &model::Decision, all: bool) -> Decision {
    let decision = Decision::from(decision);
    if all { decision } else { decision.redacted() }
}
