//! Passing descriptors over the socket, with a message.
//!
//! The kernel passes a message's descriptors to the process that receives its first byte, and closes those for which the receiver has no room.
//! Received descriptors are owned values: they are used, or closed.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::DeadlineStream;

/// The number of descriptors that a welcome passes: the memory, and the lock that shows that the memory is in use.
pub(super) const DESCRIPTORS: usize = 2;
/// Room for one more descriptor, to detect it.
const ROOM: usize = DESCRIPTORS + 1;

/// Sends a message, or its first part, and passes descriptors with its first byte. Returns the number of bytes that were sent.
pub(super) fn send_with(
    stream: BorrowedFd<'_>,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room for them");
    }
    loop {
        match sendmsg(stream, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// A stream that receives descriptors with its bytes.
pub(super) struct Passed<'a, 'b> {
    stream: &'a mut DeadlineStream<'b>,
    descriptors: Vec<OwnedFd>,
    /// The number that was passed, and whether some could not be received.
    count: usize,
    were_cut_off: bool,
}

impl<'a, 'b> Passed<'a, 'b> {
    pub(super) fn new(stream: &'a mut DeadlineStream<'b>) -> Self {
        Self { stream, descriptors: Vec::new(), count: 0, were_cut_off: false }
    }

    /// Returns the passed descriptors if their number is that of a welcome. Otherwise they are closed.
    pub(super) fn descriptors(self) -> Result<[OwnedFd; DESCRIPTORS], String> {
        let (count, were_cut_off) = (self.count, self.were_cut_off);
        if were_cut_off && count < DESCRIPTORS {
            return Err("this process has too many open files: raise its limit, `ulimit -n`".to_owned());
        }
        let passed = <[OwnedFd; DESCRIPTORS]>::try_from(self.descriptors).ok();
        passed.filter(|_| count == DESCRIPTORS && !were_cut_off).ok_or_else(|| {
            format!(
                "it has passed {count} descriptors in place of {DESCRIPTORS}: its memory, and the lock of that"
            )
        })
    }
}

impl Read for Passed<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let stream = self.stream.to_read()?;
        let received =
            recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        self.were_cut_off |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for descriptor in descriptors {
                    self.count += 1;
                    if self.descriptors.len() < DESCRIPTORS {
                        self.descriptors.push(descriptor);
                    }
                }
            }
        }
        Ok(received.bytes)
    }
}
