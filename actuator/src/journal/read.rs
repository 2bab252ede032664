//! Reader of a journal, which is not trusted: it may be damaged, of another version, or another
//! file.
//!
//! Lines are separated by line feeds, and by zero bytes, which a power cut leaves in place of
//! unwritten data. An unreadable line does not hide others: reading continues after it, and whole
//! lines within it count, as where two ran together. The end of a file is special: no call followed
//! an incomplete last line, which is therefore no loss.

use std::io::{self, BufRead};

use super::{
    in_force::InForce,
    line::{self, Parsed},
    unrecognised::Unrecognised,
};

/// Maximum size of a file: room for twice the maximum of advice in force, and for the unrecognised
/// lines.
pub(super) const FILE_BYTES_MAX: u64 = 128 << 20;
/// Maximum length of a line, of any version. Longer ones are cut to this.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Content of a journal.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Advice of this boot.
    pub(super) in_force: InForce,
    pub(super) unrecognised: Unrecognised,
    /// Boot of its last rewrite; `None` if unknown.
    pub(super) boot: Option<String>,
}

/// Reads all of it, up to [`FILE_BYTES_MAX`].
///
/// # Errors
/// As the source.
pub(super) fn read(source: impl BufRead, boot: &str) -> io::Result<Contents> {
    let mut source = source.take(FILE_BYTES_MAX);
    let mut reader = Reader { boot, contents: Contents::default(), rest: Vec::new(), has_gap: false };
    while let Some(chunk) = Chunk::next(&mut source)? {
        reader.take(&chunk);
    }
    Ok(reader.contents)
}

/// Chunk between two separators.
#[derive(Debug, Default)]
struct Chunk {
    /// At most [`LINE_BYTES_MAX`] of it.
    text: Vec<u8>,
    is_longer: bool,
    /// Separator after it.
    separator: Option<u8>,
}

impl Chunk {
    /// Next chunk; `None` at the end.
    fn next(source: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut chunk = Self::default();
        let mut is_end = true;
        loop {
            let buffer = match source.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            if buffer.is_empty() {
                return Ok((!is_end).then_some(chunk));
            }
            is_end = false;
            let end = buffer.iter().position(|byte| matches!(byte, b'\n' | 0));
            let text = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = LINE_BYTES_MAX - chunk.text.len();
            chunk.text.extend(text.iter().take(room));
            chunk.is_longer |= text.len() > room;
            chunk.separator = end.and_then(|end| buffer.get(end)).copied();
            let used = text.len() + usize::from(end.is_some());
            source.consume(used);
            if end.is_some() {
                return Ok(Some(chunk));
            }
        }
    }
}

struct Reader<'a> {
    boot: &'a str,
    contents: Contents,
    /// Unreadable rest of the last chunk, if no line feed followed: damage, unless it is at the
    /// file's end.
    rest: Vec<u8>,
    /// Likewise, zero bytes.
    has_gap: bool,
}

impl Reader<'_> {
    fn take(&mut self, chunk: &Chunk) {
        if !chunk.text.is_empty() {
            self.damage();
            let is_read = !chunk.is_longer && self.apply(&chunk.text);
            if !is_read {
                self.salvage(&chunk.text);
            }
        }
        match chunk.separator {
            Some(b'\n') => self.damage(),
            Some(_) => self.has_gap = true,
            None => {}
        }
    }

    /// Marks earlier rests as not at the file's end.
    fn damage(&mut self) {
        if !self.rest.is_empty() {
            self.contents.unrecognised.add_damaged(&self.rest);
            self.rest.clear();
        } else if self.has_gap {
            self.contents.unrecognised.add_gap();
        }
        self.has_gap = false;
    }

    /// Reads the lines within an unreadable text; the rest of it stays in `rest`.
    fn salvage(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some((before, object, after)) = first_object(rest) {
            let is_read = self.apply(object);
            self.rest.extend(before);
            if !is_read {
                self.rest.extend(object);
            }
            rest = after;
        }
        self.rest.extend(rest);
    }

    /// Reads a line; returns whether it is one.
    fn apply(&mut self, text: &[u8]) -> bool {
        match line::parse(text) {
            Parsed::Header { boot } => self.contents.boot = Some(boot),
            Parsed::Advice(line) if line.boot == self.boot => line.apply(&mut self.contents.in_force),
            // Its advice ended with that boot.
            Parsed::Advice(_) => {}
            Parsed::Newer(newer) => self.contents.unrecognised.add_newer(newer, text),
            Parsed::Damaged => return false,
        }
        true
    }
}

