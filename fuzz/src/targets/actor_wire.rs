//! `sys::actor`: the messages between uvmd, its spawner and its actors, over a real socket.
//!
//! Input: whose language it is, how many descriptors come with it, and a packet. A message that is understood means the same when it is sent on, and no
//! descriptor of a packet is left open.

use std::fs;

use sys::fuzzing::{DESCRIPTORS_MAX, Language, receive_packet};

pub(super) fn run(input: &[u8]) {
    let [language, files, packet @ ..] = input else { return };
    let language = match language % 4 {
        0 => Language::Order,
        1 => Language::Report,
        2 => Language::Request,
        _ => Language::Response,
    };
    let files = usize::from(*files) % (2 * DESCRIPTORS_MAX);
    let open = || fs::read_dir("/proc/self/fd").expect("it is there").count();
    // Other threads open files, too, but for libFuzzer's.
    let before = cfg!(feature = "libfuzzer").then(open);
    let received = receive_packet(language, packet, files);
    assert!(before.is_none_or(|before| open() == before), "descriptors are left");
    let Ok(Some(received)) = received else { return };
    assert!(files <= DESCRIPTORS_MAX && received.files == files, "of those that came some are missing");
    assert_eq!(received.packet.len(), packet.len(), "all messages have one length");
    let again = receive_packet(language, &received.packet, 0).expect("what is sent is understood");
    let again = again.expect("somebody is at the other end");
    assert_eq!((&again.said, &again.packet), (&received.said, &received.packet));
}
