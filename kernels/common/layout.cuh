// Numbers that kernels and the Rust code share. Rust reads them from this text at compile time
// (`shared` of src/lib.rs), so each has a line of its own, with one decimal or hexadecimal number.
#pragma once
#include <cstdint>

// csr: entries that a lane loads at a time.
constexpr int CSR_BATCH = 6;

// Entries of a block of rows that each thread of csr_staged.cu reads at a time.
constexpr int CSR_STAGED_EACH = 4;

// Products with several vectors: parts of a row of 8 packed vectors, one for each of the lanes that
// share an entry of the matrix.
constexpr int CSR_PARTS = 2;
constexpr int HLL_PARTS_F64 = 2;
constexpr int HLL_PARTS_F32 = 1;
constexpr int BHLL_PARTS = 2;
constexpr int DIAGONAL_PARTS_F64 = 2;
constexpr int DIAGONAL_PARTS_F32 = 1;

// csr with several vectors: lanes of a row in matrices of short rows, and of long ones.
constexpr int CSR_FEW_LANES = 4;
constexpr int CSR_MOST_LANES = 16;

// csr:kernel=adaptive: maximum number of entries, and of rows, of a block of several rows; entries
// of a piece of a long row; rows of a chunk, in which blocks are found one after the other.
constexpr uint32_t CSR_ADAPTIVE_ENTRIES = 1024;
constexpr uint32_t CSR_ADAPTIVE_PIECE = 4096;
constexpr uint32_t CSR_ADAPTIVE_CHUNK = 4096;

// coo: entries that a lane processes.
constexpr int COO_EACH = 16;

// pcsr: entries of a tile that a thread processes.
constexpr int PCSR_EACH = 8;

// Tiles of pcsr, st_csr and st_csr_vi: entries of a row per lane above which a whole warp sums the
// row.
constexpr uint32_t TILE_LONG = 24;

// Conversion to tiles: chunks that a block searches; one warp searches each.
constexpr uint32_t TILE_CHUNKS = 8;

// st_csr and st_csr_vi: slots per thread.
constexpr uint32_t SORTED_EACH = 8;

// hll_vi, st_csr_vi and cdia: maximum number of distinct values, and places of the hash table for
// them.
constexpr uint32_t FEW_VALUES = 256;
constexpr uint32_t FEW_PLACES = 1024;

// Conversion to diagonals: maximum number of rows of a small hack.
constexpr uint32_t SMALL_HACK = 128;

// cdia: rows of a hack, and threads of the block that multiplies it.
constexpr uint32_t CDIA_HACK = 1024;
constexpr uint32_t CDIA_THREADS = 128;

// hub_ell: mark of pieces of a row with several pieces; entries that a warp of the conversion
// processes.
constexpr uint32_t HUB_ELL_SPLIT = 0x80000000;
constexpr uint32_t HUB_ELL_CHUNK = 1024;

// column_sweep: entries per step, one per thread of a block; neighbouring rows that stay together;
// columns counted from one base; the mark of a late entry; the sum of a slot without an entry;
// slots of the next step that an entry may swap with, and their distance.
constexpr uint32_t COLUMN_SWEEP_STEP = 1024;
constexpr uint32_t COLUMN_SWEEP_GROUP = 4;
constexpr uint32_t COLUMN_SWEEP_REACH = 32768;
constexpr uint32_t COLUMN_SWEEP_LATE = 32768;
constexpr uint32_t COLUMN_SWEEP_NO_SUM = 0xffff;
constexpr uint32_t COLUMN_SWEEP_TRIES = 4;
constexpr uint32_t COLUMN_SWEEP_SHIFT = 341;

// column_sweep: 32-bit words that describe a row block, and a row with several sums.
constexpr uint32_t COLUMN_SWEEP_BLOCK_WORDS = 8;
constexpr uint32_t COLUMN_SWEEP_LONG_WORDS = 3;

