//! Effect of a decision in a few words.

use crate::{Expected, Share};

/// Measured effect, or the expected one: `link -55 %`, `faults -80 %` where no fewer link bytes are expected; with
/// bounds while it is not measured yet.
pub(super) fn effect(link_saved: Option<f64>, faults_saved: Option<f64>, expected: &Expected) -> String {
    let figures = figures(link_saved, faults_saved, expected);
    if let Some((figure, saved)) = figures.into_iter().find_map(|(figure, saved, _)| Some((figure, saved?))) {
        return format!("{figure} {}", change(saved));
    }
    let [(figure, _, share), _] = figures;
    format!("{figure} {} expected", expected_change(share))
}

/// Figures with what is saved of them and what is expected, the one first that a decision is for.
fn figures(
    link_saved: Option<f64>,
    faults_saved: Option<f64>,
    expected: &Expected,
) -> [(&'static str, Option<f64>, Share); 2] {
    let link = ("link", link_saved, expected.link_bytes_saved);
    let faults = ("faults", faults_saved, expected.faults_saved);
    let is_for_faults = expected.link_bytes_saved.at_most <= 0.0 && expected.faults_saved.at_most > 0.0;
    if is_for_faults { [faults, link] } else { [link, faults] }
}

/// Bounds of an expected change; no lower one that says nothing.
fn expected_change(Share { at_least, at_most }: Share) -> String {
    if at_least == 0.0 {
        format!("up to {}", change(at_most))
    } else {
        format!("{} to {}", change(at_least), change(at_most))
    }
}

fn change(saved: f64) -> String {
    // Avoids a negative zero.
    format!("{:+.0} %", -saved * 100.0 + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_is_the_measured_one_or_the_bounds_of_the_expected_one() {
        let expected = Expected { link_bytes_saved: Share { at_least: 0.5, at_most: 0.65 }, ..Expected::default() };
        let effect = |link, faults| effect(link, faults, &expected);
        assert_eq!(effect(Some(0.55), Some(0.9)), "link -55 %");
        assert_eq!(effect(None, Some(0.9)), "faults -90 %");
        assert_eq!(effect(Some(-0.1), None), "link +10 %");
        assert_eq!(effect(None, None), "link -50 % to -65 % expected");
    }

    #[test]
    fn the_effect_of_a_decision_for_fewer_faults_is_that_on_faults() {
        let expected = Expected {
            link_bytes_saved: Share { at_least: -0.1, at_most: 0.0 },
            faults_saved: Share { at_least: 0.0, at_most: 0.9 },
        };
        assert_eq!(effect(Some(0.01), Some(0.75), &expected), "faults -75 %");
        assert_eq!(effect(None, None, &expected), "faults up to -90 % expected");
    }
}
