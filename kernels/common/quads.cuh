// Four consecutive columns of a row, of 1, 2 or 4 bytes each, that one load or store moves.
#pragma once
#include <cstdint>

template <class Column> struct Quad;
template <> struct Quad<uint8_t> {
    using Word = uint32_t;
    uint32_t words[1];
    __device__ __forceinline__ void operator=(Word word) { words[0] = word; }
    __device__ __forceinline__ Word word() const { return words[0]; }
};
template <> struct Quad<uint16_t> {
    using Word = uint2;
    uint32_t words[2];
    __device__ __forceinline__ void operator=(Word word) { words[0] = word.x, words[1] = word.y; }
    __device__ __forceinline__ Word word() const { return make_uint2(words[0], words[1]); }
};
template <> struct Quad<uint32_t> {
    using Word = uint4;
    uint32_t words[4];
    __device__ __forceinline__ void operator=(Word word) {
        words[0] = word.x, words[1] = word.y, words[2] = word.z, words[3] = word.w;
    }
    __device__ __forceinline__ Word word() const {
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};