// Operations on vectors: threads of a block that sums; maximum number of partial sums of a dot
// product.
constexpr uint32_t VECTORS_THREADS = 256;
constexpr uint32_t VECTORS_PARTS = 1024;

// Dot products of the result of a product: maximum number of them; threads of the block that adds the
// partial sums of one; bit of `wanted` that asks for w = w + gamma y.
constexpr uint32_t DOTS_MOST = 3;
constexpr uint32_t DOTS_THREADS = 1024;
constexpr uint32_t DOTS_ADD = 8;

// Exchange of halos: threads of a block, maximum number of blocks for a receiver, and 64-bit words of
// the state.
constexpr uint32_t EXCHANGE_THREADS = 256;
constexpr uint32_t EXCHANGE_BLOCKS = 132;
constexpr uint32_t EXCHANGE_STATE = 3;

// Sums over GPUs: threads of the only block.
constexpr uint32_t REDUCE_THREADS = 128;

// Features: threads per block; rows whose lengths a block reads; lengths with a bin of their own;
// maximum number of tasks in a queue; bit positions of the second and third number in a queue's
// state.
constexpr uint32_t FEATURES_THREADS = 256;
constexpr uint32_t FEATURES_WINDOW = 4096;
constexpr uint32_t FEATURES_BINS = 4096;
constexpr uint32_t FEATURES_TASKS = 131072;
constexpr uint32_t FEATURES_QUEUES = 2;
constexpr int FEATURES_LEFT_AT = 22;
constexpr int FEATURES_DECIDED_AT = 44;

// Sampled features: rows that a block reads at least, maximum number of blocks that read rows,
// blocks that sample entries, and steps that each of their warps samples.
constexpr uint32_t SAMPLE_ROWS = 2048;
constexpr uint32_t SAMPLE_BLOCKS = 264;
constexpr uint32_t SAMPLE_SECTOR_BLOCKS = 2;
constexpr uint32_t SAMPLE_STEPS = 8;

// Sampled features: indices into the list of counts.
constexpr int sample_done_at = 0;     // blocks that have ended
constexpr int sample_longest_at = 1;  // the longest row
constexpr int sample_below_at = 2;    // 2^32 - 1 less the shortest row
constexpr int sample_empty_at = 3;    // rows without entries
constexpr int sample_squares_at = 4;  // sum of squares of row lengths, in f64
constexpr int sample_sectors_at = 5;  // sectors of x for f32 and for f64, and the entries they serve
constexpr int SAMPLE_COUNTS = 8;

// Features: indices into the list of counts.
constexpr int longest_at = 0;     // sums of the longest rows of slices of 32, 64, 128 and 256 rows
constexpr int sorted_at = 4;      // for 32 rows, with rows sorted in windows of 512 and of 4096
constexpr int long_rows_at = 6;   // rows that are too long for a bin
constexpr int mirrored_at = 7;    // entries whose mirror image is an entry
constexpr int sectors_at = 8;     // sectors of x for f32 and for f64, and the entries they serve
constexpr int groups_at = 11;     // for each kind of group: entries, and distinct keys among them
constexpr int pairs_at = 27;      // distinct pairs of sectors that loads read
constexpr int near_at = 28;       // entries of hacks in windows of 16384 and of 4096 columns
constexpr int met_at = 30;        // diagonals that hacks met once, twice and three times
constexpr int profile_at = 33;    // sum of the distances of first entries from the diagonal
constexpr int span_sum_at = 34;   // sum of the spans of hacks
constexpr int narrow_at = 35;     // hacks whose span fits 16 bits
constexpr int bandwidth_at = 36;  // the largest distance from the diagonal
constexpr int span_max_at = 37;   // the largest span of a hack
constexpr int full_at = 38;       // nonzero if some table or queue was too small
constexpr int queues_at = 39;     // the state of each queue of tasks
constexpr int waits_at = 41;      // tasks of the first half of a sample that were left
constexpr int done_at = 42;       // completed blocks and tasks of that half
constexpr int bins_at = 43;       // from here on the number of rows of each length, in 32 bits
