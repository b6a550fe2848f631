//! Plots the tables of `cargo xtask scaling`, `cargo xtask epochs` and `cargo xtask interlocked`.

use std::path::PathBuf;

use clap::Args;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::scaling::Point;
use super::{epochs, interlocked, scaling};
use crate::workspace::{read, write};

/// Options of the plot.
#[derive(Args)]
pub(crate) struct Options {
    /// Title of the plot
    pub(crate) title: String,
    /// The table
    pub(crate) csv: PathBuf,
    /// The plot
    pub(crate) svg: PathBuf,
}

/// Draws a table.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let csv = &options.csv;
    let text = read(csv)?;
    let panels = if text.starts_with(epochs::HEADER) {
        epochs::points(&text).map(|points| of_epochs(&points))
    } else if text.starts_with(interlocked::HEADER) {
        interlocked::points(&text).map(|points| of_interlocked(&points))
    } else {
        scaling::points(&text).map(|points| of_scaling(&options.title, &points))
    };
    let svg = drawn(&panels.map_err(|why| format!("{}: {why}", csv.display()))?)?;
    write(&options.svg, svg)
}

/// The size of a panel, in pixels; each row has two.
const SIZE: (u32, u32) = (480, 420);
const FONT: &str = "sans-serif";

/// A diagram with its own axes.
struct Panel {
    title: String,
    horizontal: &'static str,
    vertical: &'static str,
    curves: Vec<Curve>,
}

/// A curve's name and points.
type Curve = (String, Vec<(f64, f64)>);

/// Throughput and latency over threads, with a curve for each number of memory nodes.
fn of_scaling(title: &str, points: &[Point]) -> Vec<Panel> {
    let mut nodes: Vec<u32> = points.iter().map(|point| point.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let curves = |value: fn(&Point) -> f64| {
        let curve = |nodes: &u32| {
            let points = points.iter().filter(|point| point.nodes == *nodes);
            let name = if *nodes == 1 { "1 memory node".to_owned() } else { format!("{nodes} memory nodes") };
            (name, points.map(|point| (f64::from(point.threads), value(point))).collect())
        };
        nodes.iter().map(curve).collect()
    };
    let horizontal = "compute threads";
    vec![
        Panel {
            title: format!("{title}: throughput"),
            horizontal,
            vertical: "operations a second",
            #[allow(clippy::cast_precision_loss)] // a pixel is coarser
            curves: curves(|point| point.ops_per_sec as f64),
        },
        Panel {
            title: format!("{title}: p99 latency of get"),
            horizontal,
            vertical: "round trips",
            curves: curves(|point| point.p99_rtts),
        },
    ]
}

/// Time over the number of nodes, a panel for each mode, with a curve for each share of remote objects.
fn of_epochs(points: &[epochs::Point]) -> Vec<Panel> {
    let mut modes: Vec<&str> = points.iter().map(|point| point.mode.as_str()).collect();
    modes.dedup();
    let panel = |mode: &&str| {
        let curve = |remote: &u32| {
            let points =
                points.iter().filter(|point| point.mode == **mode && point.remote_percent == *remote);
            let points = points.map(|point| (f64::from(point.nodes), point.ns_per_op)).collect();
            (format!("{remote} % remote"), points)
        };
        Panel {
            title: format!("try_reclaim: {mode}"),
            horizontal: "nodes of 4 threads",
            vertical: "ns an operation",
            curves: [0, 50, 100].iter().map(curve).collect(),
        }
    };
    modes.iter().map(panel).collect()
}

/// Time over the number of nodes: that of insertions and look-ups, and that of iterations, which read many keys at once.
fn of_interlocked(points: &[interlocked::Point]) -> Vec<Panel> {
    let curve = |name: &str, value: fn(&interlocked::Point) -> f64| {
        (name.to_owned(), points.iter().map(|point| (f64::from(point.nodes), value(point))).collect())
    };
    let (horizontal, vertical) = ("nodes of 4 threads", "ns an operation");
    let single = vec![curve("insert", |point| point.insert_ns), curve("get", |point| point.get_ns)];
    let all = vec![curve("share, a key", |point| point.share_ns)];
    vec![
        Panel { title: "Interlocked Hash Table: a key".to_owned(), horizontal, vertical, curves: single },
        Panel { title: "all keys, by all threads".to_owned(), horizontal, vertical, curves: all },
    ]
}

fn drawn(panels: &[Panel]) -> Result<String, String> {
    if panels.iter().all(|panel| panel.curves.iter().all(|(_, points)| points.is_empty())) {
        return Err("there are no points to draw".to_owned());
    }
    let rows = panels.len().div_ceil(2);
    let mut svg = String::new();
    {
        let size = (2 * SIZE.0, SIZE.1 * rows as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| format!("the plot: {error}");
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        for (panel, area) in panels.iter().zip(area.split_evenly((rows, 2))) {
            draw(panel, &area).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

type Area<'a, 'b> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(panel: &Panel, area: &Area<'_, '_>) -> Result<(), Box<dyn std::error::Error>> {
    let points = || panel.curves.iter().flat_map(|(_, points)| points);
    let values = || points().map(|(_, value)| *value).filter(|value| *value > 0.0);
    let (least, most) =
        values().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    let furthest = points().map(|(at, _)| *at).fold(2.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..furthest).log_scale().base(2.0), (least * 0.8..most * 1.25).log_scale())?;
    let short = |value: &f64| Short::format(value);
    chart
        .configure_mesh()
        .x_desc(panel.horizontal)
        .y_desc(panel.vertical)
        .x_labels(12)
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .light_line_style(WHITE)
        .draw()?;
    for (index, (name, points)) in panel.curves.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)).point_size(2))?
            .label(name)
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

/// Numbers with a prefix: `512`, `20k`, `1.5M`.
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
    use crate::tables::scaling::tests::made_up;

    #[test]
    fn every_line_is_labelled() {
        let svg = drawn(&of_scaling("hash-set", &made_up())).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in
            ["hash-set: throughput", "round trips", "compute threads", "1 memory node", "4 memory nodes"]
        {
            assert!(svg.contains(text), "{text}");
        }
        // Axes are thinner lines.
        let lines = |part: &str| svg.lines().filter(|line| line.contains(part)).count();
        let curves =
            svg.lines().filter(|line| line.contains("<polyline") && line.contains("stroke-width=\"2\""));
        assert_eq!(
            curves.count(),
            2 * 3 * 2,
            "a curve for each number of nodes in each panel, and its legend"
        );
        assert_eq!(lines("<circle"), 2 * made_up().len(), "a point for each measurement in each panel");
        assert!(drawn(&of_scaling("empty", &[])).is_err());
        assert!(drawn(&of_epochs(&[])).is_err() && drawn(&of_interlocked(&[])).is_err());
    }

    #[test]
    fn numbers_are_short() {
        let format = |value| Short::format(&value);
        assert_eq!([format(512.0), format(20_000.0), format(1_500_000.0)], ["512", "20k", "1.5M"]);
    }
}
