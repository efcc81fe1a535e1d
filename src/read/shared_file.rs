//! A file that several readers use at once, each at its own position.

use std::fs::File;
use std::io::{BufReader, Read, Result, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError};

/// A buffered reader of a file; a clone reads the same file from the same position on.
pub(super) struct SharedFile(BufReader<Place>);

/// A file, and the position of one of its readers.
#[derive(Clone)]
struct Place {
    file: Arc<Mutex<File>>,
    at: u64,
}

impl SharedFile {
    /// Creates a reader at the start of the file.
    pub fn new(file: File) -> Self {
        SharedFile(BufReader::new(Place { file: Arc::new(Mutex::new(file)), at: 0 }))
    }
}

impl Clone for SharedFile {
    fn clone(&self) -> Self {
        let unread = self.0.buffer().len() as u64;
        let place = self.0.get_ref().clone();
        SharedFile(BufReader::new(Place { at: place.at - unread, ..place }))
    }
}

impl Read for SharedFile {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.0.seek(to)
    }
}

impl Read for Place {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Place {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let SeekFrom::Current(_) = to {
            file.seek(SeekFrom::Start(self.at))?;
        }
        self.at = file.seek(to)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn readers_of_one_file_keep_their_positions() {
        let mut file = tempfile::tempfile().expect("a file");
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&bytes).expect("room");
        let mut first = SharedFile::new(file);
        let mut start = [0; 12];
        first.read_exact(&mut start).expect("bytes");
        assert_eq!(start, bytes[..12]);
        let mut second = first.clone();
        assert_eq!(second.stream_position().expect("a file"), 12);
        first.seek(SeekFrom::End(-8)).expect("a file");
        let (mut end, mut rest) = (Vec::new(), Vec::new());
        second.seek(SeekFrom::Current(4)).expect("a file");
        second.by_ref().take(50_000).read_to_end(&mut rest).expect("bytes");
        first.read_to_end(&mut end).expect("bytes");
        second.read_to_end(&mut rest).expect("bytes");
        assert_eq!((end.as_slice(), rest.as_slice()), (&bytes[399_992..], &bytes[16..]));
    }
}
