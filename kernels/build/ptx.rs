//! Reads the signatures of kernels from PTX.

/// A kernel: its name and the types of its parameters.
#[derive(Debug, PartialEq, Eq)]
pub struct PtxKernel {
    /// The symbol.
    pub name: String,
    /// The types of its parameters, as variants of `Param` in `src/lib.rs`.
    pub params: Vec<String>,
}

/// The kernels of a module, sorted by name.
///
/// # Errors
/// A message with the declaration that cannot be parsed. The grammar is that of the section on
/// kernel parameters of the PTX ISA: `.entry NAME ( .param .u32 NAME_param_0, ... )`, where a
/// structure is `.param .align 4 .b8 NAME_param_1[8]`.
pub fn kernels(ptx: &str) -> Result<Vec<PtxKernel>, String> {
    let mut kernels = Vec::new();
    for entry in ptx.split(".entry ").skip(1) {
        let unclear = || entry.chars().take(120).collect::<String>();
        let (name, rest) = entry.split_once('(').ok_or_else(unclear)?;
        let (list, _) = rest.split_once(')').ok_or_else(unclear)?;
        let params = list.split(',').map(str::trim).filter(|param| !param.is_empty());
        let params = params.map(|param| kind(param).ok_or_else(|| param.to_string()));
        let name = name.trim().to_string();
        kernels.push(PtxKernel { name, params: params.collect::<Result<_, _>>()? });
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

/// The type of a parameter.
fn kind(param: &str) -> Option<String> {
    let mut words = param.split_whitespace();
    if words.next() != Some(".param") {
        return None;
    }
    let word = loop {
        match words.next()? {
            ".align" => _ = words.next()?,
            word => break word,
        }
    };
    let kind = match word {
        ".b8" => {
            let (_, rest) = param.split_once('[')?;
            let bytes: u32 = rest.strip_suffix(']')?.parse().ok()?;
            return Some(format!("Bytes({bytes})"));
        }
        ".u32" | ".s32" | ".b32" => "U32",
        ".u64" | ".s64" | ".b64" => "U64",
        ".f32" => "F32",
        ".f64" => "F64",
        _ => return None,
    };
    Some(kind.to_string())
}
