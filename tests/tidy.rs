//! Rules for every source file.

mod toy;

use std::fs;
use std::path::{Path, PathBuf};

use ellect::format::{FORMATS, Format};

/// Maximum number of lines of a file.
const FILE_LINES: usize = 500;

/// Maximum number of lines of a function, in Rust and in CUDA.
const FUNCTION_LINES: usize = 80;

/// Functions that are tables of data, which may be longer.
const TABLES: [(&str, &str); 1] = [("tests/corpus/edges.rs", "conversions")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Collects the files under `folder` with one of these endings.
fn files(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["src", "api", "training", "kernels", "tests", "examples"] {
        files(&root().join(folder), &[".rs", ".cu", ".cuh", ".sh"], &mut found);
    }
    assert!(found.len() > 50, "the sources are where they were");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("sources are UTF-8");
        (path, text)
    };
    found.into_iter().map(read).collect()
}

#[test]
fn sources_are_plain_and_short() {
    for (path, text) in sources() {
        let name = path.display();
        assert!(text.is_ascii(), "{name} is not ASCII");
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name} ends in one line end");
        assert!(text.lines().count() <= FILE_LINES, "{name} has over {FILE_LINES} lines: split it");
        for (i, line) in text.lines().enumerate() {
            assert!(!line.contains('\t'), "{name}:{}: a tab", i + 1);
            assert_eq!(line.trim_end(), line, "{name}:{}: spaces at the end", i + 1);
        }
    }
}

/// The length of the comment, string or character that `text` begins with; 0 if it begins with code.
/// `within` is true if `text` continues a word.
fn no_code(text: &str, within: bool) -> usize {
    let to = |end: &str, from: usize| {
        text[from..].find(end).map_or(text.len(), |found| from + found + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return to("*/", 2);
    }
    if let Some(raw) = text.strip_prefix('r').filter(|_| !within) {
        let marks = raw.len() - raw.trim_start_matches('#').len();
        if raw[marks..].starts_with('"') {
            return to(&format!("\"{}", "#".repeat(marks)), marks + 2);
        }
    }
    if let Some(string) = text.strip_prefix('"') {
        let mut escaped = false;
        let end = string.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return end.map_or(text.len(), |end| end + 2);
    }
    // A quote without a second one after a character begins a lifetime.
    match text.strip_prefix('\'') {
        Some(escape) if escape.starts_with('\\') => to("'", 3),
        Some(other) if other.chars().nth(1) == Some('\'') => 3,
        _ => 0,
    }
}

/// Returns the text without comments, strings and characters, in the same lines.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut at = 0;
    while at < text.len() {
        let within = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skipped = no_code(&text[at..], within);
        match skipped {
            0 => code.push_str(&text[at..=at]),
            _ => code.extend(text[at..at + skipped].chars().filter(|&c| c == '\n')),
        }
        at += skipped.max(1);
    }
    code
}

/// Functions of a source in Rust or in CUDA: the first line, the number of lines, and the name.
fn functions(text: &str) -> Vec<(usize, usize, String)> {
    let code = code(text);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (start, word) in code
        .split(|c| !is_word(c))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
    {
        if !["fn", "__device__", "__global__"].contains(&word) {
            continue;
        }
        let (mut round, mut curly) = (0, 0);
        let end = code[start..].find(|c| {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                '{' => curly += 1,
                '}' => curly -= 1,
                _ => {}
            }
            c == '}' && curly == 0 || c == ';' && curly == 0 && round == 0
        });
        let body = &code[start..start + end.unwrap_or_default()];
        if body.contains('{') {
            let name = body[word.len()..].split(|c| !is_word(c)).find(|word| !word.is_empty());
            let first = code[..start].matches('\n').count() + 1;
            found.push((first, body.matches('\n').count() + 1, name.unwrap_or_default().into()));
        }
    }
    found
}

#[test]
fn functions_are_measured_from_their_name_to_their_last_brace() {
    let rust = "trait A {\n    fn a(&self) -> [u8; 2];\n}\nfn b<'a>(x: &'a str) {\n    // }\n    let y = \
                ('}', \"}\\\"\", r#\"}\"\"#);\n    if x == y {\n    }\n}\nfn c() {}\n";
    assert_eq!(functions(rust), [(4, 6, "b".to_string()), (10, 1, "c".to_string())]);
    let cuda = "struct S {\n    __device__ int a() const;\n};\ntemplate <class T>\n__device__ void \
                b(T t) {\n    if (t) {\n    }\n}\n";
    assert_eq!(functions(cuda), [(5, 4, "void".to_string())]);
}

#[test]
fn functions_are_short() {
    let mut measured = 0;
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).expect("a path in the repository");
        let name = path.display();
        for (line, lines, function) in functions(&text) {
            let excepted =
                TABLES.iter().any(|&(file, table)| path == Path::new(file) && function == table);
            assert!(
                lines <= FUNCTION_LINES || excepted,
                "{name}:{line}: a function of {lines} lines, over {FUNCTION_LINES}: split it"
            );
            measured += 1;
        }
    }
    assert!(measured > 2000, "{measured} functions are found");
}

