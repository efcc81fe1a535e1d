//! Matrices at the limits of the conversion and feature kernels.

use ellect::Csr;

/// Matrices that exceed the work of one block or one warp of a conversion.
pub fn conversions() -> Vec<(String, Csr<f64>)> {
    let hash = |i: usize, k: usize| {
        let mixed = (i as u64 * 0x9e37_79b9 + k as u64 * 0x85eb_ca6b + 1).wrapping_mul(0xc2b2_ae35);
        (mixed >> 16) as usize
    };
    let valued =
        |nrows, ncols, row: &dyn Fn(usize) -> Vec<usize>, value: fn(usize, usize) -> f64| {
            let entries = (0..nrows).flat_map(|i| {
                let mut columns: Vec<usize> = row(i).into_iter().filter(|&j| j < ncols).collect();
                columns.sort_unstable();
                columns.dedup();
                columns.into_iter().map(move |j| (i, j, value(i, j)))
            });
            Csr::from_triplets(nrows, ncols, entries.collect::<Vec<_>>())
                .expect("indices are in range")
        };
    let of = |nrows: usize, ncols: usize, row: &dyn Fn(usize) -> Vec<usize>| {
        valued(nrows, ncols, row, |i, j| 0.25 * ((i + 3 * j) % 41) as f64 - 4.0)
    };
    let with_gaps = |i: usize, n: usize| {
        (0..n).filter(|d| !(i * 7 + d).is_multiple_of(5)).map(|d| i + 3 * d).collect::<Vec<_>>()
    };
    let of_three: fn(usize, usize) -> f64 = |i, j| ((i + j) % 3) as f64 + 1.0;
    let blocks = |n: usize, b: usize| {
        of(n, n, &|i| {
            let block = i / b;
            let places = [block, block + 1 + hash(block, 0) % 9, block + 20 + block % 3];
            let some = &places[..1 + hash(block, 1) % 3];
            some.iter().flat_map(|place| place * b..(place + 1) * b).collect()
        })
    };
    let mut all = vec![
        (
            "rows of 0 to 60 entries, windows with a short last one".to_string(),
            of(9001, 9001, &|i| (0..hash(i, 0) % 61).map(|k| i + 2 * k + hash(i, k) % 2).collect()),
        ),
        (
            "rows of 0 to 4 entries".to_string(),
            of(40_003, 40_003, &|i| (0..hash(i, 0) % 5).map(|k| i + 7 * k).collect()),
        ),
        (
            "an entry anywhere in three rows of four".to_string(),
            of(42_000, 42_000, &|i| {
                (hash(i, 0) % 4 > 0).then(|| hash(i, 1) % 42_000).into_iter().collect()
            }),
        ),
        (
            "more rows than a GPU holds at once".to_string(),
            of(180_001, 180_001, &|i| (0..hash(i, 0) % 13).map(|k| i + 3 * k).collect()),
        ),
        (
            "a row of 150,000 entries".to_string(),
            of(300, 200_000, &|i| if i == 113 { (0..150_000).collect() } else { vec![i, i * 600] }),
        ),
        (
            "diagonals far apart".to_string(),
            of(2000, 400_000, &|i| [0, 131_071, 131_072, 300_000, 397_990].map(|d| i + d).to_vec()),
        ),
        (
            "columns anywhere among 3,000,000".to_string(),
            of(3000, 3_000_000, &|i| (0..9).map(|k| hash(i, k) % 3_000_000).collect()),
        ),
        (
            "near columns, and now and then one far off".to_string(),
            of(20_000, 3_000_000, &|i| {
                let far = (i % 700 == 3).then(|| hash(i, 1) % 3_000_000);
                (0..9).map(|k| i + 2 * k).chain(far).collect()
            }),
        ),
        (
            "hubs, and columns of one entry".to_string(),
            of(20_011, 300_000, &|i| {
                let length = [0, 7, 40, 700][hash(i, 0) % 4 * usize::from(i % 9 != 4)];
                let length = if length == 700 && i % 50 != 0 { 16 } else { length };
                let far = |k: usize| hash(i, k) % 300_000;
                let near = |k: usize| (hash(i, k) % 1000).pow(3) / 3334;
                (1..=length).map(|k| if k % 3 == 0 { far(k) } else { near(k) }).collect()
            }),
        ),
        (
            "rows of 91,000 entries in hubs and out of them".to_string(),
            of(2000, 120_000, &|i| match i {
                5 | 1999 => (0..91_000).collect(),
                _ => vec![i, 7 * i],
            }),
        ),
        (
            "three diagonals of one value".to_string(),
            valued(3000, 3000, &|i| (i.saturating_sub(1)..i + 2).collect(), |i, j| {
                if i == j { 2.0 } else { -1.0 }
            }),
        ),
        (
            "40 diagonals of three values".to_string(),
            valued(5001, 5100, &|i| with_gaps(i, 40), of_three),
        ),
        (
            "250 diagonals of three values".to_string(),
            valued(2100, 3000, &|i| with_gaps(i, 250), of_three),
        ),
        (
            "links without weights, rows of 0 to 3,000".to_string(),
            valued(
                20_000,
                90_000,
                &|i| {
                    let length = if i % 997 == 5 { 3_000 } else { hash(i, 0) % 30 };
                    (1..=length).map(|k| hash(i, k) % 90_000).collect()
                },
                |_, _| 1.0,
            ),
        ),
        (
            "256 values".to_string(),
            valued(9_000, 9_000, &|i| (0..8).map(|k| hash(i, k) % 9_000).collect(), |i, j| {
                ((7 * i + j) % 256) as f64 - 100.5
            }),
        ),
        (
            "257 values".to_string(),
            valued(9_000, 9_000, &|i| (0..8).map(|k| hash(i, k) % 9_000).collect(), |i, j| {
                ((7 * i + j) % 257) as f64 - 100.5
            }),
        ),
        ("a band of 300 diagonals".to_string(), of(1500, 1800, &|i| (i..i + 300).collect())),
        (
            "a band half full".to_string(),
            of(3100, 3100, &|i| (0..40).filter(|&k| hash(i, k) % 2 == 0).map(|k| i + k).collect()),
        ),
    ];
    for b in 2..=6 {
        all.push((format!("blocks of {b}, the last one cut"), blocks(211 * b * 6 - 1, b)));
    }
    all
}

