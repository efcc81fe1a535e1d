//! Plots as SVG text: the distance of each rule from the best, the accuracy of predictions, and the
//! format that wins for each matrix.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::case::{Case, best_s, least};
use crate::crossval::Predicted;
use crate::replay::Choices;

const SIZE: (u32, u32) = (900, 600);
/// Lower limit at which regret is drawn, since a logarithmic axis has no zero.
const LEAST_REGRET: f64 = 1e-3;

/// Plots, with one curve per rule, the share of the matrices whose regret is at most a given value.
/// Regret is chosen time / best time - 1.
///
/// # Errors
/// Fails where the drawing library fails.
pub fn regret(title: &str, cases: &[Case], rules: &[Choices]) -> Result<String> {
    let mut svg = String::new();
    let curves: Vec<(&str, Vec<f64>)> = rules
        .iter()
        .map(|rule| {
            let regret = |(case, s): (&Case, &f64)| (s / best_s(case) - 1.0).max(LEAST_REGRET);
            let mut regrets: Vec<f64> = cases.iter().zip(&rule.spmv_s).map(regret).collect();
            regrets.sort_by(f64::total_cmp);
            (rule.rule.as_str(), regrets)
        })
        .collect();
    let most =
        curves.iter().flat_map(|(_, regrets)| regrets.last()).fold(1.0, |a: f64, &b| a.max(b));
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = frame(&area, title)?
            .build_cartesian_2d(0.0..1.0, (LEAST_REGRET..most * 1.1).log_scale())
            .map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .x_desc("share of the matrices")
            .y_desc("chosen over best time, less 1")
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        for (i, (rule, regrets)) in curves.iter().enumerate() {
            let colour = Palette99::pick(i).to_rgba();
            let count = regrets.len().max(1) as f64;
            let points = regrets.iter().enumerate().map(|(k, &y)| ((k + 1) as f64 / count, y));
            chart
                .draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(|e| anyhow!("{e}"))?
                .label(*rule)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        }
        legend(&mut chart)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

/// Plots the predicted against the measured time of every candidate, in microseconds.
///
/// # Errors
/// Fails where the drawing library fails.
pub fn predictions(title: &str, cases: &[Case], predicted: &[Predicted]) -> Result<String> {
    let points = cases.iter().zip(predicted).flat_map(|(case, predicted)| {
        case.trials.iter().zip(&predicted.spmv_s).map(|(t, s)| (t.spmv_s * 1e6, s * 1e6))
    });
    let points: Vec<(f64, f64)> = points.collect();
    let all = || points.iter().flat_map(|&(x, y)| [x, y]);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let range = || (low * 0.9..high * 1.1).log_scale();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = frame(&area, title)?
            .build_cartesian_2d(range(), range())
            .map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .x_desc("measured, us")
            .y_desc("predicted by a model that saw none of the family, us")
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        let colour = Palette99::pick(0).mix(0.3).filled();
        // Enough points to see the cloud, few enough for a file that opens.
        let step = points.len().div_ceil(MOST_POINTS).max(1);
        let dots = points.iter().step_by(step).map(|&point| Circle::new(point, 2, colour));
        chart.draw_series(dots).map_err(|e| anyhow!("{e}"))?;
        let diagonal = LineSeries::new([(low, low), (high, high)], BLACK.stroke_width(1));
        chart.draw_series(diagonal).map_err(|e| anyhow!("{e}"))?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

const MOST_POINTS: usize = 4000;

/// Plots the winning format of each matrix, by the mean row length and the coefficient of variation
/// of row lengths.
///
/// # Errors
/// Fails where the drawing library fails.
pub fn winners(title: &str, cases: &[Case]) -> Result<String> {
    let mut won: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for case in cases {
        let Some(best) = least(case, |_, trial| trial.spmv_s) else { continue };
        let feature = |name: &str| case.features.get(name).copied().unwrap_or(0.0);
        let point = (feature("row_nnz_mean").max(0.1), feature("row_nnz_cv").max(1e-3));
        won.entry(best.format()).or_default().push(point);
    }
    let all = || won.values().flatten();
    let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(1.0, f64::max) * 1.2;
    let (most_x, most_y) = (most(|p| p.0), most(|p| p.1));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = frame(&area, title)?
            .build_cartesian_2d((1.0..most_x).log_scale(), (9e-4..most_y).log_scale())
            .map_err(|e| anyhow!("{e}"))?;
        chart
            .configure_mesh()
            .x_desc("mean row length")
            .y_desc("standard deviation over mean of row lengths")
            .draw()
            .map_err(|e| anyhow!("{e}"))?;
        for (i, (format, points)) in won.iter().enumerate() {
            let colour = Palette99::pick(i).to_rgba();
            let dots = points.iter().map(|&point| Circle::new(point, 4, colour.filled()));
            chart
                .draw_series(dots)
                .map_err(|e| anyhow!("{e}"))?
                .label(format!("{format} ({})", points.len()))
                .legend(move |(x, y)| Circle::new((x + 10, y), 4, colour.filled()));
        }
        legend(&mut chart)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(svg)
}

/// Prepares a white area with a title and room for the names of both axes.
fn frame<'a, 'b>(
    area: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
) -> Result<ChartBuilder<'a, 'b, SVGBackend<'b>>> {
    area.fill(&WHITE).map_err(|e| anyhow!("{e}"))?;
    let mut frame = ChartBuilder::on(area);
    frame.caption(title, ("sans-serif", 20)).margin(15).x_label_area_size(40).y_label_area_size(60);
    Ok(frame)
}

/// Draws the legend at the upper left, where curves and points are rare.
fn legend<'a, X: Ranged, Y: Ranged>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<()> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|e| anyhow!("{e}"))
}