/// Text before, within and after the first innermost pair of braces.
fn first_object(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b'}')?;
    let (until_end, after) = text.split_at_checked(end + 1)?;
    let begin = until_end.iter().rposition(|byte| *byte == b'{');
    let (before, object) = until_end.split_at_checked(begin.unwrap_or(until_end.len()))?;
    Some((before, object, after))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use model::{Advice, GpuUuid, ProcessId};

    use super::*;
    use crate::journal::line::Line;

    const GPU: GpuUuid = GpuUuid([1; 16]);

    /// Line of a page of this number.
    fn line(page: u64) -> String {
        let range = (page * 4096, (page + 1) * 4096);
        let process = ProcessId { pid: 42, start_ticks: 7 };
        let line = Line::new("boot", process, GPU, range, Advice::ReadDuplication, false).text().unwrap();
        String::from_utf8(line).unwrap()
    }

    /// Pages whose advice is read, and the unreadable rest.
    fn found(text: impl AsRef<[u8]>) -> (Vec<u64>, Vec<String>) {
        let contents = read(text.as_ref(), "boot").unwrap();
        let pages = contents.in_force.iter().map(|(_, _, begin, ..)| begin / 4096).collect();
        let lines = contents.unrecognised.lines().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        (pages, lines)
    }

    fn is_damaged(text: impl AsRef<[u8]>) -> bool {
        read(text.as_ref(), "boot").unwrap().unrecognised.damage_warning().is_some()
    }

    #[test]
    fn damaged_lines_are_no_advice_on_a_second_read() {
        let nested = line(3).split(",\"crc32\"").next().unwrap().to_owned() + ",\"x\":{\"y\":1}";
        let nested = format!("{nested},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(nested.as_bytes()));
        let (pages, lines) = found(line(1).trim_end().to_owned() + &nested);
        assert_eq!((pages, lines.len()), (vec![1], 1));
        let (pages, again) = found(lines.join("\n") + "\n");
        assert_eq!((pages, again), (vec![], lines));
    }

    #[test]
    fn reading_continues_after_unreadable_lines() {
        let none: [&str; 0] = [];
        let (one, two) = (line(1), line(3));
        assert_eq!(found(format!("{one}{two}")), (vec![1, 3], none.map(Into::into).into()));
        for (between, kept) in [
            ("{\"boot\":\"bo\n", vec!["{\"boot\":\"bo"]),
            ("garbage\n", vec!["garbage"]),
            ("{}\n", vec!["{}"]),
            ("}{\n", vec!["}{"]),
            ("\n\n", vec![]),
            ("\0\0\0\0", vec![]),
            ("half\0\0\0\0", vec!["half"]),
        ] {
            let (pages, lines) = found(format!("{one}{between}{two}"));
            assert_eq!((pages, lines), (vec![1, 3], kept.iter().map(ToString::to_string).collect()), "{between:?}");
            assert_eq!(is_damaged(format!("{one}{between}{two}")), between.trim() != "", "{between:?}");
        }
        assert_eq!(found([one.as_bytes(), b"\xff\xfe\n", two.as_bytes()].concat()).1, ["\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn joined_lines_are_read() {
        let joined = format!("{}{}", line(1).trim_end(), line(3));
        assert_eq!(found(&joined), (vec![1, 3], vec![]));
        // The first line was incomplete.
        let (half, whole) = (&line(1)[..60], line(3));
        assert_eq!(found(format!("{half}{whole}")), (vec![3], vec![half.to_owned()]));
    }

    #[test]
    fn unfinished_last_line_is_no_damage() {
        let (one, two) = (line(1), line(3));
        for cut in 0..two.len() {
            for zeros in ["", "\0\0\0\0"] {
                let text = format!("{one}{}{zeros}", &two[..cut]);
                // Without the line feed it is complete.
                let pages = if cut == two.len() - 1 { vec![1, 3] } else { vec![1] };
                assert_eq!(found(&text), (pages, vec![]), "{cut}");
                assert!(!is_damaged(&text), "{cut}");
            }
        }
    }

    #[test]
    fn endless_line_takes_bounded_memory() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                self.0 += buffer.len() as u64;
                Ok(buffer.len())
            }
        }
        let mut source = Endless(0);
        let contents = read(io::BufReader::new(&mut source), "boot").unwrap();
        assert!(source.0 < FILE_BYTES_MAX + (1 << 20), "{}", source.0);
        assert_eq!(contents.unrecognised.bytes(), 0, "it is at the end");
        let long = format!("{}\n{}", "x".repeat(LINE_BYTES_MAX + 1), line(1));
        let contents = read(long.as_bytes(), "boot").unwrap();
        assert_eq!((contents.unrecognised.bytes(), contents.in_force.len()), (LINE_BYTES_MAX + 1, 1));
    }

    #[test]
    fn excess_lines_are_reported() {
        let text = format!("{}\n", "x".repeat(60_000)).repeat(20);
        let contents = read(text.as_bytes(), "boot").unwrap();
        assert!(contents.unrecognised.is_overfull);
        assert!(contents.unrecognised.bytes() <= super::super::unrecognised::UNRECOGNISED_BYTES_MAX);
    }

    proptest::proptest! {
        #[test]
        fn lines_after_any_content_and_a_line_feed_are_read(noise: Vec<u8>) {
            let text = [&noise[..], b"\n", line(1).as_bytes()].concat();
            proptest::prop_assert_eq!(found(&text).0, vec![1]);
        }
    }
}
