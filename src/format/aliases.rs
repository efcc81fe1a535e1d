//! Aliases: earlier names of formats, which stored data and users may still contain.
//!
//! Stored text is rewritten where it is read, so that the program compares and prints current names
//! only. Each format lists its own aliases ([`Storage::ALIASES`](super::Storage::ALIASES)).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{Candidate, FORMATS};

/// Splits a candidate's text into the name of its format and the rest.
fn split(candidate: &str) -> (&str, &str) {
    candidate.split_at(candidate.find(':').unwrap_or(candidate.len()))
}

/// Returns this text, the name of a format or a candidate, with the format's current name in place
/// of an alias; other text is returned unchanged.
pub(crate) fn current(text: &str) -> Cow<'_, str> {
    let (name, rest) = split(text);
    match FORMATS.iter().find(|format| format.aliases.contains(&name)) {
        Some(format) => Cow::Owned(format!("{}{rest}", format.name)),
        None => Cow::Borrowed(text),
    }
}

/// Replaces the text by [`current`].
pub(crate) fn rename(text: &mut String) {
    if let Cow::Owned(renamed) = current(text) {
        *text = renamed;
    }
}

/// Replaces each key by its current name. If a map has both the current name and an alias, the
/// value of the current name is kept.
pub fn rename_keys<T>(map: &mut BTreeMap<String, T>) {
    for (key, value) in std::mem::take(map) {
        match current(&key) {
            Cow::Owned(renamed) => drop(map.entry(renamed).or_insert(value)),
            Cow::Borrowed(_) => drop(map.insert(key, value)),
        }
    }
}

/// Deserializes a text and replaces it by [`current`].
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mut text = String::deserialize(deserializer)?;
    rename(&mut text);
    Ok(text)
}

/// Returns the oldest name of the format with this name, or `name` if no format has it.
pub(crate) fn oldest(name: &str) -> &str {
    let format = FORMATS.iter().find(|format| format.name == name);
    format.and_then(|format| format.aliases.first()).map_or(name, |alias| *alias)
}

/// Returns the text of a candidate with the oldest name of its format: the key by which candidates
/// are sorted where results depend on the order, so that they outlive a new name.
pub fn sort_key(candidate: &str) -> Cow<'_, str> {
    let (name, params) = split(candidate);
    match oldest(name) {
        same if same == name => Cow::Borrowed(candidate),
        oldest => Cow::Owned(format!("{oldest}{params}")),
    }
}

impl Candidate {
    /// Tells whether the candidate's text begins with `text`, in which an alias may stand for the
    /// format's name. The name of a format means that format alone, not others whose names begin
    /// with it. A complete candidate means itself, also where it names a parameter that a candidate's
    /// text leaves out.
    ///
    /// ```
    /// use ellect::format::Candidate;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let candidate: Candidate = "hll:hack=64".parse()?;
    /// assert!(candidate.begins_with("hll:hack=6") && !candidate.begins_with("ell"));
    /// let indexed: Candidate = "hll_vi".parse()?;
    /// assert!(indexed.begins_with("hll_") && !indexed.begins_with("hll"));
    /// let [automatic, scalar]: [Candidate; 2] = ["csr".parse()?, "csr:kernel=scalar".parse()?];
    /// assert!(automatic.begins_with("csr:kernel=auto") && !scalar.begins_with("csr:kernel=auto"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn begins_with(&self, text: &str) -> bool {
        let own = self.to_string();
        let params = &own[self.format.name.len()..];
        let mut aliases = self.format.aliases.iter();
        let rest = |alias: &&str| text.strip_prefix(*alias);
        let is_other = FORMATS.iter().any(|other| other.name == text) && self.format.name != text;
        (own.starts_with(text) && !is_other)
            || aliases.any(|alias| rest(alias).is_some_and(|rest| params.starts_with(rest)))
            || text.parse::<Candidate>().is_ok_and(|named| named == *self)
    }

    /// Tells whether the candidate's text begins with one of these texts, as
    /// [`Candidate::begins_with`]; true if there are none.
    pub fn is_among(&self, texts: &[String]) -> bool {
        texts.is_empty() || texts.iter().any(|text| self.begins_with(text))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::device::Kind;
    use crate::format::{candidates, find};

    #[test]
    fn no_name_or_alias_is_given_twice() {
        let mut names = BTreeSet::new();
        for format in FORMATS {
            for name in std::iter::once(&format.name).chain(format.aliases) {
                assert!(names.insert(*name), "{name} is given twice");
                assert_eq!(find(name).expect("a format").name, format.name);
            }
        }
        assert!(names.len() > FORMATS.len(), "some formats have aliases");
    }

    #[test]
    fn earlier_names_are_read_and_current_ones_are_printed() {
        let renamed = [
            ("stcsr", "st_csr"),
            ("stvi", "st_csr_vi"),
            ("hllvi", "hll_vi"),
            ("hlldu", "hll_du"),
            ("slabs", "cache_blocked"),
            ("hubs", "hub_ell"),
            ("sweep", "column_sweep"),
        ];
        for (alias, name) in renamed {
            assert_eq!(find(alias).expect("an alias").name, name);
            assert_eq!((current(alias).as_ref(), oldest(name)), (name, alias));
            let mut all = candidates(Kind::Gpu);
            all.retain(|candidate| candidate.format.name == name);
            assert!(!all.is_empty());
            for candidate in all {
                let text = candidate.to_string();
                let earlier = text.replacen(name, alias, 1);
                assert_eq!(earlier.parse::<Candidate>().expect("earlier text"), candidate);
                assert_eq!(current(&earlier), text);
                assert_eq!(sort_key(&text), earlier);
                assert!(candidate.begins_with(&earlier) && candidate.begins_with(alias));
                assert!(candidate.begins_with(&text) && candidate.begins_with(name));
            }
        }
        let stvi: Candidate = "stvi:tile=1024".parse().expect("an alias");
        assert_eq!(stvi.to_string(), "st_csr_vi:tile=1024");
        assert!(!stvi.begins_with("stcsr") && !stvi.begins_with("stvi:tile=2048"));
        for unchanged in ["csr", "csr:stcsr", "stcsr_", "stay", "", ":"] {
            assert_eq!(current(unchanged), unchanged);
        }
        assert_eq!((oldest("csr"), oldest("nosuch")), ("csr", "nosuch"));
    }

    #[test]
    fn of_two_keys_the_current_name_counts() {
        let mut map: BTreeMap<String, u8> =
            [("hub_ell:a", 1), ("hubs:a", 2), ("stcsr", 3), ("others", 4)]
                .map(|(key, value)| (key.to_string(), value))
                .into();
        rename_keys(&mut map);
        let pairs: Vec<_> = map.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        assert_eq!(pairs, [("hub_ell:a", 1), ("others", 4), ("st_csr", 3)]);
    }
}
