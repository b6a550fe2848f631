//! `#[farfield::main]` and `#[farfield::test]`: their clusters, their numbers of threads, and their reports of failures.

use std::process::{Command, ExitCode, Output};

use farfield::{ComputeThread, Error, Result};

#[farfield::main(threads = 2, cluster = "local:nodes=3")]
async fn sound(ct: &ComputeThread) -> Result<()> {
    let url = std::env::var("FARFIELD_CLUSTER").ok();
    let nodes = if url.as_deref() == Some("local:nodes=2") { 2 } else { 3 };
    if (ct.threads(), ct.nodes()) != (2, nodes) {
        return Err(Error::other(format!("{} threads, {} nodes", ct.threads(), ct.nodes())));
    }
    ct.barrier("met").await
}

#[farfield::main]
async fn failing(ct: &ComputeThread) -> Result<()> {
    Err(Error::other(format!("thread {} of {} had enough", ct.index(), ct.threads())))
}

#[farfield::main]
async fn without_result(ct: &ComputeThread) {
    assert_eq!(ct.threads(), 1);
}

/// Exit codes can only be compared by their debug output.
fn is(code: ExitCode, expected: u8) -> bool {
    format!("{code:?}") == format!("{:?}", ExitCode::from(expected))
}

#[test]
fn a_sound_main_ends_with_0() {
    assert!(is(without_result(), 0));
}

/// Runs one of the tests that are ignored below in a process of its own.
fn child(name: &str, cluster: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    command.args(["--exact", name, "--ignored", "--nocapture"]).env_remove("FARFIELD_CLUSTER");
    if let Some(cluster) = cluster {
        command.env("FARFIELD_CLUSTER", cluster);
    }
    let output = command.output().expect("this program can be run");
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "{name} is there");
    output
}

#[track_caller]
fn check(output: &Output, succeeds: bool, says: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.success(), errors.as_ref()), (succeeds, says));
}

#[test]
fn a_failing_main_says_why_in_one_line_and_ends_with_2() {
    check(&child("child_failing", None), true, "error: thread 0 of 1 had enough\n");
}

#[test]
fn a_main_runs_on_the_cluster_that_the_environment_names() {
    check(&child("child_sound", None), true, "");
    check(&child("child_sound", Some("local:nodes=2")), true, "");
    let output = child("child_sound", Some("nowhere:"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.starts_with("error: ") && errors.lines().count() == 1,
        "{errors}"
    );
    assert!(errors.contains("nowhere"), "it names the wrong scheme: {errors}");
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn child_failing() {
    assert!(is(failing(), 2));
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn child_sound() {
    let refused = std::env::var("FARFIELD_CLUSTER").as_deref() == Ok("nowhere:");
    assert!(is(sound(), if refused { 2 } else { 0 }));
}

#[farfield::test]
async fn a_test_may_return_nothing(ct: &ComputeThread) {
    assert_eq!((ct.index(), ct.threads(), ct.nodes()), (0, 1, 1));
}

#[farfield::test(threads = 1 + 2)]
async fn a_test_may_have_threads_that_meet(ct: &ComputeThread) -> Result<()> {
    ct.barrier("all").await
}

#[farfield::test]
#[should_panic(expected = "what went wrong")]
async fn a_test_fails_with_its_error(_: &ComputeThread) -> std::result::Result<(), &'static str> {
    Err("what went wrong")
}

#[farfield::test(threads = 2)]
#[should_panic(expected = "of thread 1")]
async fn a_test_fails_if_one_thread_panics(ct: &ComputeThread) {
    assert!(ct.index() == 0, "of thread {}", ct.index());
}

// ---- in the simulator ------------------------------------------------------------------------------------------

#[farfield::test(sim, seeds = 0..20, threads = 3)]
async fn a_simulated_test_runs_under_every_seed(ct: &ComputeThread) -> Result<()> {
    assert!(ct.threads() == 3 && ct.cluster().simulation().is_some());
    ct.barrier("met").await
}

#[farfield::test(sim, cluster = "sim:nodes=4,crash=5%", threads = 4)]
async fn a_simulated_test_may_lose_threads(ct: &ComputeThread) -> Result<()> {
    assert_eq!(ct.nodes(), 4);
    ct.sleep(std::time::Duration::from_micros(3)).await;
    ct.lookup::<Nothing>("nothing").await.map_or(Ok(()), |_| Err(Error::other("there is something")))
}

#[farfield::remote]
struct Nothing {
    nothing: u64,
}

/// Fails under seeds 3 and 5: by an error, and by a panic.
#[farfield::test(sim, seeds = 2..9, threads = 2)]
#[ignore = "another test runs it in a process of its own"]
async fn child_simulated(ct: &ComputeThread) -> Result<()> {
    ct.barrier("met").await?;
    let seed = ct.cluster().simulation().expect("simulated").seed();
    if seed == 3 && ct.index() == 1 {
        return Err(Error::other("three is too many"));
    }
    assert_ne!(seed, 5, "five is worse");
    Ok(())
}

fn replayed(seed: Option<&str>) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
    command.args(["--exact", "child_simulated", "--ignored", "--nocapture"]).env_remove("FARFIELD_SEED");
    if let Some(seed) = seed {
        command.env("FARFIELD_SEED", seed);
    }
    let output = command.output().expect("this program can be run");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_failing_simulated_test_says_how_to_replay_it() {
    let (passed, said) = replayed(None);
    assert!(!passed && said.contains("seed 3: three is too many"), "{said}");
    assert!(said.contains("to replay it: FARFIELD_SEED=3 cargo test child_simulated\n"), "{said}");
    assert!(said.contains("  1.0  READ   0:0x2c8 directory[0].value = "), "a readable trace:\n{said}");
    assert!(said.contains("thread ends with an error"), "{said}");
}

#[test]
fn one_seed_can_be_replayed() {
    assert!(replayed(Some("4")).0);
    let (passed, said) = replayed(Some("5"));
    assert!(!passed && said.contains("five is worse") && said.contains("FARFIELD_SEED=5"), "{said}");
    let (passed, said) = replayed(Some("many"));
    assert!(!passed && said.contains("FARFIELD_SEED=many is not a number"), "{said}");
}

#[farfield::test(sim, seeds = 0..0)]
#[should_panic(expected = "a_test_without_seeds_fails has no seeds")]
async fn a_test_without_seeds_fails(_: &ComputeThread) {}

#[farfield::test(sim, cluster = "local:")]
#[should_panic(expected = "needs a simulated cluster")]
async fn a_simulated_test_needs_the_simulator(_: &ComputeThread) {}
