//! Draws latency over throughput.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use crate::mix::Kind;
use crate::report::Point;

const SIZE: (u32, u32) = (640, 480);
const FONT: &str = "sans-serif";

/// Draws a series of runs: for each kind of operation the median latency and the 99th percentile. Each point has the number of tasks of a thread.
pub(crate) fn drawn(title: &str, points: &[Point]) -> Result<String, String> {
    let mut svg = String::new();
    draw(title, points, &mut svg).map_err(|error| format!("the plot: {error}"))?;
    Ok(svg)
}

fn draw(title: &str, points: &[Point], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let curves = curves(points);
    let values = curves.iter().flat_map(|(_, curve)| curve).map(|(_, latency, _)| *latency);
    let (least, most) = values
        .fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(value.max(0.001)), most.max(value)));
    let fastest = points.iter().map(|point| point.ops_per_sec).fold(0.0, f64::max);
    if most <= 0.0 || fastest <= 0.0 {
        return Err("there are no operations to draw".into());
    }
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..fastest * 1.1, (least * 0.8..most * 1.25).log_scale())?;
    let short = |value: &f64| Short::format(value);
    chart
        .configure_mesh()
        .x_desc("operations a second")
        .y_desc("latency, microseconds")
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .light_line_style(WHITE)
        .draw()?;
    for (index, (name, curve)) in curves.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let line = curve.iter().map(|(throughput, latency, _)| (*throughput, *latency));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(2))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        let labels = curve.iter().map(|(throughput, latency, tasks)| {
            Text::new(tasks.to_string(), (*throughput, *latency), (FONT, 10).into_font().color(&color))
        });
        chart.draw_series(labels)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A curve's name, and its points: throughput, latency and tasks.
type Curve = (String, Vec<(f64, f64, u64)>);

fn curves(points: &[Point]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for kind in Kind::ALL {
        for (index, quantile) in ["p50", "p99"].into_iter().enumerate() {
            let curve: Vec<_> = points
                .iter()
                .filter_map(|point| {
                    let (_, latencies) = point.latencies.iter().find(|(of, _)| *of == kind)?;
                    Some((point.ops_per_sec, latencies[index].max(0.001), point.tasks))
                })
                .collect();
            if !curve.is_empty() {
                curves.push((format!("{} {quantile}", kind.name()), curve));
            }
        }
    }
    curves
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
        let rounded = (value * 100.0).round() / 100.0;
        format!("{rounded}{prefix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_labelled() {
        let points = [1, 2, 4].map(|tasks| Point {
            tasks,
            ops_per_sec: 1e5 * f64::from(tasks as u32),
            latencies: vec![(Kind::Read, [2.0, 5.0]), (Kind::Update, [4.0, 9.0])],
        });
        let svg = drawn("hash-map, workload a", &points).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["hash-map, workload a", "operations a second", "read p50", "update p99", "400k"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<circle").count(), 3 * 4, "a point for each run on each curve");
        assert!(drawn("empty", &[]).is_err());
    }
}
