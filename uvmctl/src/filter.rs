//! Filters of lists, as the API has them.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use model::VerdictKind;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::client::parse_user;

/// Filter by owner, GPU and verdict. Each option restricts the list further.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filter")]
pub(crate) struct OwnerFilter {
    /// Only this owner, such as job:4711, pod:UID, container:ID or unit:NAME; or other
    #[arg(long, value_name = "KIND:ID")]
    owner: Option<String>,

    /// Only pods of this Kubernetes namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only this Kubernetes pod, by name or UID
    #[arg(long, value_name = "POD")]
    pod: Option<String>,

    /// Only this Slurm job
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Only this container
    #[arg(long, value_name = "ID")]
    container: Option<String>,

    /// Only this systemd service or scope
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,

    /// Only this GPU: UUID, its beginning as in tables, or NVML's index
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,

    /// Only with this verdict
    #[arg(long, value_name = "KIND", value_parser = verdict())]
    verdict: Option<String>,
}

/// Filter of processes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filter")]
pub(crate) struct ProcessFilter {
    #[command(flatten)]
    owners: OwnerFilter,

    /// Only processes of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = parse_user)]
    user: Option<u32>,
}

impl OwnerFilter {
    /// Parameters of a query, each after an `&`.
    pub(crate) fn query(&self) -> String {
        let Self { owner, namespace, pod, job, container, unit, gpu, verdict } = self;
        let parameters = [
            ("owner", owner),
            ("namespace", namespace),
            ("pod", pod),
            ("job", job),
            ("container", container),
            ("unit", unit),
            ("gpu", gpu),
            ("verdict", verdict),
        ];
        let parameter = |(name, value): (&str, &Option<String>)| {
            Some(format!("&{name}={}", utf8_percent_encode(value.as_ref()?, NON_ALPHANUMERIC)))
        };
        parameters.into_iter().filter_map(parameter).collect()
    }
}

impl ProcessFilter {
    /// Parameters of a query, each after an `&`.
    pub(crate) fn query(&self) -> String {
        self.owners.query() + &self.user.map(|uid| format!("&uid={uid}")).unwrap_or_default()
    }
}

/// Kinds of verdicts.
fn verdict() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(VerdictKind::ALL.map(VerdictKind::name))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: ProcessFilter,
    }

    #[test]
    fn filters_are_parameters_of_the_api() {
        let query = |arguments: &[&str]| Line::try_parse_from(["x"].iter().chain(arguments)).unwrap().filter.query();
        assert_eq!(query(&[]), "");
        assert_eq!(query(&["--user", "root", "--gpu", "0"]), "&gpu=0&uid=0");
        assert_eq!(query(&["--unit", "a@1.service/b", "--job", "7"]), "&job=7&unit=a%401%2Eservice%2Fb");
        assert_eq!(query(&["--pod", "llm-0", "--namespace", "ml"]), "&namespace=ml&pod=llm%2D0");
        assert!(Line::try_parse_from(["x", "--verdict", "none"]).is_err());
    }
}
