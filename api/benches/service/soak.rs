//! A mixed load for a long time, during which memory and descriptors must stay level.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::matrices::{npz, text};
use crate::server::{Server, ask};

/// Time between two samples.
const EACH: Duration = Duration::from_secs(10);

/// Share of the time after which memory is expected to be level: caches are full by then.
const WARM: f64 = 0.2;

/// Pause of each client after a request, so that the machine is busy and not saturated.
const PAUSE: Duration = Duration::from_millis(40);

/// One client of the mixed load: its requests, numbered from 0.
type Client<'a> = Box<dyn Fn(usize) + Send + Sync + 'a>;

/// Sends the load for this time and prints what the service took.
pub fn run(server: &Server, program: &str, time: Duration) {
    let (small, large) = (text(program, "stencil5:1400"), large());
    let ended = AtomicBool::new(false);
    let (answered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let post = |target: &str, body: &[u8]| {
        let status = ask(&mut server.connect(), target, body).map_or(0, |(status, _)| status);
        let count = if status == 200 || status == 202 { &answered } else { &refused };
        count.fetch_add(1, Ordering::Relaxed);
    };
    let clients = clients(server, &post, &small, &large);
    println!("| minutes | requests answered | refused, cut off or broken | memory | descriptors |");
    println!("|---|---|---|---|---|");
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        for client in &clients {
            let ended = &ended;
            scope.spawn(move || {
                for n in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                    client(n);
                    std::thread::sleep(PAUSE);
                }
            });
        }
        let start = Instant::now();
        let minutes = |at: Instant| (at - start).as_secs_f64() / 60.0;
        while start.elapsed() < time {
            std::thread::sleep(EACH.min(time));
            let at = minutes(Instant::now());
            samples.push([at, server.memory()[0] as f64, server.descriptors() as f64]);
            if samples.len() % 12 == 1 {
                let [at, memory, descriptors] = samples[samples.len() - 1];
                let [answered, refused] = [&answered, &refused].map(|n| n.load(Ordering::Relaxed));
                println!("| {at:.1} | {answered} | {refused} | {memory} MB | {descriptors} |");
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let warm = &samples[(samples.len() as f64 * WARM) as usize..];
    println!(
        "\nSlope after the first {:.0} %: {:.2} MB and {:.2} descriptors an hour, over {} samples.",
        WARM * 100.0,
        60.0 * slope(warm, 1),
        60.0 * slope(warm, 2),
        warm.len()
    );
    std::thread::sleep(EACH);
    println!("At rest: {} MB, {} descriptors.", server.memory()[0], server.descriptors());
}

/// Returns an archive of about 9 million nonzeros.
fn large() -> Vec<u8> {
    npz(&ellect::generate::by_name("heat", 600_000, 1).expect("a class"))
}

/// Returns the clients; `post` sends a request on a connection of its own and counts the answer.
fn clients<'a>(
    server: &'a Server,
    post: &'a (dyn Fn(&str, &[u8]) + Sync),
    small: &'a [u8],
    large: &'a [u8],
) -> Vec<Client<'a>> {
    let target = "/recommend?device=h200";
    let numbered = move |n: usize| {
        let end = small.iter().position(|&byte| byte == b'\n').expect("lines") + 1;
        [&small[..end], format!("%{n}\n").as_bytes(), &small[end..]].concat()
    };
    let slowly = |n: usize, every: usize, ask: &dyn Fn()| {
        if n.is_multiple_of(every) {
            ask();
        }
    };
    vec![
        Box::new(move |_| post(target, small)),
        Box::new(move |_| post(target, small)),
        Box::new(move |n| post(target, &numbered(n))),
        Box::new(move |n| {
            slowly(n, 50, &|| post(target, large));
            // A bit is wrong and so is the checksum of its array: the body is read and refused.
            slowly(n, 75, &|| {
                let mut body = large.to_vec();
                let at = body.len() / 2 + 8 * (n % 1000);
                body[at] ^= 1;
                post(target, &body);
            });
        }),
        Box::new(move |n| post(target, format!("{{\"features\":{}}}", features(n)).as_bytes())),
        Box::new(move |n| post(target, &small[..small.len() / 2 + n % 100])),
        Box::new(move |n| post(&format!("{target}&generate=heat:{}", 1000 + n % 500), b"")),
        Box::new(move |n| {
            let half = &small[..small.len() / 2];
            let mut stream = server.connect();
            let head = format!("POST {target} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", small.len());
            let _ = stream.write_all(if n % 2 == 0 { &head.as_bytes()[..20] } else { half });
            let _ = stream.write_all(head.as_bytes());
        }),
        Box::new(move |n| {
            let measured = format!(
                "/recommend?device=cpu&effort=measure&budget=0.2s&wait_ms=1&generate=heat:{}",
                500 + n % 20
            );
            slowly(n, 250, &|| post(&measured, b""));
        }),
    ]
}

/// Returns features in JSON, other ones for each `n`.
fn features(n: usize) -> serde_json::Value {
    let rows = 10_000 + n % 100_000;
    serde_json::json!({"nrows": rows, "ncols": rows, "nnz": 7 * rows})
}

/// Returns the slope of a column over the minutes, by least squares.
fn slope(samples: &[[f64; 3]], column: usize) -> f64 {
    let n = samples.len().max(1) as f64;
    let mean = |column: usize| samples.iter().map(|sample| sample[column]).sum::<f64>() / n;
    let (minutes, values) = (mean(0), mean(column));
    let over = samples.iter().map(|s| (s[0] - minutes) * (s[column] - values)).sum::<f64>();
    let under = samples.iter().map(|s| (s[0] - minutes).powi(2)).sum::<f64>();
    if under > 0.0 { over / under } else { 0.0 }
}
