//! Draws the time of each phase.

#![allow(clippy::cast_precision_loss)] // some phases of some engines

use plotters::prelude::*;

use crate::outcome::Measured;

const SIZE: (u32, u32) = (640, 400);
const FONT: &str = "sans-serif";

/// Draws a bar for each phase of each engine.
pub(crate) fn drawn(title: &str, engines: &[(&str, &[Measured])]) -> Result<String, String> {
    let mut svg = String::new();
    draw(title, engines, &mut svg).map_err(|error| format!("the plot: {error}"))?;
    Ok(svg)
}

fn draw(
    title: &str,
    engines: &[(&str, &[Measured])],
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let phases: Vec<&str> = engines
        .first()
        .map_or(Vec::new(), |(_, phases)| phases.iter().map(|phase| phase.phase.name()).collect());
    let times = engines.iter().flat_map(|(_, phases)| phases.iter().map(|phase| phase.time.as_secs_f64()));
    let longest = times.fold(0.0, f64::max);
    if longest <= 0.0 {
        return Err("there are no times to draw".into());
    }
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 16))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..phases.len() as f64 - 0.5, 0.0..longest * 1.1)?;
    let name = |x: &f64| {
        let phase = phases.iter().enumerate().find(|(index, _)| (*x - *index as f64).abs() < 0.01);
        phase.map_or_else(String::new, |(_, phase)| (*phase).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(phases.len())
        .x_label_formatter(&name)
        .y_desc("seconds")
        .light_line_style(WHITE)
        .draw()?;
    let width = 0.8 / engines.len() as f64;
    for (index, (name, measured)) in engines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let bars = measured.iter().enumerate().map(|(phase, measured)| {
            let left = phase as f64 - 0.4 + index as f64 * width;
            let corners = [(left, 0.0), (left + width * 0.9, measured.time.as_secs_f64())];
            Rectangle::new(corners, color.filled())
        });
        chart
            .draw_series(bars)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()?;
    area.present()?;
    Ok(())
}
