//! `sys::accessor`: messages between uvmd and the accessors of shared memory, over a real socket.
//!
//! Input: direction, and a packet. A message that is understood is the same packet after it is encoded again.

use sys::fuzzing::{resend_reply, resend_request};

/// Longest packet that a socket takes.
const PACKET_BYTES_MAX: usize = 100 << 10;

pub(super) fn run(input: &[u8]) {
    let [direction, packet @ ..] = input else { return };
    // No side sends an empty packet, which means the end.
    if packet.is_empty() || packet.len() > PACKET_BYTES_MAX {
        return;
    }
    let again = if direction.is_multiple_of(2) { resend_request(packet) } else { resend_reply(packet) };
    if let Some(again) = again.expect("the socket takes it") {
        assert_eq!(again, packet);
    }
}
