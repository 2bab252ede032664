//! Key bindings, in the manner of htop. The action of a key depends on the focus.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Move the selection by this number of rows.
    Move(isize),
    /// Move the selection by this number of pages.
    Page(isize),
    First,
    Last,
    /// Close the prompt, page or pane; else clear the selection.
    Leave,
    Detail,
    /// Sort by the column at this distance to the right.
    Sort(isize),
    Invert,
    Prompt(Purpose),
    NextMatch,
    Type(char),
    Erase,
    EraseAll,
    Accept,
    Totals,
    Ended,
    Pause,
    Slower,
    Faster,
    /// Show a page in place of the table, or return to the table.
    Open(Page),
    Redraw,
    Suspend,
    Quit,
}

/// Purpose of typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Search,
    Filter,
}

/// Focus of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Table,
    Prompt(Purpose),
    Page(Page),
}

/// Page in place of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Help,
    /// Explanation of the selected process.
    Explain,
    /// Evictions by victim and evictor.
    Evictions,
}

pub(crate) fn action(focus: Focus, key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match (key.code, focus) {
            (KeyCode::Char('c'), _) => Some(Action::Quit),
            (KeyCode::Char('z'), _) => Some(Action::Suspend),
            (KeyCode::Char('l'), _) => Some(Action::Redraw),
            (KeyCode::Char('u'), Focus::Prompt(_)) => Some(Action::EraseAll),
            (KeyCode::Char('h'), Focus::Prompt(_)) => Some(Action::Erase),
            _ => None,
        };
    }
    match focus {
        Focus::Table => in_table(key.code),
        Focus::Prompt(purpose) => in_prompt(purpose, key.code),
        Focus::Page(open) => Some(match in_table(key.code) {
            Some(action @ (Action::Move(_) | Action::Page(_))) => action,
            Some(Action::Open(other)) if other != open => Action::Open(other),
            Some(Action::Quit) if key.code != KeyCode::Char('q') => Action::Quit,
            _ => Action::Leave,
        }),
    }
}

fn in_table(key: KeyCode) -> Option<Action> {
    Some(match key {
        KeyCode::Up | KeyCode::Char('k') => Action::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Action::Move(1),
        KeyCode::PageUp => Action::Page(-1),
        KeyCode::PageDown => Action::Page(1),
        KeyCode::Home => Action::First,
        KeyCode::End => Action::Last,
        KeyCode::Esc => Action::Leave,
        KeyCode::Enter | KeyCode::F(5) => Action::Detail,
        KeyCode::F(6) | KeyCode::Char('>' | '.') => Action::Sort(1),
        KeyCode::Char('<' | ',') => Action::Sort(-1),
        KeyCode::Char('I') => Action::Invert,
        KeyCode::F(3) | KeyCode::Char('/') => Action::Prompt(Purpose::Search),
        KeyCode::F(4) | KeyCode::Char('\\') => Action::Prompt(Purpose::Filter),
        KeyCode::Char('n') => Action::NextMatch,
        KeyCode::Char('t') => Action::Totals,
        KeyCode::Char('x') => Action::Ended,
        KeyCode::Char('p') => Action::Pause,
        KeyCode::Char('+') => Action::Slower,
        KeyCode::Char('-') => Action::Faster,
        KeyCode::F(1) | KeyCode::Char('?' | 'h') => Action::Open(Page::Help),
        KeyCode::F(2) | KeyCode::Char('e') => Action::Open(Page::Explain),
        KeyCode::Char('v') => Action::Open(Page::Evictions),
        KeyCode::F(10) | KeyCode::Char('q') => Action::Quit,
        _ => return None,
    })
}

fn in_prompt(purpose: Purpose, key: KeyCode) -> Option<Action> {
    Some(match (key, purpose) {
        (KeyCode::F(3) | KeyCode::Down, Purpose::Search) => Action::NextMatch,
        (KeyCode::Char(character), _) => Action::Type(character),
        (KeyCode::Backspace, _) => Action::Erase,
        (KeyCode::Enter, _) => Action::Accept,
        (KeyCode::Esc, _) => Action::Leave,
        (KeyCode::F(10), _) => Action::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(focus: Focus, code: KeyCode) -> Option<Action> {
        action(focus, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn every_function_key_of_the_last_line_has_a_letter_for_terminals_without_them() {
        let pairs = [(1, '?'), (2, 'e'), (3, '/'), (4, '\\'), (6, '>'), (10, 'q')];
        for (function, letter) in pairs {
            let of = |code| pressed(Focus::Table, code).unwrap();
            assert_eq!(of(KeyCode::F(function)), of(KeyCode::Char(letter)));
        }
        assert_eq!(pressed(Focus::Table, KeyCode::F(5)), pressed(Focus::Table, KeyCode::Enter));
    }

    #[test]
    fn letters_are_text_where_text_is_typed() {
        for letter in ['q', 'p', '/', '<', 'ü'] {
            assert_eq!(pressed(Focus::Prompt(Purpose::Filter), KeyCode::Char(letter)), Some(Action::Type(letter)));
        }
    }

    #[test]
    fn quit_and_suspend_work_in_every_focus() {
        for focus in [Focus::Table, Focus::Page(Page::Help), Focus::Prompt(Purpose::Search)] {
            let ctrl = |letter| action(focus, KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
            assert_eq!((ctrl('c'), ctrl('z')), (Some(Action::Quit), Some(Action::Suspend)));
            assert_eq!(pressed(focus, KeyCode::F(10)), Some(Action::Quit));
        }
    }
}
