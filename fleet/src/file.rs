//! Atomic replacement of files: a reader sees the old content or the new, never a part.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Replaces the content of a file. All users may read it.
///
/// # Errors
/// If the file cannot be written. It is then unchanged.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    // Readers of a folder skip names with a leading dot. A leftover of a killed run is replaced.
    let new = path.with_file_name(format!(".{name}.new"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners.json");
        fs::write(folder.path().join(".owners.json.new"), "half").unwrap();
        replace(&path, b"1").unwrap();
        replace(&path, b"2").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"2");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
