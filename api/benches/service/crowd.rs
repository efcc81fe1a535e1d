//! Many connections at once: large uploads, and connections that send nothing, half a head, no body
//! or one byte a second.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load;
use crate::server::{Server, ask};

/// Sends 100 bodies of 5 MB at once, and holds slow connections beside others.
pub fn run(server: &Server) {
    uploads(server);
    let print = |crowd: &str| {
        let target = "/recommend?device=h200&generate=stencil5:1000";
        let times = load(server, target, |_, _| Vec::new());
        println!("{crowd}: p99 of a kept answer {:.1} ms.", times.at(0.99));
    };
    print("No other connections");
    let idle: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    let half = begun(server, 200, "POST /recommend HTTP/1.1\r\nHo");
    let head =
        "POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n%%MatrixMarket";
    let stalled = begun(server, 100, head);
    let dripping = begun(server, 100, head);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| drip(&dripping, &ended));
        print(
            "Beside 1,000 idle connections, 200 half heads, 100 stalled bodies and 100 drips of a byte a second",
        );
        ended.store(true, Ordering::Relaxed);
    });
    drop((idle, half));
    // A body that does not arrive in time is refused and its connection closed.
    let closed =
        stalled.into_iter().chain(dripping).filter_map(|stream| is_closed(stream).then_some(()));
    println!("Slow bodies that were refused and closed within 60 s: {} of 200.", closed.count());
    println!("Memory at the end: {} MB.", server.memory()[0]);
}

fn begun(server: &Server, number: usize, text: &str) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).expect("it reads");
        stream
    };
    (0..number).map(one).collect()
}

/// Sends one byte a second on each connection.
fn drip(streams: &[TcpStream], ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        for mut stream in streams {
            // The service may have closed it.
            let _ = stream.write_all(b" ");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Reads until the service closes the connection; false if that takes too long.
fn is_closed(mut stream: TcpStream) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    let read = std::io::copy(&mut stream, &mut std::io::sink());
    read.map_or_else(|error| ![TimedOut, WouldBlock].contains(&error.kind()), |_| true)
}

fn uploads(server: &Server) {
    let body = vec![b'x'; 5_000_000];
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let one = || {
            ask(&mut server.connect(), "/recommend?device=h200", &body).map(|(status, _)| status)
        };
        let all: Vec<_> = (0..100).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    let of = |wanted: fn(&u16) -> bool| statuses.iter().flatten().filter(|s| wanted(s)).count();
    println!(
        "\n100 uploads of 5 MB at once: {} read and answered (400: no matrix), {} asked to come back \
         (429 or 503), {} broken; memory at most {} MB.",
        of(|&s| s == 400),
        of(|&s| s == 429 || s == 503),
        statuses.iter().filter(|one| one.is_err()).count(),
        server.memory()[1]
    );
}
