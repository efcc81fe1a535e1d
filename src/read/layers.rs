//! The way from a source of bytes to the reader of its content, through compression and archives.

use std::io::{BufReader, Cursor, Read};

use bytes::Bytes;

use super::content::{Content, HEAD_BYTES, excerpt, sniff};
use super::context::Context;
use super::limits::{Limited, io_error, too_much_held};
use super::{archive, decoders, harwell_boeing, json, matlab, matlab73, matrix_market, petsc, zip};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// A source of bytes that a reader can use on another thread.
pub(super) type Source<'a> = Box<dyn Read + Send + 'a>;

/// Maximum number of bytes of a decompressed archive, which is held in memory.
const MAX_ARCHIVE: u64 = 1 << 30;

/// Maximum number of compression layers around a matrix.
const MAX_LAYERS: usize = 3;

/// A source after all compression is removed.
pub(super) struct Opened<'a> {
    pub content: Content,
    pub source: Source<'a>,
    /// The first bytes of `source`.
    pub head: Vec<u8>,
    layers_left: usize,
}

/// Removes compression from `source` and recognises the content; `name` is its file name.
///
/// `shown` is the number of first bytes that `head` must hold, if there are so many.
///
/// # Errors
/// [`Error::Input`] for content of an unsupported kind, or compressed more than three times.
pub(super) fn open<'a>(
    mut source: Source<'a>,
    name: &str,
    shown: u64,
    context: &Context<'_>,
) -> Result<Opened<'a>> {
    let mut layers_left = MAX_LAYERS;
    loop {
        let mut limited = Limited::bytes(source, context.limits);
        let mut head = Vec::new();
        limited.by_ref().take(shown.max(HEAD_BYTES)).read_to_end(&mut head).map_err(io_error)?;
        let content = sniff(&head[..head.len().min(HEAD_BYTES as usize)], name)?;
        let decoder = match content {
            Content::Gzip => decoders::gzip,
            Content::Zstd => decoders::zstd,
            Content::Bzip2 => decoders::bzip2,
            Content::Xz => decoders::xz,
            _ => {
                let source = Box::new(Cursor::new(head.clone()).chain(limited));
                return Ok(Opened { content, source, head, layers_left });
            }
        };
        if layers_left == 0 {
            return Err(Error::input(format!(
                "the matrix is compressed more than {MAX_LAYERS} times; decompress it first"
            )));
        }
        layers_left -= 1;
        source = decoder(Box::new(Cursor::new(head).chain(limited)), context)?;
    }
}

/// Reads the matrix in `source`, of any kind and compression.
///
/// # Errors
/// As the reader of the content.
pub(super) fn read<T: Scalar>(source: Source<'_>, context: &Context<'_>) -> Result<Csr<T>> {
    let opened = open(source, &context.name, 0, context)?;
    let has_members =
        matches!(opened.content, Content::Tar | Content::Zip | Content::Matlab | Content::Matlab73);
    if let Some(member) = context.member
        && !has_members
    {
        return Err(Error::input(format!(
            "{} names a member, but the input is neither an archive nor a MATLAB file",
            excerpt(member.as_bytes())
        )));
    }
    match opened.content {
        Content::Tar => archive::tar(opened.source, context),
        _ => opened.read(context),
    }
}

impl Opened<'_> {
    /// Reads the matrix; a tar archive is refused, because it would be one inside an archive.
    ///
    /// # Errors
    /// As the reader of the content.
    pub fn read<T: Scalar>(self, context: &Context<'_>) -> Result<Csr<T>> {
        let source = self.source;
        match self.content {
            Content::MatrixMarket => matrix_market::read(source, context),
            Content::HarwellBoeing => harwell_boeing::read(BufReader::new(source), context),
            Content::Json => json::read(source, context),
            Content::Petsc => petsc::read(BufReader::new(source), context),
            Content::Matlab => matlab::read(source, context),
            Content::Zip => zip::read(held(source, self.layers_left)?, context),
            Content::Matlab73 => matlab73::read(held(source, self.layers_left)?, context),
            Content::Tar => {
                Err(Error::input("a tar archive is inside an archive; unpack the outer one"))
            }
            Content::Gzip | Content::Zstd | Content::Bzip2 | Content::Xz => {
                Err(Error::input("the input is compressed; decompress it first"))
            }
        }
    }
}

/// Reads all of a file that is read in place.
fn held(source: Source<'_>, layers_left: usize) -> Result<Cursor<Bytes>> {
    let mut bytes = Vec::new();
    let limit = if layers_left < MAX_LAYERS { MAX_ARCHIVE } else { u64::MAX };
    let over =
        |_, _| too_much_held("an archive or MATLAB 7.3 file of over 1 GiB inside compression");
    Limited::new(source, limit, over).read_to_end(&mut bytes).map_err(io_error)?;
    Ok(Cursor::new(bytes.into()))
}
