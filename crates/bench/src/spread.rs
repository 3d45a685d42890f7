//! The median and the range of several measurements.

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread(Vec<f64>);

impl Spread {
    pub fn add(&mut self, reading: f64) {
        let at = self.0.partition_point(|known| *known < reading);
        self.0.insert(at, reading);
    }

    /// The median, or 0 without measurements.
    pub fn median(&self) -> f64 {
        match self.0.len() {
            0 => 0.0,
            n if n % 2 == 1 => self.0[n / 2],
            n => f64::midpoint(self.0[n / 2 - 1], self.0[n / 2]),
        }
    }

    /// The smallest and the largest measurement.
    pub fn bounds(&self) -> (f64, f64) {
        (self.0.first().copied().unwrap_or_default(), self.0.last().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        for readings in [vec![3.0, 1.0, 2.0], vec![1.0, 2.0, 3.0], vec![2.0, 3.0, 1.0, 2.0]] {
            let mut spread = Spread::default();
            readings.into_iter().for_each(|reading| spread.add(reading));
            assert_eq!((spread.median(), spread.bounds()), (2.0, (1.0, 3.0)));
        }
        assert_eq!(Spread::default().median(), 0.0);
    }
}
