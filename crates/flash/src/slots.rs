//! Things that are known by numbers, which are used again.

/// Things with numbers.
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    /// Numbers that are free.
    free: Vec<usize>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Slots<T> {
        Slots { places: Vec::new(), free: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes `value` in: its number.
    pub(crate) fn put(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.places.get_mut(number) {
                    *place = Some(value);
                }
                number
            }
            None => {
                self.places.push(Some(value));
                self.places.len() - 1
            }
        }
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.places.get_mut(number)?.as_mut()
    }

    /// Takes out what has this number.
    pub(crate) fn take(&mut self, number: usize) -> Option<T> {
        let taken = self.places.get_mut(number)?.take();
        if taken.is_some() {
            self.free.push(number);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slots = Slots::new();
        let numbers: Vec<_> = "abc".chars().map(|name| slots.put(name)).collect();
        assert_eq!((numbers.as_slice(), slots.len()), ([0, 1, 2].as_slice(), 3));
        assert_eq!((slots.take(1), slots.take(1), slots.len()), (Some('b'), None, 2));
        assert_eq!(slots.put('d'), 1);
        assert_eq!((slots.len(), slots.get_mut(1)), (3, Some(&mut 'd')));
        assert_eq!(slots.get_mut(3), None);
        assert_eq!(slots.take(3), None);
    }
}
