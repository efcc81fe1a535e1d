// Columns of sorted tiles (src/format/tiled/sorted_tiles/mod.rs): the number of further column bits,
// and how numbers are packed.
#pragma once
#include "sums.cuh"

// Slots per thread.
constexpr int EACH = OWN;

// Number of warps in which some column needs more than 4, 8 and 16 bits in addition to those next
// to the place, and of warps in which it needs 16 more than the first two: five counts.
struct Overs {
    uint32_t wide[3], far[2];
};

// Number of further column bits of all slots: the choice with the fewest bytes, where the bytes of
// wide warps count twice. `Widths::best` of src/format/tiled/sorted_tiles/mod.rs.
__device__ __forceinline__ uint32_t extra_bits(const Overs& overs, uint64_t warps) {
    const uint64_t bits[3] = {4 * warps + 32ull * overs.wide[0], 8 * warps + 32ull * overs.wide[1],
                              16 * warps + 32ull * overs.wide[2]};
    uint32_t best = 2;
    if (overs.far[1] == 0 && bits[1] < bits[best]) best = 1;
    if (overs.far[0] == 0 && bits[0] < bits[best]) best = 0;
    return 4u << best;
}

// Packs the low `width` bits of each of eight numbers into words.
template <int width> __device__ __forceinline__ void put(const uint32_t (&from)[8], uint32_t* words) {
    uint32_t word[width / 4] = {};
#pragma unroll
    for (int k = 0; k < 8; k++)
        word[k * width / 32] |= (from[k] & ((1u << width) - 1)) << k * width % 32;
#pragma unroll
    for (int k = 0; k < width / 4; k++) words[k] = word[k];
}
