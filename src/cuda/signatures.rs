//! Checks launches against the signatures of the compiled kernels.
//!
//! The arguments of a launch are a list without types, and for each one the driver copies as many
//! bytes as the kernel's parameter has. Therefore every launch is compared with the parameters that
//! nvcc compiled: in debug builds when the launch is prepared, and without a GPU by the tests
//! below, for all launches that formats describe.

use ellect_kernels::{Image, Kernel, Param};

use crate::format::{Arg, Launch};
use crate::scalar::Precision;

/// Compares a launch with the parameters of its kernel in `image`. Without `precision`, the
/// arguments alpha, beta, gamma and one match parameters of either precision.
///
/// # Errors
/// Names the argument that does not match, or the missing kernel.
pub fn check_launch(
    image: &Image,
    launch: &Launch,
    precision: Option<Precision>,
) -> Result<(), String> {
    let Launch { kernel, args, .. } = launch;
    let Some(Kernel { params, .. }) = image.kernel(kernel) else {
        return Err(format!("image {} has no kernel {kernel}", image.name));
    };
    if args.len() != params.len() {
        return Err(format!("{kernel} takes {} arguments, got {}", params.len(), args.len()));
    }
    let wrong = args.iter().zip(*params).position(|(arg, param)| !fits(*arg, *param, precision));
    wrong.map_or(Ok(()), |i| {
        Err(format!("argument {i} of {kernel} is {:?} for a {:?}", args[i], params[i]))
    })
}

fn fits(arg: Arg, param: Param, precision: Option<Precision>) -> bool {
    match arg {
        Arg::U32(_) | Arg::Wanted => param == Param::U32,
        // Structures of 8 bytes are passed as one number.
        Arg::U64(_) => matches!(param, Param::U64 | Param::Bytes(8)),
        Arg::XRow | Arg::XVector | Arg::YRow | Arg::YVector => param == Param::U64,
        Arg::Alpha | Arg::Beta | Arg::Gamma | Arg::One => match precision {
            Some(Precision::F32) => param == Param::F32,
            Some(Precision::F64) => param == Param::F64,
            None => matches!(param, Param::F32 | Param::F64),
        },
        Arg::Array(_)
        | Arg::Scratch(_)
        | Arg::Counters
        | Arg::Temporary(_)
        | Arg::RowPtr
        | Arg::ColIdx
        | Arg::Values
        | Arg::X
        | Arg::Y
        | Arg::Z
        | Arg::Parts
        | Arg::W => param == Param::U64,
    }
}

#[cfg(test)]
mod tests;
