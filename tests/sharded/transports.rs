//! Ranks over sockets, and ranks whose parts are on hosts, which keep no vectors on GPUs.

use std::time::Duration;

use ellect::sharded::{Rank, Sockets, Split, Threads, Transport};
use ellect::{Error, Result, check};

use super::matrix;
use super::ranks::{at, on_ranks, tuner, workload};

#[test]
fn parts_on_hosts_keep_no_vectors_on_gpus() {
    let (csr, tuner) = (matrix::<f64>("stencil5:400"), tuner());
    let faults = on_ranks(Threads::all(3), |rank| {
        let a = rank.prepare_whole(&tuner, &csr, &workload(), Split::EqualRows)?;
        let own = if rank.rank() == 2 { Transport::Host } else { Transport::Auto };
        let differ = a.on_gpu(own).map(|_| ()).expect_err("they differ").to_string();
        assert!(differ.contains("the transport is auto on rank 0 and host on rank 2"), "{differ}");
        a.on_gpu(Transport::Auto).map(|_| ())
    });
    for fault in faults {
        let fault = fault.expect_err("all parts are on hosts");
        assert!(matches!(fault, Error::Argument(_)), "{fault}");
        assert!(fault.to_string().contains("the part of rank 0 is on a host"), "{fault}");
    }
}

#[test]
fn ranks_multiply_over_sockets() {
    let (csr, tuner) = (matrix::<f64>("stencil7:900"), tuner());
    let x = check::whole_numbers::<f64>(csr.ncols(), 3);
    let zeros = vec![0.0; csr.nrows()];
    let wanted: Vec<f64> =
        check::reference(&csr, 1.0, &x, 0.0, &zeros).iter().map(|row| row.value).collect();
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let meeting = port.local_addr().expect("it is bound").to_string();
    drop(port);
    let got = std::thread::scope(|scope| {
        let ranks = [0, 1, 2].map(|rank| {
            let (csr, tuner, x, meeting) = (&csr, &tuner, &x, &meeting);
            scope.spawn(move || -> Result<Vec<f64>> {
                let exchange = Sockets::meet(rank, 3, meeting, Duration::from_secs(20))?;
                let rank = Rank::of(rank, 3, exchange)?;
                let a = rank.prepare_whole(tuner, csr, &workload(), Split::EqualRows)?;
                let mut y = vec![0.0; a.part().rows()];
                a.apply(1.0, &at(x, a.rows()), 0.0, &mut y)?;
                Ok(y)
            })
        });
        let parts = ranks.map(|rank| rank.join().expect("no rank panics").expect("it applies"));
        parts.concat()
    });
    assert_eq!(got, wanted);
}
