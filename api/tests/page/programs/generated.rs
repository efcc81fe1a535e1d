use ellect::choose::Effort;
use ellect::{Tuner, Workload, generate};

fn main() -> ellect::Result<()> {
    let spec: generate::Spec = "elasticity:20000".parse()?;
    let csr = spec.make();
    let workload = Workload { spmvs: 1000, effort: Effort::Predict, ..Workload::default() };
    let choice = Tuner::open("h200")?.recommend(&csr, &workload)?;
    println!("{}", choice.candidate);
    Ok(())
}
