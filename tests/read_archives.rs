//! Archives and binary files as people have them: each with its matrix or the exact message.

mod forms;
mod input;

use ellect::read::Options;
use forms::table::{PLAIN, outcome, table};
use forms::*;
use input::{Npz, gzip, zstd_of};

#[test]
fn compression_as_it_is_written() {
    let text = plain();
    let (front, back) = text.split_at(40);
    let junk = |name: &str| format!("{PLAIN}; ignored the bytes behind the {name} data");
    let window = [b"\x28\xb5\x2f\xfd\x00\xa8", &[0; 20][..]].concat();
    table(
        &Options::default(),
        &[
            ("gzip in members", [gzip(front), gzip(back)].concat(), PLAIN),
            ("gzip with zeros", [gzip(&text), vec![0; 5000]].concat(), PLAIN),
            ("gzip with zeros between", [gzip(front), vec![0; 7], gzip(back)].concat(), PLAIN),
            ("gzip with other bytes", [gzip(&text), b"junk".to_vec()].concat(), &junk("gzip")),
            ("bzip2", bzip2(&text), PLAIN),
            ("bzip2 in streams", [bzip2(front), bzip2(back)].concat(), PLAIN),
            ("bzip2 with other bytes", [bzip2(&text), b"junk".to_vec()].concat(), &junk("bzip2")),
            ("xz", xz(&text, 0), PLAIN),
            ("xz in streams", [xz(front, 0), vec![0; 8], xz(back, 3)].concat(), PLAIN),
            (
                "xz with a large dictionary",
                xz(&text, 40),
                "the xz data needs a dictionary of 4.29 GB; the limit is 134 MB: decompress it first",
            ),
            (
                "zstd with skippable frames",
                [
                    skippable(&[1; 4]),
                    zstd_of(front),
                    skippable(&[]),
                    zstd_of(back),
                    skippable(b"end"),
                ]
                .concat(),
                PLAIN,
            ),
            (
                "zstd with a large window",
                window,
                "the zstd data needs a window of 2.15 GB; the limit is 134 MB: decompress it first (zstd \
             -d --long=31), or compress it without --long",
            ),
            ("zstd of nothing", skippable(&[1; 4]), "the input is empty"),
            ("three layers", gzip(&bzip2(&xz(&text, 0))), PLAIN),
            (
                "gzip cut off",
                gzip(&text)[..60].to_vec(),
                "the input is damaged or cut off: incomplete deflate stream",
            ),
        ],
    );
}

#[test]
fn archives_as_they_are_downloaded() {
    let (matrix, vector) = (plain(), vector());
    let readme = ("mesh/README.txt", &b"A mesh."[..]);
    let passed = |archive: &str| format!("{PLAIN}; {archive}");
    let mut long = Vec::new();
    tar_entry(&mut long, "././@LongLink", b'L', b"a/very/long/name.mtx\0");
    tar_entry(&mut long, "a/ver", b'0', &matrix);
    tar_entry(&mut long, "pax", b'x', b"20 path=other.mtx.b\n");
    tar_entry(&mut long, "x", b'0', b"no matrix");
    let suitesparse: [(&str, &[u8]); 5] = [
        ("mesh/", b""),
        ("mesh/mesh_b.mtx", &vector),
        ("mesh/mesh.mtx", &matrix),
        readme,
        ("mesh/mesh_coord.mtx", &vector),
    ];
    let aux: [(&str, &[u8]); 2] = [("m/m_M.mtx", &matrix), ("m/m.mtx", &matrix)];
    table(
        &Options::default(),
        &[
            ("tar", tar(&[("mesh/mesh.mtx", &matrix)]), PLAIN),
            (
                "tar.gz of SuiteSparse",
                gzip(&tar(&suitesparse)),
                &passed(
                    "read mesh/mesh.mtx of the archive; passed over mesh/mesh_b.mtx, mesh/mesh_coord.mtx",
                ),
            ),
            (
                "zip of SuiteSparse",
                zip_of(&suitesparse),
                &passed(
                    "read mesh/mesh.mtx of the archive; passed over mesh/mesh_b.mtx, mesh/mesh_coord.mtx",
                ),
            ),
            ("tar.xz", xz(&tar(&[("mesh.mtx", &matrix)]), 0), PLAIN),
            ("a compressed member", tar(&[("mesh.mtx.gz", &gzip(&matrix)), readme]), PLAIN),
            (
                "a member of another form",
                tar(&[("small.rua", &rua("(5F4.0)", "  4.  2.  5.  1.  6.\n"))]),
                PLAIN,
            ),
            ("an npz in a tar", tar(&[("a.npz", &dia().stored())]), PLAIN),
            (
                "a second matrix of the problem",
                tar(&aux),
                &passed("read m/m.mtx of the archive; passed over m/m_M.mtx"),
            ),
            ("a vector alone", tar(&[("b.mtx", &vector)]), "3x1 1,1=1 2,1=2 3,1=3"),
            (
                "files of macOS",
                zip_of(&[("__MACOSX/._a.mtx", b"\0\x05"), ("a.mtx", &matrix)]),
                PLAIN,
            ),
            ("long names", long, PLAIN),
        ],
    );
}

