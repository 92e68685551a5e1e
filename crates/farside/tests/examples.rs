//! The programs of `examples/` run and print what they promise.

use std::path::Path;
use std::process::Command;

/// Runs an example; `cargo test` has built it.
fn example(name: &str) -> String {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.parent().and_then(Path::parent).expect("tests are in target/PROFILE/deps");
    let path = built.join("examples").join(name);
    let output = Command::new(&path).output().unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo build --examples` builds the examples", path.display())
    });
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("examples print text")
}

#[test]
fn the_examples_run() {
    assert!(example("hello").contains("card → card"));
    let pointers = example("pointers");
    assert!(pointers.contains("the sum is 199990000") && pointers.contains("kernel `wild`"));
    let stream = example("stream");
    assert!(stream.contains("time limit") && stream.contains("was cancelled"), "{stream}");
    let parallel = example("parallel");
    assert!(
        parallel.contains("64 pieces are") && parallel.contains("counted 16777216 bytes"),
        "{parallel}"
    );
    let hints = example("hints");
    assert!(hints.contains("Replicated") && hints.contains("(user)"), "{hints}");
    let named = example("named_kernels");
    assert!(named.contains("card 0 sums up: 2752512"), "{named}");
    let split = example("split");
    assert!(split.contains("at the most 2.0") && split.contains("D: 400000 words"), "{split}");
    let process = example("card_process");
    for words in
        ["36 in every word, 1 user", "killed: kernel `farside.sum`", "is lost", "25 in every word"]
    {
        assert!(process.contains(words), "{words} is missing in\n{process}");
    }
}
