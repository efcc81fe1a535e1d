//! The client of a shared database in a build without one: naming a database is an error.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use ellect::Wisdom;
use ellect::unstable::wisdom::{Layer, Record, Shared};
use ellect_training::corpus::Entry;
use ellect_training::tune;

use super::{Address, Status, Tell};

fn none<T>(address: &Address) -> Result<T> {
    bail!(
        "this program was built without the client of shared wisdom, so it cannot use {address}; \
         build it with `cargo build --release -p ellect-api --features postgres`"
    )
}

/// A client; no value of this type exists in this build.
#[derive(Debug)]
pub enum Client {}

impl Client {
    /// Fails, because this build has no client.
    ///
    /// # Errors
    /// Always.
    pub fn start(address: &Address, _: &Path, _: Tell) -> Result<Arc<Self>> {
        none(address)
    }

    pub fn attach(&self, _: &Arc<Wisdom>) {
        match *self {}
    }

    pub fn status(&self) -> Status {
        match *self {}
    }

    pub fn census(&self) -> Result<Status> {
        match *self {}
    }

    pub fn records_on(&self, _: &str) -> Result<Vec<Record>> {
        match *self {}
    }

    pub fn queue(&self, _: &str, _: Vec<Entry>, _: (usize, usize)) -> Result<Queue> {
        match *self {}
    }
}

impl Shared for Client {
    fn layer(&self, _: ellect::Fingerprint) -> Option<Arc<Layer>> {
        match *self {}
    }

    fn wake(&self) {
        match *self {}
    }

    fn revision(&self) -> u64 {
        match *self {}
    }

    fn finish(&self) {
        match *self {}
    }
}

/// A queue; no value of this type exists in this build.
#[derive(Debug)]
pub enum Queue {}

impl Queue {
    pub fn restart(&self) -> Result<()> {
        match *self {}
    }
}

impl tune::Queue for Queue {
    fn next(&self) -> Option<Entry> {
        match *self {}
    }

    fn done(&self, _: &Entry, _: Option<&str>) {
        match *self {}
    }

    fn left(&self) -> usize {
        match *self {}
    }

    fn close(&self) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_refused_without_its_password() {
        let address: Address = "postgres://a:s3cret@h/d".parse().expect("it never fails");
        let stated = Client::start(&address, Path::new(""), |_| ()).expect_err("none").to_string();
        assert!(stated.contains("--features postgres") && stated.contains("a@h/d"), "{stated}");
        assert!(!stated.contains("s3cret"), "{stated}");
    }
}