#[test]
fn archives_without_one_matrix_are_refused_unless_a_member_is_named() {
    let (matrix, vector) = (plain(), vector());
    let readme = ("mesh/README.txt", &b"A mesh."[..]);
    let two: [(&str, &[u8]); 3] =
        [("a/a.mtx", &matrix), ("b/b.mtx", &matrix), ("b/c.mtx", &vector)];
    let ambiguous = "the archive holds 2 matrices: a/a.mtx, b/b.mtx; name one, for instance \
                     member=a/a.mtx over HTTP, or FILE:a/a.mtx";
    let broken: [(&str, &[u8]); 1] =
        [("m/m.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1")];
    table(
        &Options::default(),
        &[
            ("two matrices", tar(&two), ambiguous),
            ("two matrices in a zip", zip_of(&two), ambiguous),
            (
                "no matrix",
                tar(&[readme]),
                "the archive holds no matrix that can be read; it holds: mesh/README.txt",
            ),
            ("an empty zip", zip_of(&[]), "the archive is empty"),
            (
                "a matrix that is broken",
                tar(&broken),
                "line 2: the size line is '1 1'; it must hold the numbers of rows, columns and entries (in \
             m/m.mtx)",
            ),
            (
                "an archive in an archive",
                tar(&[("in.tar", &tar(&[("a.mtx", &matrix)]))]),
                "the archive holds no matrix that can be read; it holds: in.tar",
            ),
        ],
    );
    let cut = tar(&[("a.mtx", &matrix), ("b.mtx", &matrix)])[..1100].to_vec();
    assert!(outcome(&Options::default(), &cut).starts_with("the tar archive is damaged"));
    let of = |member: &str| Options { member: Some(member.into()), ..Options::default() };
    table(&of("b/c.mtx"), &[("a named vector", tar(&two), "3x1 1,1=1 2,1=2 3,1=3")]);
    table(&of("./a/a.mtx"), &[("a named matrix", zip_of(&two), PLAIN)]);
    table(
        &of("d.mtx"),
        &[
            (
                "a member that is not there",
                tar(&two),
                "the archive holds no matrix 'd.mtx'; it holds: a/a.mtx, b/b.mtx, b/c.mtx",
            ),
            (
                "no archive",
                plain(),
                "'d.mtx' names a member, but the input is neither an archive nor a MATLAB file",
            ),
        ],
    );
}

