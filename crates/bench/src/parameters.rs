//! What an experiment is done with: numbers by name.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Numbers by name, in the order of the names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Parameters(BTreeMap<String, u64>);

impl Parameters {
    /// These.
    #[must_use]
    pub fn of(numbers: &[(&str, u64)]) -> Parameters {
        Parameters(numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect())
    }

    /// The number `name`; 0 if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The same with another number; none if there is no number of that name.
    #[must_use]
    pub fn with(mut self, name: &str, number: u64) -> Option<Parameters> {
        *self.0.get_mut(name)? = number;
        Some(self)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, number)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", quantity(number))?;
        }
        Ok(())
    }
}

/// `number`, with a binary prefix if nothing is lost by it: `64 Ki`.
#[must_use]
pub fn quantity(number: u64) -> String {
    let fits = |shift: &u32| number > 0 && number.trailing_zeros() >= *shift;
    let prefix = [(30, "Gi"), (20, "Mi"), (10, "Ki")].into_iter().find(|(shift, _)| fits(shift));
    prefix.map_or(number.to_string(), |(shift, prefix)| format!("{} {prefix}", number >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        let numbers = Parameters::of(&[("files", 10_000), ("bytes", 1024)]);
        assert_eq!(numbers.to_string(), "bytes 1 Ki, files 10000");
        let fewer = numbers.clone().with("files", 10).unwrap();
        assert_eq!((fewer.get("files"), fewer.get("bytes"), fewer.get("depth")), (10, 1024, 0));
        assert_eq!(numbers.with("depth", 1), None);
    }
}
