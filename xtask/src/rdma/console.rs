//! The guest's messages to the host, over its console.
//!
//! The console carries the kernel's messages, the programs' output, and marks that the guest's first process writes. A mark consists of
//! `@@`, a random word drawn for each run, which programs do not know, and the rest of the line:
//!
//! | mark | meaning |
//! |---|---|
//! | `ready` | there is an RDMA device with an address |
//! | `begin N` | test N begins |
//! | `end N CODE MS` | test N has ended, with this exit code and time |
//! | `request WORDS` | a test sends a request to the host |
//! | `broken WHY` | the guest could not be set up |
//! | `done` | all tests have ended |

/// A line of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Ready,
    Begin {
        test: usize,
    },
    End {
        test: usize,
        code: i32,
        ms: u64,
    },
    Request(String),
    Broken(String),
    Done,
    /// The console has ended: the machine is off.
    Closed,
    /// A line without a mark.
    Text(String),
}

/// Parses lines; knows the run's random word.
#[derive(Clone)]
pub(super) struct Reader {
    mark: String,
}

impl Reader {
    /// For marks with this word.
    pub(super) fn new(word: &str) -> Self {
        // The blank is part of the mark: the word itself is on the kernel's command line, which the kernel prints.
        Self { mark: format!("@@{word} ") }
    }

    /// The events of a line: a mark, text, or text and a mark if a program did not end its last line.
    pub(super) fn read(&self, line: &str) -> Vec<Event> {
        let line = line.trim_end_matches(['\r', '\n']);
        let Some((text, mark)) = line.split_once(&self.mark) else {
            return vec![Event::Text(line.to_owned())];
        };
        let event = parse(mark).unwrap_or_else(|| Event::Broken(format!("unknown mark: {mark}")));
        if text.is_empty() { vec![event] } else { vec![Event::Text(text.to_owned()), event] }
    }
}

/// Parses the rest of a mark.
fn parse(mark: &str) -> Option<Event> {
    let (name, rest) = mark.split_once(' ').unwrap_or((mark, ""));
    let mut words = rest.split_whitespace();
    Some(match name {
        "ready" => Event::Ready,
        "begin" => Event::Begin { test: words.next()?.parse().ok()? },
        "end" => Event::End {
            test: words.next()?.parse().ok()?,
            code: words.next()?.parse().ok()?,
            ms: words.next()?.parse().ok()?,
        },
        "request" => Event::Request(rest.to_owned()),
        "broken" => Event::Broken(rest.to_owned()),
        "done" => Event::Done,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<Event> {
        Reader::new("7f3a").read(line)
    }

    #[test]
    fn marks_are_read() {
        assert_eq!(read("@@7f3a ready\r\n"), [Event::Ready]);
        assert_eq!(read("@@7f3a begin 3"), [Event::Begin { test: 3 }]);
        assert_eq!(read("@@7f3a end 3 137 20010"), [Event::End { test: 3, code: 137, ms: 20010 }]);
        assert_eq!(read("@@7f3a request off server"), [Event::Request("off server".to_owned())]);
        assert_eq!(read("@@7f3a broken no rxe0"), [Event::Broken("no rxe0".to_owned())]);
        assert_eq!(read("@@7f3a done"), [Event::Done]);
    }

    #[test]
    fn everything_else_is_text() {
        for line in
            ["", "end 3 0 10", "@@0000 done", "@@7f3adone", "FARFIELD_MARK=7f3a done", "[    0.1] kernel"]
        {
            assert_eq!(read(&format!("{line}\r")), [Event::Text(line.to_owned())]);
        }
    }

    #[test]
    fn a_mark_behind_an_unfinished_line_is_found() {
        assert_eq!(read("50 %@@7f3a done"), [Event::Text("50 %".to_owned()), Event::Done]);
    }

    #[test]
    fn an_unknown_mark_is_named() {
        for mark in ["end 3", "end x 0 0", "begin", "begin -1", "over"] {
            let events = read(&format!("@@7f3a {mark}"));
            assert_eq!(events, [Event::Broken(format!("unknown mark: {mark}"))]);
        }
    }
}
