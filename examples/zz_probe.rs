//! Probe.
fn main() {
    for path in std::env::args().skip(1) {
        let o = ellect::read::Options::default();
        match o.file::<f64>(&path) {
            Ok(f) => println!(
                "{path}: {} x {} nnz {} {:?} {:?} {:?} notes {:?}",
                f.csr.nrows(),
                f.csr.ncols(),
                f.csr.nnz(),
                &f.csr.row_ptr()[..f.csr.nrows().min(4) + 1],
                &f.csr.col_idx()[..f.csr.nnz().min(9)],
                &f.csr.values()[..f.csr.nnz().min(9)],
                f.notes
            ),
            Err(e) => println!("{path}: ERROR {e}"),
        }
    }
}
