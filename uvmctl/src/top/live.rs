//! Event loop of the live view: waits for keys, signals and responses, and redraws.

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
    fetch::{self, Request, Response},
    keys,
    screen::Screen,
    state::{Effect, State},
    view,
};
use crate::{client::Client, look::Look};

/// Minimum interval between frames, even at fast key presses.
const FRAME_INTERVAL_MIN: Duration = Duration::from_millis(40);
/// Maximum delay of the second reading, which yields the first rates.
const FIRST_RATES_DELAY: Duration = Duration::from_millis(500);
/// Usual maximum time of a response, which is then drawn. Without one, the old figures are redrawn
/// with their age.
const RESPONSE_TYPICAL: Duration = Duration::from_millis(500);
/// Grace period after a signal: a blocked terminal may prevent a regular exit.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

enum Event {
    Input(Input),
    /// End or error of the input.
    InputLost(io::Error),
    Signal(i32),
    Response(Response),
}

/// Reason for the end of the view.
enum End {
    Quit,
    Signal(i32),
}

pub(crate) fn run(client: Client, state: State) -> anyhow::Result<()> {
    let (events, received) = mpsc::channel();
    watch_signals(events.clone())?;
    let requests = fetch::start(client, events.clone(), Event::Response)?;
    let mut screen = Screen::enter()?;
    read_input(events)?;
    let view = View { state, look: Look::detect(), requests, next_request_at: Instant::now(), is_pending: false };
    let end = view.show(&mut screen, &received);
    // Restores the terminal before any message and before an exit by a signal.
    drop(screen);
    match end? {
        End::Quit => Ok(()),
        End::Signal(signal) => Ok(emulate_default_handler(signal)?),
    }
}

/// The live view without its screen.
struct View {
    state: State,
    look: Look,
    requests: Sender<Request>,
    next_request_at: Instant,
    /// Whether a response to a sample is pending.
    is_pending: bool,
}

impl View {
    fn show(mut self, screen: &mut Screen, events: &Receiver<Event>) -> anyhow::Result<End> {
        // Rates need a second response.
        self.next_request_at = Instant::now() + self.state.settings.interval.min(FIRST_RATES_DELAY);
        loop {
            let drawn = Instant::now();
            screen.draw(|frame| view::draw(frame, &mut self.state, self.look, drawn))?;
            let mut next = drawn + self.state.settings.interval + RESPONSE_TYPICAL;
            loop {
                self.request_if_due();
                let due = if self.is_pending || self.state.paused { next } else { next.min(self.next_request_at) };
                match events.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(event) => {
                        if let Some(end) = self.handle(event, screen)? {
                            return Ok(end);
                        }
                        next = next.min(drawn + FRAME_INTERVAL_MIN);
                    }
                    Err(RecvTimeoutError::Timeout) if Instant::now() < next => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Ok(End::Quit),
                }
            }
        }
    }

    fn request_if_due(&mut self) {
        let now = Instant::now();
        if self.is_pending || self.state.paused || now < self.next_request_at {
            return;
        }
        self.next_request_at = now + self.state.settings.interval;
        self.send(self.state.next_request(), now);
    }

    fn send(&mut self, request: Request, now: Instant) {
        // A closed channel means that the thread panicked; the missing responses are then shown.
        if self.requests.send(request).is_ok() && matches!(request, Request::Sample(_)) {
            self.is_pending = true;
            self.state.request_sent(now);
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
            // Another program may have used the terminal in the meantime.
            Event::Signal(SIGCONT) => {
                screen.reenter()?;
                Effect::Draw
            }
            Event::Signal(signal) => return Ok(Some(End::Signal(signal))),
            Event::Response(response) => {
                self.is_pending &= !matches!(response, Response::Sample(_));
                self.state.take(response, now);
                Effect::Draw
            }
        };
        match effect {
            Effect::Draw => {}
            Effect::Send(request) => self.send(request, now),
            Effect::Redraw => screen.reenter()?,
            Effect::Suspend => screen.suspend()?,
            Effect::Quit => return Ok(Some(End::Quit)),
        }
        Ok(None)
    }
}

/// Forwards signals as events. Ctrl-C and Ctrl-Z arrive as keys, so these signals come from other
/// processes.
fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let _ = events.send(Event::Signal(signal));
            if !matches!(signal, SIGCONT | SIGTSTP) {
                thread::sleep(GRACE_PERIOD);
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
