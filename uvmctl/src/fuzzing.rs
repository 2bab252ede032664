//! Rendering of a daemon's responses, for fuzz targets only.

use std::{
    io::BufReader,
    path::Path,
    time::{Duration, Instant},
};

use api::{
    Evictions, Gpus, HeatMap, ProcessDetail, ProcessSummaries, Ranges, Status, Verdicts,
    decision::{Decision, Decisions},
    rule::{EffectivePolicy, Overrides, PolicyState},
};
use serde::de::DeserializeOwned;

use crate::{
    client::{Client, Options},
    decisions, events, evictions,
    explain::{self, Evidence},
    gpus, heat,
    look::Look,
    output::{Format, Screen, table},
    policy, ps, show, status,
    terminal::Colour,
    text,
    top::{
        batch, columns,
        columns::Figures,
        fetch::{Response, Sample},
        state::{Settings, State},
    },
};

/// Output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// `status` of a status.
    Status,
    /// `ps` of two lists of summaries, and verdicts.
    Ps,
    /// `show` of a process.
    Show,
    /// `explain` of a process, its verdicts, its ranges, GPUs, and its sites.
    Explain,
    /// `evictions` of two lists of pairs, and a status.
    Evictions,
    /// `gpus` of GPUs.
    Gpus,
    /// `heatmap` of a heat map.
    HeatMap,
    /// `decisions` of a list, or of one decision.
    Decisions,
    /// `policy show` and `policy explain` of overrides, the state of the switch, and an effective
    /// policy.
    Policy,
    /// `top --batch` of a status, summaries, GPUs, verdicts and evictions, and of a second such
    /// set.
    Top,
}

impl View {
    /// All views.
    pub const ALL: [Self; 10] = [
        Self::Status,
        Self::Ps,
        Self::Show,
        Self::Explain,
        Self::Evictions,
        Self::Gpus,
        Self::HeatMap,
        Self::Decisions,
        Self::Policy,
        Self::Top,
    ];

    /// Text for a terminal of this width, or without a limit; `None` if a response does not have
    /// the expected form.
    #[must_use]
    pub fn shown(self, responses: &[&str], width: Option<usize>) -> Option<String> {
        let off = Colour::OFF;
        let fitted = |table: table::Table, concessions| table.fit(width, concessions).render(off);
        let response = |at: usize| responses.get(at).copied();
        Some(match self {
            Self::Status => status::render(&read(response(0))?, width, off).ok()?,
            Self::Ps => {
                let first = ps::busiest_first(read::<ProcessSummaries>(response(0))?);
                let processes = ps::busiest_first(read::<ProcessSummaries>(response(1))?);
                let before = Some(ps::before(&first, &processes));
                let listing = ps::Listing { processes, verdicts: read(response(2))?, before };
                fitted(ps::table(&listing, true), &[])
            }
            Self::Show => show::render(&read::<ProcessDetail>(response(0))?, width, off).ok()?,
            Self::Explain => {
                let ProcessDetail { process, .. } = read(response(0))?;
                let (verdicts, ranges): (Verdicts, Option<Ranges>) = (read(response(1))?, read(response(2)));
                let evidence = Evidence {
                    sites: read(response(4)),
                    ..Evidence::new(process, &verdicts, ranges, read(response(3))?)
                };
                let lines = explain::page::paragraphs(&evidence, None);
                lines.iter().flat_map(|paragraph| paragraph.lines(width.unwrap_or(100))).collect::<Vec<_>>().join("\n")
            }
            Self::Evictions => {
                let (before, now) = (read::<Evictions>(response(0))?, read::<Evictions>(response(1))?);
                let flows = evictions::flows(&now, Some(&before));
                let matrix = evictions::matrix(&flows, width.unwrap_or(usize::MAX)).join("\n");
                let gpus = read::<Status>(response(2))?.gpus;
                matrix + "\n" + &fitted(evictions::table(&flows, &gpus), &evictions::CONCESSIONS)
            }
            Self::Gpus => fitted(gpus::table(&read::<Gpus>(response(0))?.gpus), &[]),
            Self::HeatMap => {
                let map = read::<HeatMap>(response(0))?;
                heat::render(&map, heat::Measure::Activity, width.unwrap_or(64), Look::PLAIN)
            }
            Self::Decisions => match read::<Decisions>(response(0)) {
                Some(decisions) => fitted(decisions::table(&decisions), &[]),
                None => decisions::one::render(&read::<Decision>(response(0))?, Screen { width, colour: off }),
            },
            Self::Policy => {
                let (known, state): (Overrides, PolicyState) = (read(response(0))?, read(response(1))?);
                let (now, screen) = ("2026-01-01T00:00:00Z", Screen { width, colour: off });
                let all = policy::show::page(&known, &state, now, off).drawn(screen);
                all + &policy::show::effective(&read::<EffectivePolicy>(response(2))?, off)
            }
            Self::Top => {
                let mut state = State::new(settings()?, sample(responses.get(..5)?)?, Instant::now());
                if let Some(next) = responses.get(5..10).and_then(sample) {
                    state.take(Response::Sample(Ok(Box::new(next))), Instant::now());
                }
                batch::frame(&mut state, width.unwrap_or(batch::WIDTH))
            }
        })
    }
}

fn read<T: DeserializeOwned>(response: Option<&str>) -> Option<T> {
    serde_json::from_str(response?).ok()
}

fn settings() -> Option<Settings> {
    Some(Settings {
        interval: Duration::from_secs(1),
        figures: Figures::Rates,
        sort: columns::named("faults")?,
        inverted: false,
        filter: String::new(),
        ended: true,
    })
}

fn sample(responses: &[&str]) -> Option<Sample> {
    let response = |at: usize| responses.get(at).copied();
    Some(Sample {
        status: read(response(0))?,
        processes: ps::busiest_first(read(response(1))?),
        gpus: read(response(2))?,
        verdicts: read(response(3))?,
        evictions: read(response(4)),
        acting: None,
        detail: None,
    })
}

/// Output of `events` for a stream, with its final error, and the id from which it would resume.
#[must_use]
pub fn followed(stream: &[u8], json: bool) -> (String, Option<String>) {
    let (mut last, mut out) = (None, Vec::new());
    let format = if json { Format::Json } else { Format::Table };
    let printer = events::Printer { options: events::Options::default(), format, colour: Colour::OFF };
    let result = events::show(BufReader::new(stream), &printer, &mut last, &mut out);
    let mut out = String::from_utf8_lossy(&out).into_owned();
    out.extend(result.err().map(|error| note(&format!("{error:#}"))));
    (out, last)
}

/// Output of a list from the daemon on this socket as a table and as JSON, with errors.
#[must_use]
pub fn listed(socket: &Path) -> [String; 2] {
    let Ok(client) = Client::new(Options::on(socket)) else { return Default::default() };
    let path = "/api/v1/decisions?limit=1000";
    let report = |error: &anyhow::Error| note(&format!("{error:#}"));
    let held = match client.list::<Decisions>(path) {
        Ok(decisions) => decisions::table(&decisions).render(Colour::OFF),
        Err(error) => report(&error.into()),
    };
    let mut out = Vec::new();
    let passed = client.pass_on(path, path, "decisions", &mut out);
    let mut passed_on = String::from_utf8_lossy(&out).into_owned();
    passed_on.extend(passed.err().map(|error| report(&error)));
    [held, passed_on]
}

fn note(message: &str) -> String {
    format!("\n{}\n", text::printable_lines(message))
}
