//! The fetched list of models: asked for once, used without waiting, and not at all where it is
//! turned off.

use crate::home;
use glrs_tests::fakes::http::{Request, Responder};
use glrs_tests::wait::until;
use glrs_tests::{Home, PATIENCE, Value, Wire, json};
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A loopback server that has the list, and counts who asks.
struct Lists {
    addr: SocketAddr,
    asked: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Lists {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (asked, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&asked), Arc::clone(&stop));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let mut input = BufReader::new(stream.try_clone().unwrap());
                let mut out = Responder::new(stream, Arc::clone(&over));
                if Request::read(&mut input).is_some() {
                    count.fetch_add(1, Ordering::Relaxed);
                    let model = json!({"name": "Of tomorrow", "tool_call": true, "limit": {"context": 3_000_000, "output": 9_000}});
                    let _ = out.json(200, &[], &json!({"openai": {"models": {"gpt-tomorrow": model}}}));
                }
                out.close();
            }
        });
        Self { addr, asked, stop }
    }

    fn home(&self, offline: &str) -> Home {
        let mut home = home();
        home.set_env("GLRS_OFFLINE", offline);
        home.set_env("GLRS_CATALOG_URL", &format!("http://{}/api.json", self.addr));
        // No request is made with it: nothing here calls a model.
        home.set_env("OPENAI_API_KEY", "sk-fake-never-sent");
        home
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.addr));
    }
}

fn tomorrow(wire: &Wire) -> Option<Value> {
    let list = wire.ok("catalog/models", json!({}));
    list["models"].as_array().unwrap().iter().find(|m| m["model"] == "openai/gpt-tomorrow").cloned()
}

#[test]
fn the_list_is_asked_for_once_and_kept() {
    let lists = Lists::start();
    let home = lists.home("");
    {
        let _daemon = home.daemon();
        let wire = home.wire("ann");
        let row = until("the list", PATIENCE, || tomorrow(&wire));
        assert_eq!(
            (&row["context"], &row["name"], &row["ready"]),
            (&json!(3_000_000), &json!("Of tomorrow"), &json!(true))
        );
    }
    let _daemon = home.daemon();
    assert!(tomorrow(&home.wire("bob")).is_some(), "the next daemon has the copy");
    assert_eq!(lists.asked.load(Ordering::Relaxed), 1);
}

#[test]
fn it_is_not_asked_for_where_that_is_turned_off() {
    let lists = Lists::start();
    let home = lists.home("1");
    let _daemon = home.daemon();
    let wire = home.wire("ann");
    assert!(tomorrow(&wire).is_none());
    wire.new_session(&home, json!({}));
    assert!(tomorrow(&wire).is_none() && !home.root().join("models.json").exists());
    assert_eq!(lists.asked.load(Ordering::Relaxed), 0);
}
