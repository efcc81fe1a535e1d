//! Sources of products, for programs that nvcc builds without this package.
//!
//! A source defines all its kernels by macros. [`product`] expands these for the kernels that a
//! program launches, and puts the text of the headers in place of their names.

use std::collections::{BTreeMap, BTreeSet};

/// Sources of products and the headers that they include, by file name.
static SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Ending of the second form of a kernel, for launches whose blocks are all resident at once.
pub const RESIDENT: &str = "_resident";

/// The text of some kernels of one source.
#[derive(Clone, Debug, Default)]
pub struct ProductSource {
    /// Headers of the C++ library and of CUDA that it needs, as `<cstdint>`.
    pub includes: BTreeSet<&'static str>,
    /// The code without includes.
    pub code: String,
    /// Names of the kernels in it.
    pub kernels: BTreeSet<String>,
}

/// Returns the text of these kernels of an image, and of their forms for resident blocks.
///
/// `None` if there is no such image, or it lacks one of the kernels.
pub fn product(image: &str, kernels: &BTreeSet<&str>) -> Option<ProductSource> {
    let mut product = ProductSource::default();
    let mut text = String::new();
    inline(&format!("{image}.cu"), &mut BTreeSet::new(), &mut product.includes, &mut text)?;
    let (macros, text) = definitions(&text);
    let is_wanted = |name: &str| kernels.contains(name.strip_suffix(RESIDENT).unwrap_or(name));
    let mut rest = text.as_str();
    while let Some(start) = invocation(rest, &macros) {
        product.code += &rest[..start];
        let (expanded, end) = expanded_at(rest, start, &macros);
        for kernel in expanded.split("extern \"C\"").skip(1) {
            let name = kernel_name(kernel);
            if is_wanted(name) {
                product.code += &format!("extern \"C\"{}\n", kernel.trim_end());
                product.kernels.insert(name.to_string());
            }
        }
        rest = rest[end..].trim_start();
    }
    product.code += rest;
    product.code = without_unused_numbers(product.code);
    kernels.iter().all(|name| product.kernels.contains(*name)).then_some(product)
}

/// Removes the definitions of numbers that nothing else in the code names, with their comments.
fn without_unused_numbers(mut code: String) -> String {
    loop {
        let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
        let names = code.lines().flat_map(|line| words(without_comment(line)));
        names.for_each(|word| *uses.entry(word).or_default() += 1);
        let is_unused =
            |line: &str| defined_number(line).is_some_and(|name| uses.get(name) == Some(&1));
        let is_plain = |line: &str| line.starts_with("//") || defined_number(line).is_some();
        let paragraphs = code.split("\n\n").filter_map(|paragraph| {
            let lines = paragraph.lines().filter(|line| !is_unused(line)).collect::<Vec<_>>();
            let goes = paragraph.lines().all(is_plain)
                && paragraph.lines().any(is_unused)
                && lines.iter().all(|line| line.starts_with("//"));
            (!goes).then(|| lines.join("\n"))
        });
        let shorter = paragraphs.collect::<Vec<_>>().join("\n\n");
        if shorter.len() >= code.trim_end().len() {
            return code;
        }
        code = shorter;
    }
}

