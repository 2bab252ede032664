//! Files that only administrators may change: tokens, keys, and passwords.

use std::{
    fs::{Metadata, OpenOptions},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{anyhow, bail};
use sys::reason;

/// Reads up to `bytes_max` bytes of a secret, unless other users may know or change it.
pub(crate) fn read_secret(path: &Path, bytes_max: u64, group_readable: bool) -> anyhow::Result<Vec<u8>> {
    let (text, metadata) = read(path, bytes_max)?;
    check_secret(&metadata, group_readable)?;
    Ok(text)
}

/// Reads up to `bytes_max` bytes of a file, unless other users may change it.
pub(crate) fn read(path: &Path, bytes_max: u64) -> anyhow::Result<(Vec<u8>, Metadata)> {
    // A pipe would block for ever. Links are accepted: Kubernetes creates some.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| anyhow!("{}", reason(&error)))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        bail!("it is not a regular file");
    }
    if metadata.uid() != 0 && metadata.uid() != uzers::get_effective_uid() {
        bail!("it must belong to root or to uvmd's own user, and belongs to uid {}", metadata.uid());
    }
    check_mode(&metadata, 0o022, "other users may change it: chmod go-w")?;
    let mut text = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut text)?;
    // A part of a file could miss a restriction.
    if text.len() as u64 > bytes_max {
        bail!("it is longer than {bytes_max} bytes");
    }
    Ok((text, metadata))
}

/// Checks that no other user may read the file, except for its group if that is permitted.
pub(crate) fn check_secret(metadata: &Metadata, group_readable: bool) -> anyhow::Result<()> {
    let (forbidden, allowed) = if group_readable { (0o037, "u=rw,g=r") } else { (0o077, "u=rw") };
    check_mode(metadata, forbidden, &format!("other users may read or change it: chmod {allowed},o="))
}

fn check_mode(metadata: &Metadata, forbidden: u32, remedy: &str) -> anyhow::Result<()> {
    if metadata.mode() & forbidden != 0 {
        bail!("{remedy} or similar, it has mode {:o}", metadata.mode() & 0o777);
    }
    Ok(())
}