#[test]
fn petsc_files() {
    let vector = [&petsc_ints(4, &[1_211_214, 2])[..], &[0; 16]].concat();
    let complex = [&petsc(4)[..68], &[0; 60]].concat();
    table(
        &Options::default(),
        &[
            ("32-bit indices", petsc(4), PLAIN),
            ("64-bit indices", petsc(8), PLAIN),
            (
                "a vector behind",
                [petsc(4), vector.clone()].concat(),
                &format!("{PLAIN}; passed over the objects behind the first PETSc matrix"),
            ),
            (
                "a vector before",
                [vector.clone(), petsc(4)].concat(),
                &format!("{PLAIN}; passed over a vector of the PETSc file"),
            ),
            ("a vector alone", vector, "the PETSc file ends before the class of the next object"),
            (
                "complex values",
                complex,
                "the PETSc file holds complex values, which are not supported; write \
            the matrix with a PETSc of real numbers",
            ),
            (
                "dense",
                petsc_ints(4, &[1_211_216, 3, 3, -1]),
                "the PETSc file holds a dense matrix; convert it \
            with MatConvert to MATAIJ and write that",
            ),
            (
                "little-endian",
                petsc(4)
                    .chunks(4)
                    .flat_map(|w| w.iter().rev().copied().collect::<Vec<_>>())
                    .collect(),
                "byte 0: the input is a PETSc file in little-endian order; PETSc's own are big-endian",
            ),
            (
                "rows that disagree",
                petsc_ints(4, &[1_211_216, 2, 2, 3, 1, 1]),
                "the rows have 2 entries together, the header says 3",
            ),
            (
                "a column that is too large",
                petsc_ints(4, &[1_211_216, 1, 2, 1, 1, 2]),
                "columns: element 0: it must be from 0 to 2 less 1",
            ),
            (
                "cut off",
                petsc(4)[..80].to_vec(),
                "the input is damaged or cut off: failed to fill whole buffer",
            ),
            (
                "other bytes",
                [petsc(4), b"junk!".to_vec()].concat(),
                "5 bytes follow the values of the PETSc matrix, which are no other object",
            ),
        ],
    );
}

#[test]
fn numpy_archives() {
    let shape = |n: [i64; 2]| n.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let stated = |n| plain_npz().with("shape", "<i8", &[2], &shape(n));
    let by_fortran = |npz: Npz, name: &str, data: &[f64], dims: &[usize]| {
        let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut npz = npz.with(name, "<f8", dims, &bytes);
        let array = &mut npz.arrays.last_mut().expect("an array").1;
        let at = array.windows(5).position(|w| w == b"False").expect("the header");
        array[at..at + 5].copy_from_slice(b"True ");
        npz.stored()
    };
    let blocks = "3x3 1,1=4 1,2=0 1,3=1 2,1=0 2,2=5 2,3=0 3,1=2 3,2=0 3,3=6";
    table(
        &Options::default(),
        &[
            ("bsr", bsr().stored(), blocks),
            ("dia", dia().stored(), PLAIN),
            (
                "bsr in order of Fortran",
                by_fortran(
                    bsr(),
                    "data",
                    &[4.0, 0.0, 2.0, 0.0, 5.0, 0.0, 1.0, 0.0, 6.0],
                    &[3, 1, 3],
                ),
                blocks,
            ),
            (
                "dia in order of Fortran",
                by_fortran(dia(), "data", &[9.0, 4.0, 2.0, 9.0, 5.0, 9.0, 1.0, 6.0, 9.0], &[3, 3]),
                PLAIN,
            ),
            (
                "plain csr without shape",
                plain_npz().stored(),
                &format!(
                    "{PLAIN}; the archive states no shape: read as csr with 3 rows and 3 columns"
                ),
            ),
            ("plain csr", stated([3, 3]).stored(), PLAIN),
            ("plain csr with a wide shape", stated([3, 4]).stored(), &PLAIN.replace("3x3", "3x4")),
            (
                "plain csc, as the shape says",
                stated([4, 3]).stored(),
                "4x3 1,1=4 1,3=2 2,2=5 3,1=1 3,3=6",
            ),
        ],
    );
}

