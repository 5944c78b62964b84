#[janus_macros::test(threads = 4)]
async fn unknown() {}

#[janus_macros::test(cores = 1, cores = 2)]
async fn twice() {}

#[janus_macros::test(cores = 0)]
async fn no_cores() {}

#[janus_macros::test(cores = 1.5)]
async fn half_a_core() {}

#[janus_macros::test(cores = "many")]
async fn in_words() {}

#[janus_macros::test(cores = "3-0")]
async fn backwards() {}

#[janus_macros::test(cores = "0-3,2")]
async fn processor_twice() {}

#[janus_macros::test(cores)]
async fn without_a_value() {}

#[janus_macros::test(config = 7)]
async fn a_file_is_a_path() {}

#[janus_macros::test(start_paused = "yes")]
async fn paused_or_not() {}

#[janus_macros::test(crate = "not a path")]
async fn a_crate_is_a_path() {}

#[janus_macros::test(cores = 2 start_paused = true)]
async fn a_comma_is_missing() {}

fn main() {}
