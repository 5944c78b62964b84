//! A gRPC service by tonic: a call, and a call that is answered by a stream. `cargo run --release --features grpc --example grpc`,
//! then the printed line. After `--` it takes another address than 0.0.0.0:50051.
//!
//! The service that tonic generates from `count.proto` is a tower service over HTTP/2, so `janus_http::hyper` serves it, in tasks of Janus's and without
//! tokio's runtime. tonic's own `Server`, which knows clients' deadlines, works too: docs/tokio.md.

mod count;

use std::pin::Pin;
use std::time::Duration;

use count::counter_server::{Counter, CounterServer};
use count::{Count, Text};
use futures_util::{Stream, stream};
use janus::net::TcpListener;
use tonic::{Request, Response, Status};

/// Numbers that a client may ask for: how long a stream may last is the server's to say.
const NUMBERS_MAX: u64 = 1_000;
/// Time between two numbers.
const PAUSE: Duration = Duration::from_millis(20);

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:50051")).await?;
    let at = listener.reachable_at();
    let call =
        "grpcurl -plaintext -import-path examples/grpc -proto count.proto -d '{\"number\": 3}'";
    janus::once(|| println!("{call} {at} janus.count.Counter/UpTo"));
    let counter = CounterServer::new(Counting);
    // Each core serves the connections that it has accepted. When the runtime is told to end, calls under way are finished.
    janus_http::hyper::serve(listener, move |_peer| counter.clone()).await?;
    Ok(())
}

struct Counting;

#[tonic::async_trait]
impl Counter for Counting {
    async fn words(&self, request: Request<Text>) -> Result<Response<Count>, Status> {
        // tonic takes messages of up to 4 MiB, unless told otherwise.
        let number = request.get_ref().text.split_whitespace().count() as u64;
        Ok(Response::new(Count { number }))
    }

    type UpToStream = Pin<Box<dyn Stream<Item = Result<Count, Status>> + Send>>;

    async fn up_to(&self, request: Request<Count>) -> Result<Response<Self::UpToStream>, Status> {
        let last = request.get_ref().number;
        if last > NUMBERS_MAX {
            let text = format!("no more than {NUMBERS_MAX} numbers");
            return Err(Status::invalid_argument(text));
        }
        // The next number is made when the client's window has room for it, and none after it has hung up.
        let numbers = stream::unfold(1, move |number| async move {
            if number > last {
                return None;
            }
            janus::time::sleep(PAUSE).await;
            Some((Ok(Count { number }), number + 1))
        });
        Ok(Response::new(Box::pin(numbers)))
    }
}
