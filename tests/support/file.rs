//! A file for the time of a test.

use std::path::PathBuf;

/// Gone when the test is over.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("janus-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
