// A row block that is swept by column, as its conversion (convert_column_sweep.cu) writes it and
// its product (column_sweep.cu) reads it.
#pragma once
#include "layout.cuh"

constexpr uint32_t STEP = COLUMN_SWEEP_STEP, GROUP = COLUMN_SWEEP_GROUP, LATE = COLUMN_SWEEP_LATE;
constexpr uint32_t NO_SUM = COLUMN_SWEEP_NO_SUM;

struct Block {
    uint32_t first_step, steps, first_group, groups, first_long, longs, sums, unused;
};

// A row with several sums: its place in the block, the first of its further sums, and their number.
struct Long {
    uint32_t row, first, further;
};
static_assert(sizeof(Block) == 4 * COLUMN_SWEEP_BLOCK_WORDS, "");
static_assert(sizeof(Long) == 4 * COLUMN_SWEEP_LONG_WORDS, "");