#[test]
fn nothing_is_left_for_later() {
    // The marks are split, so that this file does not contain them.
    let marks = [("TO", "DO"), ("FIX", "ME"), ("XX", "X")].map(|(a, b)| format!("{a}{b}"));
    for (path, text) in sources() {
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} holds {mark}", path.display());
        }
    }
}

#[test]
fn every_format_has_its_module_source_and_use() {
    check_modules("src/format", FORMATS);
    check_modules("tests/toy", toy::FORMATS);
}

/// Checks that each format of a table has a module in the folder, with the sections of its text.
fn check_modules(folder: &str, formats: &[Format]) {
    let mut modules = Vec::new();
    files(&root().join(folder), &[".rs"], &mut modules);
    let is_module = |path: &Path, name: &str| {
        path.ends_with(format!("{name}.rs")) || path.ends_with(format!("{name}/mod.rs"))
    };
    for format in formats {
        let name = format.name;
        // One module has the formats that store values of another one in fewer bits.
        let narrow = format.narrows.map(|wide| format!("{wide}_narrow"));
        let name = narrow.as_deref().unwrap_or(name);
        let module = modules.iter().find(|path| is_module(path, name));
        let module = module.unwrap_or_else(|| panic!("{name} has no module in {folder}"));
        let text = fs::read_to_string(module).expect("sources are UTF-8");
        assert!(text.starts_with("//! "), "{name} explains itself");
        assert!(text.contains("Good for:") && text.contains("ad for:"), "{name} says for what");
        let year = |word: &str| word.len() == 4 && word.starts_with(['1', '2']);
        let mut words = format.source.split(|c: char| !c.is_ascii_digit());
        assert!(words.any(year), "{name} has a source with its year");
        assert!(!format.title.is_empty() && !format.suits.is_empty());
    }
}

/// The text of a comment line, without its slashes; `None` for code.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

#[test]
fn comments_open_with_their_subject() {
    let banned =
        ["What ", "Whether ", "How ", "Why ", "The same ", "Those ", "That of ", "So many "];
    for (path, text) in sources() {
        let mut goes_on = false;
        for (i, line) in text.lines().enumerate() {
            let text = comment(line).unwrap_or_default();
            let bad = banned.iter().find(|words| !goes_on && text.starts_with(*words));
            assert_eq!(bad, None, "{}:{}: {line}", path.display(), i + 1);
            goes_on = !text.is_empty();
        }
    }
}

/// Returns the name of the type that a line at the left margin defines, if any.
fn defined_type(line: &str) -> Option<&str> {
    let kinds = ["pub struct ", "pub enum ", "pub trait "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Returns the public types of the files in `found`, each with whether its doc has an example.
fn types(found: &[PathBuf]) -> Vec<(String, bool)> {
    let mut types = Vec::new();
    for path in found {
        let text = fs::read_to_string(path).expect("sources are UTF-8");
        let mut has_example = false;
        for line in text.lines() {
            if let Some(name) = defined_type(line) {
                types.push((name.to_string(), has_example));
            }
            let above = line.starts_with("///") || line.starts_with(['#', ' ', ')']);
            has_example = above && (has_example || line.starts_with("/// ```"));
        }
    }
    types
}

/// Returns the names that a module at this path defines or re-exports, and its public submodules.
fn exported(path: &Path) -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(path).expect("sources are UTF-8");
    let (mut names, mut modules) = (Vec::new(), Vec::new());
    for line in text.lines() {
        names.extend(defined_type(line).map(str::to_string));
        let module = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';'));
        modules.extend(module.map(str::to_string));
    }
    for list in text.split("\npub use ").skip(1) {
        let list = list.split(';').next().unwrap_or_default();
        let words = list.split(|c: char| !c.is_alphanumeric() && c != '_');
        names.extend(words.filter(|word| !word.is_empty()).map(str::to_string));
    }
    (names, modules)
}

/// Types of [`ellect::unstable`] need none: it is no part of the library's interface.
#[test]
fn every_public_type_has_an_example() {
    let src = root().join("src");
    let (mut names, mut modules) = exported(&src.join("lib.rs"));
    modules.retain(|module| module != "unstable");
    while let Some(module) = modules.pop() {
        let file = [src.join(format!("{module}.rs")), src.join(&module).join("mod.rs")];
        let file = file.iter().find(|path| path.is_file());
        let (more, inner) = exported(file.unwrap_or_else(|| panic!("{module} has no file")));
        names.extend(more);
        modules.extend(inner.iter().map(|inner| format!("{module}/{inner}")));
    }
    let mut found = Vec::new();
    files(&src, &[".rs"], &mut found);
    found.retain(|path| !path.ends_with("unstable.rs"));
    let all = types(&found);
    let is = |name: &String, example: bool| all.contains(&(name.clone(), example));
    let public = names.iter().filter(|name| is(name, true) || is(name, false));
    assert!(public.clone().count() > 60, "the public types are where they were");
    // Types of the same name elsewhere may have none.
    let missing: Vec<_> = public.filter(|name| !is(name, true)).collect();
    assert!(missing.is_empty(), "no example: {missing:?}");
}
