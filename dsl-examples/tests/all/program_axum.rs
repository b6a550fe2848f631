//! A web service whose state is in far memory: axum and tokio on one side, compute threads on the other.

use std::future::Future;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Router, http::StatusCode, routing::get};
use farfield::prelude::*;
use farfield::{Client, ClientOptions, Error};
use farfield_examples::HashSet;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

// ANCHOR: failed
/// A failed call, as a response.
struct Failed(Error);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = match self.0 {
            Error::ClientFull(_) | Error::ClientClosed(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::DeadlineExceeded(_) => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}
// ANCHOR_END: failed

// ANCHOR: handlers
/// The service's set. One READ if it exists.
async fn keys(ct: &ComputeThread) -> Result<HashSet> {
    let root = ct.root_or_init("keys", async || HashSet::create(ct).await).await?;
    HashSet::attach(root, ct).await
}

async fn contains(State(client): State<Client>, Path(key): Path<u64>) -> Result<StatusCode, Failed> {
    // If the queue is full, a reader gets an error immediately.
    let call = client.try_call(async move |ct| keys(ct).await?.get(key, ct).await)?;
    Ok(if call.await? { StatusCode::OK } else { StatusCode::NOT_FOUND })
}

async fn insert(State(client): State<Client>, Path(key): Path<u64>) -> Result<StatusCode, Failed> {
    // A writer waits for room in the queue.
    let is_new = client.call(async move |ct| keys(ct).await?.insert(key, ct).await).await?;
    Ok(if is_new { StatusCode::CREATED } else { StatusCode::OK })
}

async fn remove(State(client): State<Client>, Path(key): Path<u64>) -> Result<StatusCode, Failed> {
    let was_there = client.call(async move |ct| keys(ct).await?.remove(key, ct).await).await?;
    Ok(if was_there { StatusCode::OK } else { StatusCode::NOT_FOUND })
}
// ANCHOR_END: handlers

// ANCHOR: serve
/// Serves requests until `stop` is ready.
async fn serve(listener: TcpListener, client: Client, stop: impl Future<Output = ()> + Send + 'static) {
    let keys = get(contains).put(insert).delete(remove);
    let app = Router::new().route("/keys/{key}", keys).with_state(client.clone());
    axum::serve(listener, app).with_graceful_shutdown(stop).await.expect("the listener works");
    client.shutdown().await.expect("it is not called from a call");
}
// ANCHOR_END: serve

/// Runs the service, and a client of it on another thread. Returns the client's result.
async fn with_service<R: Send + 'static>(
    client: Client,
    asks: impl FnOnce(&dyn Fn(&str, u64) -> u16) -> R + Send + 'static,
) -> R {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let service = tokio::spawn(serve(listener, client, async { drop(stopped.await) }));
    let asked = tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        asks(&|method, key| {
            let uri = format!("http://{address}/keys/{key}");
            let request = ureq::http::Request::builder().method(method).uri(uri).body(()).unwrap();
            agent.run(request).unwrap().status().as_u16()
        })
    });
    let asked = asked.await.unwrap();
    stop.send(()).unwrap();
    service.await.unwrap();
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_answers_over_http_and_shuts_down() {
    // ANCHOR: client
    let cluster = Cluster::connect("local:size=16MiB").unwrap();
    let mut options = ClientOptions::new();
    options.threads = 2;
    options.deadline = Some(Duration::from_secs(5));
    let client = cluster.client_with(&options).unwrap();
    // ANCHOR_END: client
    let again = client.clone();
    let statuses = with_service(client, |ask| {
        ["GET", "PUT", "PUT", "GET", "DELETE", "DELETE"].map(|method| ask(method, 7))
    });
    assert_eq!(statuses.await, [404, 201, 200, 200, 200, 404]);
    assert!(again.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_after_the_deadline_is_an_error() {
    let mut options = ClientOptions::new();
    options.deadline = Some(Duration::ZERO);
    let client = Cluster::connect("local:size=16MiB").unwrap().client_with(&options).unwrap();
    assert_eq!(with_service(client, |ask| ask("GET", 7)).await, 504);
}
