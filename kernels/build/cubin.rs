//! Digest of an image: its machine code and the attributes of its launches.
//!
//! A cubin is an ELF file with a section `.text.NAME` for each kernel, together with
//! `.nv.info.NAME` (parameters, registers, barriers, offsets of some instructions),
//! `.nv.constantN.NAME` and `.nv.shared.NAME`. The digest covers these sections. It ignores symbol
//! names, the order of kernels, source lines, file names and notes of the tools: a kernel may be
//! renamed or moved within its file without a change of the digest. As a consequence, two kernels
//! of one image that swap names go unnoticed.
//!
//! Sections follow the ELF-64 object file format (System V ABI); attributes of `.nv.info` are those
//! that `cuobjdump -elf` of the CUDA toolkit prints.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::Xxh3;

/// Prefixes of the names of sections that only tools read. `.nv.info` is handled separately.
const UNREAD: [&str; 16] = [
    ".debug_",
    ".rela.debug_",
    ".rel.debug_",
    ".nv_debug",
    ".rela.nv_debug",
    ".rel.nv_debug",
    ".note",
    ".symtab",
    ".strtab",
    ".shstrtab",
    ".nv.info",
    ".nv.compat",
    ".nv.callgraph",
    ".nv.prototype",
    ".nv.rel.action",
    ".nv.shared.reserved",
];

/// Type of a section that has a size but no content in the file.
const NOBITS: u32 = 8;

/// Attributes of `.nv.info` that the digest ignores: the toolkit's version, the symbol and place of
/// parameters, and external symbols (relocations show which are used).
const CUDA_API_VERSION: u8 = 0x37;
const PARAM_CBANK: u8 = 0x0a;
const EXTERNS: u8 = 0x0f;

/// Digest of an image, computed from its machine code for each architecture.
///
/// # Errors
/// The reason why a file is not a valid cubin.
pub fn digest(cubins: &[Vec<u8>]) -> Result<String, String> {
    let mut hash = Xxh3::new();
    for cubin in cubins {
        let elf = Elf::read(cubin)?;
        let mut parts = elf.parts()?;
        parts.sort_unstable();
        hash.update(&(parts.len() as u64).to_le_bytes());
        parts.iter().for_each(|part| hash.update(&part.to_le_bytes()));
    }
    Ok(format!("{:016x}", hash.digest()))
}

/// A section of the file.
struct Section<'a> {
    /// The name, without the name of the function to which the section belongs.
    purpose: &'a str,
    function: Option<&'a str>,
    flags: u64,
    size: u64,
    info: u32,
    align: u64,
    /// Empty where the section has no content in the file.
    bytes: &'a [u8],
}

/// A symbol: its section and its offset there.
struct Symbol<'a> {
    name: &'a str,
    section: usize,
    value: u64,
}

/// A 64-bit ELF file.
struct Elf<'a> {
    sections: Vec<Section<'a>>,
    symbols: Vec<Symbol<'a>>,
}