/// Returns the name of the number that a line defines, if it defines one and does nothing else.
fn defined_number(line: &str) -> Option<&str> {
    let code = without_comment(line).strip_prefix("constexpr ")?;
    let (definition, value) = code.split_once(" = ")?;
    let is_one = value.contains(';') && !value.contains(',');
    is_one.then(|| definition.rsplit(' ').next())?
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Appends the text of a file, with headers in place of their names, each once.
fn inline(
    name: &str,
    seen: &mut BTreeSet<String>,
    includes: &mut BTreeSet<&'static str>,
    text: &mut String,
) -> Option<()> {
    if !seen.insert(name.to_string()) {
        return Some(());
    }
    let (_, source) = SOURCES.iter().find(|(file, _)| *file == name)?;
    for line in source.lines() {
        match line.strip_prefix("#include ").map(str::trim) {
            Some(header) if header.starts_with('<') => {
                includes.insert(header);
            }
            Some(header) => inline(header.trim_matches('"'), seen, includes, text)?,
            None if line.starts_with("#pragma once") => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Some(())
}

/// A macro: the names of its parameters, `None` if it takes none, and its text.
struct Macro {
    params: Option<Vec<String>>,
    body: String,
}

/// Splits a text into its macros and the rest.
fn definitions(text: &str) -> (BTreeMap<String, Macro>, String) {
    let (mut macros, mut rest) = (BTreeMap::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(definition) = line.strip_prefix("#define ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut whole = String::new();
        let mut line = definition;
        while let Some(part) = line.strip_suffix('\\') {
            whole += part.trim_end();
            whole.push('\n');
            line = lines.next().unwrap_or_default();
        }
        whole += line;
        let name = identifier(&whole).to_string();
        let after = &whole[name.len()..];
        let (params, body) = match after.starts_with('(') {
            true => {
                let (params, end) = arguments(after);
                (Some(params), &after[end..])
            }
            false => (None, after),
        };
        macros.insert(name, Macro { params, body: body.trim().to_string() });
    }
    (macros, rest)
}

/// Returns the position of the first line that begins with a macro.
fn invocation(text: &str, macros: &BTreeMap<String, Macro>) -> Option<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if macros.contains_key(identifier(line)) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

/// Expands the macro at `start`; returns its text, and the position after it.
fn expanded_at(text: &str, start: usize, macros: &BTreeMap<String, Macro>) -> (String, usize) {
    let name = identifier(&text[start..]);
    let after = start + name.len();
    let own = &macros[name];
    let Some(params) = &own.params else { return (expand(&own.body, macros), after) };
    let (given, length) = arguments(&text[after..]);
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for (k, param) in params.iter().enumerate() {
        match param.as_str() {
            "..." => values.insert("__VA_ARGS__", given[k.min(given.len())..].join(", ")),
            param => values.insert(param, given.get(k).cloned().unwrap_or_default()),
        };
    }
    let mut body = String::new();
    for word in words(&own.body) {
        body += values.get(word).map_or(word, String::as_str);
    }
    (expand(&pasted(&body), macros), after + length)
}

/// Expands all macros in a text.
fn expand(text: &str, macros: &BTreeMap<String, Macro>) -> String {
    let mut expanded = String::new();
    let mut at = 0;
    while at < text.len() {
        let word = words(&text[at..]).next().unwrap_or_default();
        if macros.contains_key(word) {
            let (own, end) = expanded_at(text, at, macros);
            expanded += &own;
            at = end;
        } else {
            expanded += word;
            at += word.len();
        }
    }
    expanded
}

/// Joins the words on both sides of `##`.
fn pasted(text: &str) -> String {
    let parts = text.split("##").collect::<Vec<_>>();
    let last = parts.len() - 1;
    let trimmed = parts.iter().enumerate().map(|(k, part)| {
        let part = if k > 0 { part.trim_start() } else { part };
        if k < last { part.trim_end() } else { part }
    });
    trimmed.collect()
}

/// Returns the words of a text, identifiers as a whole and everything else by character.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = if is_of_name(first) { name_length(rest) } else { first.len_utf8() };
        let (word, after) = rest.split_at(length);
        rest = after;
        Some(word)
    })
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn name_length(text: &str) -> usize {
    text.find(|c| !is_of_name(c)).unwrap_or(text.len())
}

/// Returns the identifier that a text begins with.
fn identifier(text: &str) -> &str {
    &text[..name_length(text)]
}

/// Returns the arguments in the parentheses that a text begins with, and the position after these.
fn arguments(text: &str) -> (Vec<String>, usize) {
    let (mut list, mut depth, mut start) = (Vec::new(), 0, 1);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            list.push(text.get(start..at).unwrap_or_default().trim().to_string());
            start = at + 1;
        }
        if depth == 0 {
            return (list, at + 1);
        }
    }
    (list, text.len())
}

