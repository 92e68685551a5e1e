//! Placement schemes of a program, by name.

use farside::{Error, Space};

#[test]
fn a_scheme_that_only_a_simulated_machine_can_do_is_refused_and_says_where_it_runs() {
    for name in ["griffin", "griffin-dpc", "gps", "ideal", "grit+acud"] {
        let refused = Space::builder().placement(name).build().unwrap_err();
        assert!(matches!(refused, Error::Scheme(_)), "{name}: {refused}");
        let refused = refused.to_string();
        assert!(refused.contains(&format!("farside sim --scheme {name}")), "{refused}");
        assert!(refused.contains("on-touch"), "what a program can have instead: {refused}");
    }
}
