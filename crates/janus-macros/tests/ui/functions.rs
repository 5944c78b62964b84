#[janus_macros::test]
fn not_async() {}

#[janus_macros::test]
async fn arguments(port: u16) {
    drop(port);
}

#[janus_macros::test]
async fn any_of_them<T: Default>() {
    drop(T::default());
}

#[janus_macros::test]
#[test]
async fn would_run_twice() {}

#[janus_macros::main]
async fn start() {}

#[janus_macros::main]
struct Server;

#[janus_macros::main]
unsafe extern "C" fn main(count: i32) {
    drop(count);
}
