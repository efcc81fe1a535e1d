use ellect::choose::Effort;
use ellect::{Csr, Tuner, Workload, read};

fn main() -> ellect::Result<()> {
    let csr: Csr<f32> = read::file("circuit.mtx", &read::Limits::default())?;
    let workload = Workload { spmvs: 1000, effort: Effort::Predict, ..Workload::default() };
    let choice = Tuner::open("h200")?.recommend(&csr, &workload)?;
    println!("{}", choice.candidate);
    Ok(())
}