impl<'a> Elf<'a> {
    fn read(file: &'a [u8]) -> Result<Self, String> {
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return Err("not a 64-bit little-endian ELF file".to_string());
        }
        let header = Words(file);
        let (at, entry) = (header.u64(0x28)? as usize, usize::from(header.u16(0x3a)?));
        let (n, names) = (usize::from(header.u16(0x3c)?), usize::from(header.u16(0x3e)?));
        let header_of = |i: usize| part(file, at + i * entry, entry).map(Words);
        let contents = |i: usize| {
            let header = header_of(i)?;
            match header.u32(4)? {
                NOBITS => Ok(&file[..0]),
                _ => part(file, header.u64(24)? as usize, header.u64(32)? as usize),
            }
        };
        let names = contents(names)?;
        let all = (0..n).map(|i| text(names, header_of(i)?.u32(0)? as usize));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let functions: BTreeSet<&str> =
            all.iter().filter_map(|name| name.strip_prefix(".text.")).collect();
        let (mut sections, mut symbols) = (Vec::new(), Vec::new());
        for (i, name) in all.iter().enumerate() {
            let (header, bytes) = (header_of(i)?, contents(i)?);
            if *name == ".symtab" {
                let names = contents(header.u32(40)? as usize)?;
                symbols = symbols_of(bytes, names)?;
            }
            let (flags, size) = (header.u64(8)?, header.u64(32)?);
            let (info, align) = (header.u32(44)?, header.u64(48)?);
            let dots = name.match_indices('.').map(|(dot, _)| (&name[..dot], &name[dot + 1..]));
            let owned = dots.into_iter().find(|(_, rest)| functions.contains(rest));
            let (purpose, function) = owned.map_or((*name, None), |(name, of)| (name, Some(of)));
            sections.push(Section { purpose, function, flags, size, info, align, bytes });
        }
        Ok(Elf { sections, symbols })
    }

    /// Digests of all functions, and of the constants and variables that they share.
    fn parts(&self) -> Result<Vec<u128>, String> {
        let mut facts: BTreeMap<Option<&str>, Vec<Vec<u8>>> = BTreeMap::new();
        for section in &self.sections {
            if let Some(fact) = self.fact_of(section)? {
                facts.entry(section.function).or_default().push(fact);
            }
        }
        for (function, fact) in self.stacks()? {
            facts.entry(Some(function)).or_default().push(fact);
        }
        Ok(facts.into_values().map(digest_of).collect())
    }

    /// The contribution of a section to the digest; `None` where only tools read it.
    fn fact_of(&self, section: &Section<'_>) -> Result<Option<Vec<u8>>, String> {
        let Section { purpose, bytes, .. } = *section;
        let unread = UNREAD.iter().any(|unread| purpose.starts_with(unread));
        let fact = match purpose {
            "" => return Ok(None),
            ".nv.info" if section.function.is_some() => fact(purpose, &[], &launch_facts(bytes)?),
            _ if unread => return Ok(None),
            // Some versions of the file store the number of registers here.
            ".text" => fact(purpose, &[section.flags, (section.info >> 24).into()], bytes),
            _ if purpose.starts_with(".rela.") => self.relocations(section, 24)?,
            _ if purpose.starts_with(".rel.") => self.relocations(section, 16)?,
            _ => fact(purpose, &[section.flags, section.size, section.align], bytes),
        };
        Ok(Some(fact))
    }

    /// Relocations of code or of a table of addresses: offset, type, and place of the symbol.
    fn relocations(&self, list: &Section<'_>, size: usize) -> Result<Vec<u8>, String> {
        let mut places = Vec::new();
        for entry in list.bytes.chunks_exact(size) {
            let (at, info) = (Words(entry).u64(0)?, Words(entry).u64(8)?);
            let symbol = self.symbol((info >> 32) as usize)?;
            let to = match self.sections.get(symbol.section) {
                Some(section) if symbol.section > 0 => section.purpose,
                // The driver looks the symbol up by its name.
                _ => symbol.name,
            };
            let addend = entry.get(16..).unwrap_or_default();
            places.push(fact(to, &[at, info & 0xffff_ffff, symbol.value], addend));
        }
        places.sort_unstable();
        Ok(fact(list.purpose, &[], &places.concat()))
    }

    /// The attributes of `.nv.info` that refer to a symbol (registers and stack), each with the
    /// function that contains the symbol.
    fn stacks(&self) -> Result<Vec<(&'a str, Vec<u8>)>, String> {
        let mut stacks = Vec::new();
        let all =
            |section: &&Section<'_>| section.purpose == ".nv.info" && section.function.is_none();
        for section in self.sections.iter().filter(all) {
            for (attribute, value) in attributes(section.bytes)? {
                let Some((symbol, rest)) = value.split_first_chunk::<4>() else { continue };
                let symbol = self.symbol(u32::from_le_bytes(*symbol) as usize)?;
                let of = self.sections.get(symbol.section).and_then(|section| section.function);
                let fact = fact("stack", &[attribute.into(), symbol.value], rest);
                stacks.extend(of.map(|of| (of, fact)));
            }
        }
        Ok(stacks)
    }

    fn symbol(&self, i: usize) -> Result<&Symbol<'a>, String> {
        self.symbols.get(i).ok_or_else(|| format!("no symbol {i}"))
    }
}

