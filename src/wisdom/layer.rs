//! The records of one matrix in a layer of wisdom below the user's own database.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::placing::joined;
use super::record::{self, Record, StructureRecord};
use super::wanted::{Answer, Wanted, best};
use crate::measure::Measurement;

/// Records of one matrix, one measurement for each key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    pub(super) structure: Option<StructureRecord>,
    /// By key.
    pub(super) measurements: BTreeMap<String, Measurement>,
}

impl Layer {
    /// Keeps the last record of each key.
    pub(super) fn of_last(records: Vec<Record>) -> Self {
        let mut layer = Layer::default();
        for record in records {
            match record {
                Record::Structure(structure) => layer.structure = Some(structure),
                Record::Measurement(measured) => {
                    layer.measurements.insert(record::key_of(&measured), *measured);
                }
            }
        }
        layer
    }

    /// Joins the records of several hosts: the measurements of a key become the runs of one, whose
    /// median run counts, so that no host's clock decides which one answers. A run that is there
    /// twice counts once.
    pub fn of_hosts(records: Vec<Record>) -> Self {
        let mut layer = Layer::default();
        for record in records {
            match record {
                Record::Structure(structure) => {
                    layer.structure = Some(match layer.structure.take() {
                        Some(there) => there.named_also(&structure),
                        None => structure,
                    });
                }
                Record::Measurement(measured) => {
                    match layer.measurements.entry(record::key_of(&measured)) {
                        Entry::Vacant(place) => drop(place.insert(*measured)),
                        Entry::Occupied(mut there) => {
                            if let Some(both) = joined(there.get().clone(), *measured) {
                                there.insert(both);
                            }
                        }
                    }
                }
            }
        }
        layer
    }

    /// Returns the records, the structure first.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        let structure = self.structure.clone().map(Record::Structure);
        let measured = self.measurements.values().cloned();
        structure.into_iter().chain(measured.map(|m| Record::Measurement(Box::new(m))))
    }

    /// Looks up the measurements whose keys begin with `prefix`.
    pub(super) fn ask(&self, wanted: &Wanted<'_>, prefix: &str) -> Answer {
        let own = self.measurements.range(prefix.to_string()..);
        let own = own.take_while(|(key, _)| key.starts_with(prefix));
        best(wanted, own.map(|(_, measured)| measured.clone()).collect())
    }
}