#[test]
fn values_and_faults_of_numpy_archives() {
    let half: Vec<u8> =
        [0x4400_u16, 0x3c00, 0x4500, 0x4000, 0x4600].iter().flat_map(|h| h.to_le_bytes()).collect();
    let large: Vec<u8> =
        [4, 1, 5, 2, (1_u64 << 53) + 1].iter().flat_map(|n| n.to_le_bytes()).collect();
    let shape = |n: [i64; 2]| n.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let dense = Npz { arrays: Vec::new() }.with("A", "<f8", &[1, 1], &[0; 8]);
    table(
        &Options::default(),
        &[
            ("16-bit values", csr_npz("<f2", &half).stored(), PLAIN),
            (
                "rounded integers",
                csr_npz("<u8", &large).stored(),
                &format!(
                    "{}; 1 integer over 2^53 was rounded to the next number of 53 bits",
                    PLAIN.replace("3,3=6", "3,3=9007199254740992")
                ),
            ),
            (
                "longdouble",
                csr_npz("<f16", &[0; 80]).stored(),
                "array 'data': values of type longdouble (float128) are not supported; convert them with \
             A.astype('float64')",
            ),
            (
                "dense",
                dense.stored(),
                "the archive holds no sparse matrix but the arrays A; write it with \
            scipy.sparse.save_npz(file, scipy.sparse.csr_array(A))",
            ),
            (
                "blocks that do not divide",
                bsr().with("shape", "<i8", &[2], &shape([3, 4])).stored(),
                "the blocks are 1 x 3, which do not divide a matrix of 3 x 4",
            ),
            (
                "blocks of a claimed size",
                bsr()
                    .with("shape", "<i8", &[2], &shape([1 << 31, 3]))
                    .with("data", "<f8", &[0, 1 << 30, 1], &[])
                    .with("indices", "<i4", &[0], &[])
                    .with("indptr", "<i4", &[3], &[0; 12])
                    .stored(),
                "number of rows beyond the number of entries is 2147483648, over the limit of 33554432; raise \
             the limit (empty_rows, --max-empty-rows) if this is intended",
            ),
            (
                "offsets that are missing",
                dia().with("offsets", "<i4", &[2], &[0; 8]).stored(),
                "array 'offsets' has 2 elements and array 'data' 3 rows; the numbers must be equal",
            ),
            (
                "an unknown format",
                dia().with("format", "|S3", &[], b"xyz").stored(),
                "the sparse format is 'xyz'; supported are csr, csc, coo, bsr and dia (A.tocsr() converts)",
            ),
        ],
    );
}

#[test]
#[cfg(unix)]
fn pipes_are_read_once_from_start_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let contents = [plain(), gzip(&plain()), tar(&[("a.mtx", &plain())]), dia().stored(), petsc(4)];
    for content in contents {
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let writer = std::thread::spawn({
            let path = path.clone();
            move || std::fs::write(path, content).expect("written")
        });
        let found = Options::default().file::<f64>(&path).expect("read");
        assert_eq!((found.csr.nnz(), found.csr.values()), (5, &BY_ROWS[..]));
        writer.join().expect("written");
        std::fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn members_are_picked_by_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("two.tar.gz");
    let files: [(&str, &[u8]); 2] = [("a/a.mtx", &plain()), ("b/b.mtx", &plain())];
    std::fs::write(&path, gzip(&tar(&files))).expect("written");
    let shown = path.display();
    let read = |path: String| Options::default().file::<f64>(path).map(|found| found.csr.nnz());
    assert_eq!(read(format!("{shown}:b/b.mtx")).expect("picked"), 5);
    let error = read(shown.to_string()).expect_err("two").to_string();
    assert!(error.ends_with(&format!("name one, for instance {shown}:a/a.mtx")), "{error}");
    std::fs::write(folder.path().join("odd:name.mtx"), plain()).expect("written");
    let odd = folder.path().join("odd:name.mtx").display().to_string();
    assert_eq!(read(odd).expect("a file of this name"), 5);
    assert!(read(format!("{shown}.no:b/b.mtx")).is_err());
}