/// Encodes a fact as bytes, distinct from the bytes of every other fact.
fn fact(name: &str, numbers: &[u64], bytes: &[u8]) -> Vec<u8> {
    let mut fact = Vec::new();
    for part in [name.as_bytes(), bytes] {
        fact.extend((part.len() as u64).to_le_bytes());
        fact.extend(part);
    }
    numbers.iter().for_each(|number| fact.extend(number.to_le_bytes()));
    fact
}

/// Digest of facts, independent of their order.
fn digest_of(mut facts: Vec<Vec<u8>>) -> u128 {
    facts.sort_unstable();
    let mut hash = Xxh3::new();
    for fact in facts {
        hash.update(&(fact.len() as u64).to_le_bytes());
        hash.update(&fact);
    }
    hash.digest128()
}

/// The attributes of a kernel's `.nv.info`, without versions and symbol numbers.
fn launch_facts(info: &[u8]) -> Result<Vec<u8>, String> {
    let mut facts = Vec::new();
    for (attribute, value) in attributes(info)? {
        let value = match attribute {
            CUDA_API_VERSION | EXTERNS => continue,
            PARAM_CBANK => value.get(4..).unwrap_or_default(),
            _ => value,
        };
        facts.extend(fact("", &[attribute.into()], value));
    }
    Ok(facts)
}

/// Attributes and their values. A format byte determines the length of a value: none for format 1,
/// two bytes for formats 2 and 3, and for format 4 a two-byte length followed by that many bytes.
fn attributes(mut info: &[u8]) -> Result<Vec<(u8, &[u8])>, String> {
    let mut attributes = Vec::new();
    while let Some((&[format, attribute, low, high], rest)) = info.split_first_chunk::<4>() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let value = match format {
            1 => &info[4..4],
            2 | 3 => &info[2..4],
            4 => part(rest, 0, len)?,
            _ => return Err(format!("an attribute has the unknown format {format}")),
        };
        attributes.push((attribute, value));
        info = if format == 4 { &rest[len..] } else { rest };
    }
    Ok(attributes)
}

fn symbols_of<'a>(bytes: &[u8], names: &'a [u8]) -> Result<Vec<Symbol<'a>>, String> {
    let symbol = |entry: &[u8]| {
        let entry = Words(entry);
        let name = text(names, entry.u32(0)? as usize)?;
        Ok(Symbol { name, section: usize::from(entry.u16(6)?), value: entry.u64(8)? })
    };
    bytes.chunks_exact(24).map(symbol).collect()
}

/// Reads numbers from a part of the file.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], String> {
        let bytes = part(self.0, at, N)?;
        bytes.try_into().map_err(|_| "the file ends too early".to_string())
    }

    fn u16(self, at: usize) -> Result<u16, String> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, String> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, String> {
        self.array(at).map(u64::from_le_bytes)
    }
}

fn part(bytes: &[u8], at: usize, len: usize) -> Result<&[u8], String> {
    let end = at.checked_add(len);
    end.and_then(|end| bytes.get(at..end)).ok_or_else(|| "the file ends too early".to_string())
}

fn text(names: &[u8], at: usize) -> Result<&str, String> {
    let name = names.get(at..).and_then(|rest| rest.split(|&byte| byte == 0).next());
    let name = name.ok_or("a name lies past the end of all names")?;
    std::str::from_utf8(name).map_err(|_| "a name is not text".to_string())
}