/// Returns the name of the kernel that a definition defines: the word before its parameters.
fn kernel_name(definition: &str) -> &str {
    let mut rest = definition;
    loop {
        let Some(at) = rest.find('(') else { return "" };
        let before = rest[..at].trim_end();
        let start = before.rfind(|c| !is_of_name(c)).map_or(0, |start| start + 1);
        if &before[start..] != "__launch_bounds__" {
            return &before[start..];
        }
        rest = &rest[at + arguments(&rest[at..]).1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
        names.iter().copied().collect()
    }

    #[test]
    fn macros_are_expanded_as_the_preprocessor_does() {
        let text = "#define ONE(name, T, ...) void name(T y) { f<T, __VA_ARGS__>(y); }\n\
                    #define BOTH(a, w)        \\\n    ONE(a##_##w##x, int, 1, 2)  \\\n    \
                    ONE(a##_y, W, w)\n#define W long\nBOTH(k, )\nrest\n";
        let (macros, rest) = definitions(text);
        assert_eq!(rest, "BOTH(k, )\nrest\n");
        let start = invocation(&rest, &macros).expect("one line");
        let (expanded, end) = expanded_at(&rest, start, &macros);
        assert_eq!(
            expanded,
            "void k_x(int y) { f<int, 1, 2>(y); }\n    void k_y(long y) { f<long, >(y); }"
        );
        assert_eq!(&rest[end..], "\nrest\n");
        let definition = " __global__ void __launch_bounds__(256, f(8))\n  two_f64(int n) {}";
        assert_eq!(kernel_name(definition), "two_f64");
    }

    #[test]
    fn a_product_has_the_kernels_that_are_launched_and_no_others() {
        let hll = product("hll", &wanted(&["hll_32_c16_t1_f64"])).expect("an image");
        let names: Vec<&str> = hll.kernels.iter().map(String::as_str).collect();
        assert_eq!(names, ["hll_32_c16_t1_f64", "hll_32_c16_t1_f64_resident"]);
        assert_eq!(hll.code.matches("__global__").count(), 2);
        assert_eq!(hll.code.matches("void await_previous()").count(), 1);
        assert!(!hll.code.contains("#include") && !hll.code.contains("#define"));
        assert!(!hll.code.contains("constexpr int"), "hll needs no number of the header");
        let csr = product("csr", &wanted(&["csr_t2_f32"])).expect("an image");
        assert_eq!(csr.code.matches("CSR_BATCH = 6;").count(), 1);
        assert!(csr.code.contains("// csr: entries that a lane loads at a time."));
        assert!(!csr.code.contains("COO_EACH") && !csr.code.contains("coo:"));
        assert_eq!(hll.includes, wanted(&["<cstdint>"]));
        assert!(product("hll", &wanted(&["hll_32_c16_t1_f16"])).is_none());
        assert!(product("nosuch", &wanted(&[])).is_none());
    }

    #[test]
    fn every_kernel_of_every_source_is_found() {
        for (file, _) in SOURCES.iter().filter(|(file, _)| file.ends_with(".cu")) {
            let image = file.trim_end_matches(".cu");
            let (mut includes, mut text) = (BTreeSet::new(), String::new());
            inline(file, &mut BTreeSet::new(), &mut includes, &mut text).expect("its headers");
            let (macros, text) = definitions(&text);
            let mut rest = text.as_str();
            let mut found = BTreeSet::new();
            while let Some(start) = invocation(rest, &macros) {
                let (expanded, end) = expanded_at(rest, start, &macros);
                found.extend(
                    expanded.split("extern \"C\"").skip(1).map(|k| kernel_name(k).to_string()),
                );
                rest = &rest[end..];
            }
            assert!(found.len() > 1, "{file}: {found:?}");
            let all = found.iter().map(String::as_str).collect();
            let product = product(image, &all).expect("every kernel");
            assert_eq!(product.kernels, found, "{file}");
        }
    }
}
