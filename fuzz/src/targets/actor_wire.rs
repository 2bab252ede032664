//! `sys::actor`: messages between uvmd, its spawner and its actors, over a real socket.
//!
//! Input: direction, number of descriptors, and a packet. A decoded message is equal after it is
//! encoded again, and no descriptor of a packet stays open.

use std::fs;

use sys::fuzzing::{DESCRIPTORS_MAX, Direction, receive_packet};

pub(super) fn run(input: &[u8]) {
    let [direction, files, packet @ ..] = input else { return };
    let direction = match direction % 4 {
        0 => Direction::Order,
        1 => Direction::Report,
        2 => Direction::Request,
        _ => Direction::Response,
    };
    let files = usize::from(*files) % (2 * DESCRIPTORS_MAX);
    let open = || fs::read_dir("/proc/self/fd").expect("it is there").count();
    // Other threads open files too, except libFuzzer's.
    let before = cfg!(feature = "libfuzzer").then(open);
    let received = receive_packet(direction, packet, files);
    assert!(before.is_none_or(|before| open() == before), "descriptors are left");
    let Ok(Some(received)) = received else { return };
    assert!(files <= DESCRIPTORS_MAX && received.files == files, "of those that came some are missing");
    assert_eq!(received.packet.len(), packet.len(), "all messages have one length");
    let again = receive_packet(direction, &received.packet, 0).expect("what is sent is understood");
    let again = again.expect("somebody is at the other end");
    assert_eq!((&again.debug, &again.packet), (&received.debug, &received.packet));
}
