//! What a guest tells the host, over its console.
//!
//! The console carries everything: the kernel's messages, what the programs print, and between them marks, which `guest`'s
//! first process writes. A mark is `@@`, a word that no program can know, for it is drawn for each run, and what follows on
//! the line:
//!
//! | mark | means |
//! |---|---|
//! | `ready` | there is an RDMA device with an address |
//! | `begin N` | test N begins |
//! | `end N CODE MS` | test N has ended with this exit code, after so many milliseconds |
//! | `tell WORDS` | a test asks the host for something |
//! | `broken WHY` | the guest could not be set up |
//! | `done` | there is nothing more to do |

/// What a line of the console means.
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
    Tell(String),
    Broken(String),
    Done,
    /// The console has ended: the machine is off.
    Closed,
    /// Not a mark.
    Text(String),
}

/// Reads lines; knows the word that makes a mark.
#[derive(Clone)]
pub(super) struct Reader {
    mark: String,
}

impl Reader {
    /// For marks with this word.
    pub(super) fn new(word: &str) -> Self {
        // The word alone is no mark: it stands on the kernel's command line, which the kernel prints.
        Self { mark: format!("@@{word} ") }
    }

    /// What a line says: a mark, text, or, when a program did not end its last line, text and then a mark.
    pub(super) fn read(&self, line: &str) -> Vec<Event> {
        let line = line.trim_end_matches(['\r', '\n']);
        let Some((text, mark)) = line.split_once(&self.mark) else {
            return vec![Event::Text(line.to_owned())];
        };
        let event = parse(mark).unwrap_or_else(|| Event::Broken(format!("unknown mark: {mark}")));
        if text.is_empty() { vec![event] } else { vec![Event::Text(text.to_owned()), event] }
    }
}

/// What follows the mark's word.
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
        "tell" => Event::Tell(rest.to_owned()),
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
        assert_eq!(read("@@7f3a tell off server"), [Event::Tell("off server".to_owned())]);
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
    fn a_mark_that_makes_no_sense_is_named() {
        for mark in ["end 3", "end x 0 0", "begin", "begin -1", "over"] {
            let events = read(&format!("@@7f3a {mark}"));
            assert_eq!(events, [Event::Broken(format!("unknown mark: {mark}"))]);
        }
    }
}