/// Matrices at the limits of the feature kernels' counters.
pub fn features() -> Vec<(String, Csr<f64>)> {
    let n = 70_000;
    // Rows of 70,000, 30,000 and 5,000 entries.
    let long = [(17, n, 1), (18, 30_000, 2), (n - 1, 5_000, 3)];
    let long = long.into_iter().flat_map(|(row, len, step)| (0..len).map(move |j| (row, j * step)));
    let scattered = (0..n).map(|i| (i, i * 7_919 % n));
    // Too large to be analysed as a whole: rows of 3 entries in one full column and two elsewhere,
    // and one full row per `every` others.
    let hubs = |nrows: usize, ncols: usize, every: usize| {
        (0..nrows).flat_map(move |i| {
            let few = [0, i * 7_919 % ncols, i * 48_271 % ncols].into_iter();
            let all = if i % every == every / 2 { 0..ncols } else { 0..0 };
            few.chain(all.step_by(2)).map(move |j| (i, j))
        })
    };
    let dense = |nrows: usize, ncols: usize, every: usize| {
        (0..nrows * ncols / every).map(move |k| (k * every / ncols, k * every % ncols))
    };
    let band = |n: usize, width: usize| {
        (0..n).flat_map(move |i| (i..(i + width).min(n)).map(move |j| (i, j)))
    };
    [
        ("hubs", 200_000, 150_000, hubs(200_000, 150_000, 30_000).collect()),
        ("many hubs", 20_000, 9_000, hubs(20_000, 9_000, 97).collect()),
        ("a few long hubs", 9_000, 70_000, hubs(9_000, 70_000, 600).collect()),
        ("rows of 1,000", 500, 3_000, dense(500, 3_000, 3).collect()),
        ("rows of 1,500", 9_000, 6_000, dense(300, 4_500, 3).collect()),
        ("20 long rows", 20, 30_000, dense(20, 30_000, 2).collect()),
        ("200 long rows", 200, 9_001, dense(200, 9_001, 4).collect()),
        ("1 x 300,000", 1, 300_000, (0..300_000).map(|j| (0, j)).collect()),
        ("300,000 x 1", 300_000, 1, (0..300_000).map(|i| (i, 0)).collect()),
        ("far columns, many", 300, 1_500_000, {
            (0..400_000).map(|k| (k * 31 % 300, k * 48_271 % 1_500_000)).collect()
        }),
        ("few of many rows", 3_000_000, 900_000, {
            (0..270_000).map(|k| (k * 11, k * 7_919 % 900_000)).collect()
        }),
        ("next to empty, many", 5_000_000, 80_000, {
            (0..270_000).map(|k| (k * 18, k * 1_999 % 80_000)).collect()
        }),
        ("a band of 9", 60_001, 60_001, band(60_001, 9).collect()),
        ("a band of 2", 200_000, 200_000, band(200_000, 2).collect()),
        ("long rows", n, n, long.chain(scattered).collect::<Vec<_>>()),
        ("1 x 100,000", 1, 100_000, (0..100_000).map(|j| (0, j)).collect()),
        ("100,000 x 1", 100_000, 1, (0..100_000).map(|i| (i, 0)).collect()),
        (
            "empty rows",
            40_000,
            9_000,
            (0..40_000).map(|k| (20_000 + k * k % 9, k % 9_000)).collect(),
        ),
        ("far columns", 300, 1_500_000, {
            (0..100_000).map(|k| (k * 31 % 300, k * 48_271 % 1_500_000)).collect()
        }),
        ("next to empty", 90_000, 80_000, (0..40).map(|k| (k * 2_000, k * 1_999)).collect()),
        ("full hacks", 5_000, 9_000, (0..120_000).map(|k| (k % 400, k / 400 * 17)).collect()),
    ]
    .into_iter()
    .map(|(name, nrows, ncols, entries)| {
        let entries = entries.into_iter().map(|(i, j)| (i, j, 1.0));
        (name.to_string(), Csr::from_triplets(nrows, ncols, entries).expect("indices are in range"))
    })
    .collect()
}
