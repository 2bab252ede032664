//! Plain frames, for scripts and for output without a terminal.

use std::{
    io::{self, Write},
    thread,
    time::Instant,
};

use ratatui_core::text::Line;

use super::{
    columns::Figures,
    fetch::{self, OptionalParts, Response},
    state::State,
    view,
};
use crate::{
    look::Look,
    {client::Client, terminal},
};

/// Width without a terminal, which fits every column.
pub(crate) const WIDTH: usize = 250;

/// Prints this number of frames, or unlimited ones. An unreachable daemon ends the output: scripts
/// never read outdated figures.
pub(crate) fn run(client: &Client, mut state: State, frames: Option<u64>) -> anyhow::Result<()> {
    let width = terminal::width().unwrap_or(WIDTH);
    // The first reading has no rates.
    if state.settings.figures == Figures::Rates {
        look_again(client, &mut state)?;
    }
    let mut printed = 0;
    loop {
        let mut output = io::stdout().lock();
        if printed > 0 {
            writeln!(output)?;
        }
        output.write_all(frame(&mut state, width).as_bytes())?;
        output.flush()?;
        drop(output);
        printed += 1;
        if Some(printed) == frames {
            return Ok(());
        }
        look_again(client, &mut state)?;
    }
}

fn look_again(client: &Client, state: &mut State) -> anyhow::Result<()> {
    thread::sleep(state.settings.interval);
    let sample = fetch::sample(client, OptionalParts::default())?;
    state.take(Response::Sample(Ok(sample)), Instant::now());
    Ok(())
}

/// Renders a frame as on the screen, with every process and without styles.
pub(crate) fn frame(state: &mut State, width: usize) -> String {
    let look = Look::PLAIN;
    state.fit(width, usize::MAX);
    let mut lines = view::header(state, look, width, usize::MAX, Instant::now());
    lines.push(view::summary(state, look));
    lines.push(view::heading(state, look, width));
    lines.extend(state.page().into_iter().map(|row| view::row(state, row, look, width)));
    let lines: Vec<_> = lines.iter().map(Line::to_string).collect();
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}
