//! Many times of one thing in few numbers.

/// Nanoseconds for one operation, over all rounds.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The fastest round.
    pub min: f64,
    /// A quarter of the rounds were faster.
    pub lower: f64,
    /// Half of the rounds were faster.
    pub median: f64,
    /// Three quarters of the rounds were faster.
    pub upper: f64,
    /// The slowest round.
    pub max: f64,
}

impl Summary {
    /// Of at least one time.
    pub fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |quarter: usize| times[(times.len() - 1) * quarter / 4];
        Summary { min: at(0), lower: at(1), median: at(2), upper: at(3), max: at(4) }
    }
}

/// The geometric mean; `None` of nothing.
pub fn geomean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios.into_iter().fold((0.0, 0), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_five_are_its_elements() {
        let summary = Summary::of(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((summary.min, summary.lower, summary.median), (1.0, 2.0, 3.0));
        assert_eq!((summary.upper, summary.max), (4.0, 5.0));
    }

    #[test]
    fn geomean_of_reciprocals_is_one() {
        assert!((geomean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12);
        assert!(geomean([]).is_none());
    }
}
