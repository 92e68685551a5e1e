use super::*;

fn figure(name: &str, drawing: Drawing) -> Figure {
    let axis = |label: &str| Axis { label: label.to_owned(), ..Axis::default() };
    Figure {
        name: name.to_owned(),
        title: "Figure 17: performance relative to on-touch migration".to_owned(),
        note: None,
        x: axis(""),
        y: axis("performance"),
        drawing,
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn series(label: &str, factor: f64, paper: bool) -> Series {
    let values = (0..9).map(|group| Some(factor * (1.0 + 0.13 * f64::from(group % 4))));
    let mut shown = vec![None; 9];
    if paper {
        shown[8] = Some(1.6);
    }
    Series { label: label.to_owned(), values: values.collect(), paper: shown }
}

fn bars() -> Figure {
    let groups = names(&["BFS", "BS", "C2D", "FIR", "GEMM", "MM", "SC", "ST", "mean"]);
    let series = vec![
        series("on-touch", 1.0, false),
        series("access-counter", 1.1, false),
        series("duplication", 1.2, false),
        series("GRIT", 1.5, true),
        series("ideal", 2.0, false),
    ];
    figure("bars", Drawing::Bars { groups, series, baseline: Some(1.0) })
}

fn few_bars() -> Figure {
    let series = ["GRIT", "duplication"].map(|label| Series {
        label: label.to_owned(),
        values: vec![Some(1.15), Some(1.18)],
        paper: vec![Some(1.15), Some(1.3)],
    });
    let drawing = Drawing::Bars {
        groups: names(&["VGG16", "ResNet18"]),
        series: series.into(),
        baseline: Some(1.0),
    };
    figure("few-bars", drawing)
}

fn stacked() -> Figure {
    let bar = |group, label: &str, parts: &[f64]| Bar {
        group,
        label: label.to_owned(),
        parts: parts.to_vec(),
    };
    let mut bars = Vec::new();
    for group in 0..8 {
        bars.push(bar(group, "OT", &[0.1, 0.3, 0.6]));
        bars.push(bar(group, "AC", &[0.1, 0.4, 0.1, 0.5]));
        bars.push(bar(group, "D", &[0.1, 0.3, 0.0, 0.0, 0.2, 0.1]));
    }
    let groups = names(&["BFS", "BS", "C2D", "FIR", "GEMM", "MM", "SC", "ST"]);
    let parts = names(&[
        "local",
        "host",
        "page migration",
        "remote access",
        "page duplication",
        "write collapse",
    ]);
    figure("stacked", Drawing::Stacked { groups, parts, bars })
}

fn lines() -> Figure {
    let points =
        |factor: f64| (12..26).map(move |n| (f64::from(1 << n), factor * f64::from(1 << n)));
    let line = |label: &str, factor, paper| Line {
        label: label.to_owned(),
        points: points(factor).collect(),
        paper,
    };
    let drawing = Drawing::Lines(vec![
        line("host to card", 1e-4, false),
        line("host to card, paper", 1.2e-4, true),
        line("card to card", 3e-4, false),
    ]);
    let mut figure = figure("lines", drawing);
    figure.y.log = true;
    figure.x = Axis {
        label: "bytes".to_owned(),
        log: true,
        from: Some(4096.0),
        to: Some(f64::from(1 << 25)),
        ticks: vec![(4096.0, "4 KB".into()), (1_048_576.0, "1 MB".into())],
    };
    figure
}

fn map() -> Figure {
    let cells = (0..50).flat_map(|row| {
        (0..400).map(move |page| u8::from(page > row * 3) + u8::from(page > 200 + row * 2))
    });
    let drawing = Drawing::Map(Cells {
        columns: 400,
        classes: names(&["not accessed", "private", "shared"]),
        cells: cells.collect(),
    });
    figure("map", drawing)
}

#[test]
fn every_kind_is_drawn_in_both_formats() {
    for figure in [bars(), few_bars(), stacked(), lines(), map()] {
        let svg = figure.to_svg().unwrap();
        assert!(svg.contains("<svg") && svg.contains("Figure 17"), "{}", figure.name);
        let png = figure.to_png().unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{}", figure.name);
        // To look at them: FARSIDE_KEEP_FIGURES=folder.
        if let Some(folder) = std::env::var_os("FARSIDE_KEEP_FIGURES") {
            let folder = std::path::Path::new(&folder);
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(format!("{}.png", figure.name)), png).unwrap();
            std::fs::write(folder.join(format!("{}.svg", figure.name)), svg).unwrap();
        }
    }
}

#[test]
fn figures_without_data_are_drawn_empty() {
    let empty = [
        Drawing::Bars { groups: vec![], series: vec![], baseline: None },
        Drawing::Stacked { groups: vec![], parts: vec![], bars: vec![] },
        Drawing::Lines(vec![]),
        Drawing::Map(Cells { columns: 0, classes: vec![], cells: vec![] }),
    ];
    for drawing in empty {
        figure("empty", drawing).to_svg().unwrap();
    }
}

#[test]
fn the_text_of_a_png_needs_no_font_of_the_machine() {
    let without = Figure { title: String::new(), ..bars() };
    assert_ne!(bars().to_png().unwrap(), without.to_png().unwrap());
}
