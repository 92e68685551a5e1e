//! The page: the facts, the drawing code and Apache ECharts, in one file that asks nobody for anything.

use crate::Facts;

const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
/// Apache ECharts 5.6.0, as released on npm (`echarts/dist/echarts.min.js`); its licence lies beside it.
const ECHARTS: &str = include_str!("../assets/echarts.min.js");

/// A page about one run, or two side by side.
pub fn page(runs: &[Facts]) -> String {
    let facts = serde_json::to_string(runs).expect("facts are numbers and words");
    // Names are the program's: none of them may end the script that they are in.
    let facts = facts.replace('<', "\\u003c");
    let parts =
        [("@STYLE@", STYLE), ("@ECHARTS@", ECHARTS), ("@FACTS@", &facts), ("@SCRIPT@", SCRIPT)];
    let mut page = String::with_capacity(PAGE.len() + ECHARTS.len() + facts.len() + SCRIPT.len());
    let mut rest = PAGE;
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).expect("the page has a place for each part");
        page.push_str(before);
        page.push_str(part);
        rest = after;
    }
    page + rest
}
