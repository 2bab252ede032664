//! Query parameters. Each endpoint rejects unknown parameters and invalid values.

use std::{collections::BTreeSet, error::Error, fmt};

use axum::{
    extract::{FromRequestParts, Query, rejection::QueryRejection},
    http::{Uri, request::Parts},
};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::{
    IntoParams,
    openapi::path::{Parameter, ParameterIn},
};

use crate::{
    paging::{Cursor, Cursors, LIMIT_MAX, PageRequest},
    parameters::UpTo,
    problem::{Kind, Problem},
};

/// Parameters of an endpoint that returns one thing; `T` must deny unknown fields.
pub(crate) struct Parameters<T>(pub(crate) T);

/// Parameters of an endpoint that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

/// Parameters of a list: its selector, its filter, and its page.
#[derive(Debug)]
pub(crate) struct ListParameters<S, F> {
    pub(crate) selector: S,
    pub(crate) filter: F,
    pub(crate) page: PageParameters,
}

impl<S: fmt::Debug, F: fmt::Debug> ListParameters<S, F> {
    /// Splits off the request for a page of the list of this name with these parameters.
    pub(crate) fn page(self, list: &str, cursors: &Cursors) -> Result<(S, F, PageRequest), Problem> {
        let Self { selector, filter, page: PageParameters { limit, r#continue } } = self;
        let request = cursors.page_request(format!("{list} {selector:?} {filter:?}"), limit, r#continue)?;
        Ok((selector, filter, request))
    }
}

/// Part of a query's parameters; the other parts have the rest.
pub(crate) trait QueryPart: Sized {
    /// Names of the parameters.
    fn names() -> Vec<String>;

    /// Parses these parameters, and ignores others.
    fn read(uri: &Uri) -> Result<Self, Problem>;
}

impl<T: DeserializeOwned + IntoParams> QueryPart for T {
    fn names() -> Vec<String> {
        let parameters = T::into_params(|| Some(ParameterIn::Query));
        parameters.into_iter().map(|Parameter { name, .. }| name).collect()
    }

    fn read(uri: &Uri) -> Result<Self, Problem> {
        read(uri)
    }
}

/// Selector of a list that has none.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct NoSelector {}

/// Page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParameters {
    /// Maximum number of items; 100 by default. A page also ends before 2 MiB of JSON.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<UpTo<LIMIT_MAX>>,
    /// Cursor of the previous page, from its field `continue`. The other parameters must be those
    /// of that page, except `limit`.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    pub(crate) r#continue: Option<Cursor>,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(&parts.uri).map(Self)
    }
}

impl<S, F, State> FromRequestParts<State> for ListParameters<S, F>
where
    S: QueryPart,
    F: QueryPart,
    State: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, Problem> {
        let uri = &parts.uri;
        check_names(uri, &[S::names(), F::names(), PageParameters::names()].concat())?;
        Ok(Self { selector: S::read(uri)?, filter: F::read(uri)?, page: PageParameters::read(uri)? })
    }
}

/// Rejects unknown and repeated names of a list's parameters. Several structs parse the query, each
/// ignoring the parameters of the others.
fn check_names(uri: &Uri, known: &[String]) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for (name, _) in read::<Vec<(String, String)>>(uri)? {
        if !known.contains(&name) {
            let detail = format!("there is no parameter {name:?}; this list has {}", known.join(", "));
            return Err(Problem::new(Kind::InvalidParameter, detail));
        }
        if !seen.insert(name.clone()) {
            return Err(Problem::new(Kind::InvalidParameter, format!("{name}: given more than once")));
        }
    }
    Ok(())
}

fn read<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    // Its source is the sentence of the parameter; the rejection itself says that a query is invalid, as the problem does.
    let problem = |rejection: QueryRejection| {
        let detail = rejection.source().map_or_else(|| rejection.body_text(), ToString::to_string);
        Problem::new(Kind::InvalidParameter, detail)
    };
    Query::try_from_uri(uri).map(|Query(parameters)| parameters).map_err(problem)
}
