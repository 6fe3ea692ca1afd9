// The id types of tokens, sequences, blocks and snapshots, used everywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

using TokenId = std::int32_t;      // an entry of the vocabulary, >= 0
using SequenceId = std::uint64_t;  // a request's tokens and state inside the engine; never reused
using BlockId = std::uint32_t;     // a block of KV positions in the arena, 0 <= id < num_blocks
using SnapshotId = std::uint32_t;  // a copy of a recurrent state, 0 <= id < num_snapshots
using GroupId = std::uint32_t;     // a cache group (group.h): an index, counted from 0

using BlockTable = std::vector<BlockId>;      // a sequence's blocks of one group, by position / kBlockSize
using BlockTables = std::vector<BlockTable>;  // of all its groups, by GroupId

// The tenant that requests are counted for. Decided once, where a connection is accepted, from what the kernel reports
// of it; behind ipc/ nothing else identifies a user. Below 2^32: the user with this uid. Others: a tenant that the
// server's rules name.
enum class TenantId : std::uint64_t {};

inline constexpr BlockId kNoBlock = 0xffffffffu;
inline constexpr SnapshotId kNoSnapshot = 0xffffffffu;

// Positions in one block. Fixed: it decides where attention's partial sums are cut, so another size gives other bits.
inline constexpr std::uint32_t kBlockSize = 32;

// Blocks needed for `num_tokens` positions.
constexpr std::uint32_t blocks_for(std::uint32_t num_tokens) {
  return num_tokens / kBlockSize + (num_tokens % kBlockSize != 0);
}

}  // namespace troupe
