//! Plots: a table of `cargo xtask scaling` as two curves for each number of memory nodes.

use std::path::PathBuf;

use clap::Args;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::scaling::{Point, points};
use crate::workspace::read;

/// What to draw, and where.
#[derive(Args)]
pub(crate) struct Options {
    /// What the plot is called
    pub(crate) title: String,
    /// The table
    pub(crate) csv: PathBuf,
    /// The plot
    pub(crate) svg: PathBuf,
}

/// Draws a table.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let csv = &options.csv;
    let points = points(&read(csv)?).map_err(|why| format!("{}: {why}", csv.display()))?;
    let svg = drawn(&options.title, &points)?;
    std::fs::write(&options.svg, svg).map_err(|error| format!("{}: {error}", options.svg.display()))
}

/// The size of the whole picture, in pixels: one panel beside the other.
const SIZE: (u32, u32) = (960, 420);
const FONT: &str = "sans-serif";

/// One of the two panels.
struct Panel {
    title: String,
    /// What the vertical axis shows.
    axis: &'static str,
    value: fn(&Point) -> f64,
}

fn drawn(title: &str, points: &[Point]) -> Result<String, String> {
    if points.is_empty() {
        return Err("there are no points to draw".to_owned());
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| format!("the plot: {error}");
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let panels = [
            Panel {
                title: format!("{title}: throughput"),
                axis: "operations a second",
                #[allow(clippy::cast_precision_loss)] // a pixel is coarser
                value: |point| point.ops_per_sec as f64,
            },
            Panel {
                title: format!("{title}: p99 latency of get"),
                axis: "round trips",
                value: |point| point.p99_rtts,
            },
        ];
        for (panel, area) in panels.iter().zip(area.split_evenly((1, 2))) {
            draw(panel, &area, points).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

type Area<'a, 'b> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(panel: &Panel, area: &Area<'_, '_>, points: &[Point]) -> Result<(), Box<dyn std::error::Error>> {
    let values = || points.iter().map(panel.value).filter(|value| *value > 0.0);
    let (least, most) =
        values().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    let threads = || points.iter().map(|point| f64::from(point.threads));
    let most_threads = threads().fold(2.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (1.0..most_threads).log_scale().base(2.0),
            (least * 0.8..most * 1.25).log_scale(),
        )?;
    let short = |value: &f64| Short::format(value);
    chart
        .configure_mesh()
        .x_desc("compute threads")
        .y_desc(panel.axis)
        .x_labels(12)
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .light_line_style(WHITE)
        .draw()?;
    let mut nodes: Vec<u32> = points.iter().map(|point| point.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for (index, nodes) in nodes.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let line: Vec<(f64, f64)> = points
            .iter()
            .filter(|point| point.nodes == *nodes)
            .map(|point| (f64::from(point.threads), (panel.value)(point)))
            .collect();
        let label = if *nodes == 1 { "1 memory node".to_owned() } else { format!("{nodes} memory nodes") };
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(2))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

/// Numbers with their prefix: `512`, `20k`, `1.5M`.
struct Short;

impl ValueFormatter<f64> for Short {
    fn format(value: &f64) -> String {
        let (value, prefix) = match *value {
            value if value >= 1e6 => (value / 1e6, "M"),
            value if value >= 1e3 => (value / 1e3, "k"),
            value => (value, ""),
        };
        let rounded = (value * 10.0).round() / 10.0;
        format!("{rounded}{prefix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::tests::made_up;

    #[test]
    fn every_line_is_labelled() {
        let svg = drawn("hash-set", &made_up()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in
            ["hash-set: throughput", "round trips", "compute threads", "1 memory node", "4 memory nodes"]
        {
            assert!(svg.contains(text), "{text}");
        }
        let curves = svg.matches("<polyline").count();
        assert!(curves >= 6, "a curve for each number of nodes in each panel, not {curves}");
        assert!(drawn("empty", &[]).is_err());
    }

    #[test]
    fn numbers_are_short() {
        let format = |value| Short::format(&value);
        assert_eq!([format(512.0), format(20_000.0), format(1_500_000.0)], ["512", "20k", "1.5M"]);
    }
}
