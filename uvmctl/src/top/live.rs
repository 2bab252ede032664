//! The loop of the live view: waits for keys, signals and answers, and draws what came of them.

use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use crossterm::event::{self, Event as Input};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use super::{
    fetch::{self, Answer, Ask},
    keys,
    screen::Screen,
    state::{Effect, State},
    view,
};
use crate::{client::Client, look::Look};

/// Between frames, however many keys are pressed.
const FRAME_LEAST: Duration = Duration::from_millis(40);
/// Rates are there after this time, however long the interval is.
const FIRST_RATES: Duration = Duration::from_millis(500);
/// An answer usually takes less, and is drawn; if none comes, what is shown is drawn again with its age.
const ANSWER_USUALLY: Duration = Duration::from_millis(500);
/// A terminal that takes no output keeps the program from ending by itself for no longer.
const PATIENCE: Duration = Duration::from_secs(2);

enum Event {
    Input(Input),
    /// There is no input any more.
    InputLost(io::Error),
    Signal(i32),
    Answer(Answer),
}

/// How the view ended.
enum End {
    Asked,
    Signal(i32),
}

pub(crate) fn run(client: Client, state: State) -> anyhow::Result<()> {
    let (events, received) = mpsc::channel();
    watch_signals(events.clone())?;
    let asks = fetch::start(client, events.clone(), Event::Answer)?;
    let mut screen = Screen::take()?;
    read_input(events)?;
    let view = View { state, look: Look::detect(), asks, next_ask: Instant::now(), waiting: false };
    let end = view.show(&mut screen, &received);
    // Given back before anything is said, or the process ends by a signal.
    drop(screen);
    match end? {
        End::Asked => Ok(()),
        End::Signal(signal) => Ok(emulate_default_handler(signal)?),
    }
}

/// Everything but the screen.
struct View {
    state: State,
    look: Look,
    asks: Sender<Ask>,
    next_ask: Instant,
    /// An answer is under way.
    waiting: bool,
}

impl View {
    fn show(mut self, screen: &mut Screen, events: &Receiver<Event>) -> anyhow::Result<End> {
        // There are no rates before the second answer.
        self.next_ask = Instant::now() + self.state.settings.interval.min(FIRST_RATES);
        loop {
            let drawn = Instant::now();
            screen.draw(|frame| view::draw(frame, &mut self.state, self.look, drawn))?;
            let mut next = drawn + self.state.settings.interval + ANSWER_USUALLY;
            loop {
                self.ask_if_due();
                let due = if self.waiting || self.state.paused { next } else { next.min(self.next_ask) };
                match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(event) => {
                        if let Some(end) = self.handle(event, screen)? {
                            return Ok(end);
                        }
                        next = next.min(drawn + FRAME_LEAST);
                    }
                    Err(RecvTimeoutError::Timeout) if Instant::now() < next => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(End::Asked),
                }
            }
        }
    }

    fn ask_if_due(&mut self) {
        let now = Instant::now();
        if self.waiting || self.state.paused || now < self.next_ask {
            return;
        }
        self.next_ask = now + self.state.settings.interval;
        self.ask(self.state.next_ask(), now);
    }

    fn ask(&mut self, ask: Ask, now: Instant) {
        // If its thread is gone, it panicked, and the silence shows.
        if self.asks.send(ask).is_ok() && matches!(ask, Ask::Sample(_)) {
            self.waiting = true;
            self.state.asked(now);
        }
    }

    fn handle(&mut self, event: Event, screen: &mut Screen) -> anyhow::Result<Option<End>> {
        let now = Instant::now();
        let effect = match event {
            Event::Input(Input::Key(key)) => match keys::action(self.state.focus, key) {
                Some(action) => self.state.apply(action),
                None => Effect::Draw,
            },
            Event::Input(_) => Effect::Draw,
            Event::InputLost(error) => return Err(error.into()),
            Event::Signal(SIGTSTP) => Effect::Suspend,
            // Whoever stopped us may have used the terminal.
            Event::Signal(SIGCONT) => {
                screen.retake()?;
                Effect::Draw
            }
            Event::Signal(signal) => return Ok(Some(End::Signal(signal))),
            Event::Answer(answer) => {
                self.waiting &= !matches!(answer, Answer::Sample(_));
                self.state.take(answer, now);
                Effect::Draw
            }
        };
        match effect {
            Effect::Draw => {}
            Effect::Ask(ask) => self.ask(ask, now),
            Effect::Redraw => screen.retake()?,
            Effect::Suspend => screen.suspend()?,
            Effect::Quit => return Ok(Some(End::Asked)),
        }
        Ok(None)
    }
}

/// Ctrl-C and Ctrl-Z arrive as keys: these signals come from elsewhere.
fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let _ = events.send(Event::Signal(signal));
            if !matches!(signal, SIGCONT | SIGTSTP) {
                thread::sleep(PATIENCE);
                let _ = emulate_default_handler(signal);
            }
        }
    })?;
    Ok(())
}

fn read_input(events: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        loop {
            let sent = match event::read() {
                Ok(input) => events.send(Event::Input(input)),
                Err(error) => {
                    let _ = events.send(Event::InputLost(error));
                    break;
                }
            };
            if sent.is_err() {
                break;
            }
        }
    })?;
    Ok(())
}
