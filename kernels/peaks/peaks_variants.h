// The loops of peaks.h, by instruction set. peaks.cpp chooses among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/peaks/peaks.h"

namespace troupe::kernels::peaks {

using ReadAll = std::uint64_t(const std::byte* data, std::size_t bytes);

// The comments give the work of one round, counted as in PeakLoop.
Loop f32_avx2;         // 4 x 12 instructions of 8 multiply-adds
Loop int8_avx2;        // 4 x 8 of 32
Loop int8_avxvnni;     // 4 x 12 of 32
Loop f32_avx512;       // 4 x 12 of 16
Loop int8_avx512;      // 4 x 8 of 64
Loop int8_avx512vnni;  // 4 x 12 of 64
Loop int8_amx;         // 6 of 16 x 16 x 64
Loop bf16_amx;         // 6 of 16 x 16 x 32
Loop adds_beside_int8_amx;

ReadAll read_avx2;
ReadAll read_avx512;

}  // namespace troupe::kernels::peaks
