// A sequence in a file: its tokens and their KV blocks and state, to continue later or in another process with the same
// bits as without the break.
//
// The format, version 2 (hashes are XXH3); integers are little-endian:
//
//   magic "troupeKV" | u32 version | u32 bytes of numerics_id (<= 256) | u64 model hash
//   u32 KV type (0: f32, 1: f16, 2: int8) | u32 positions per block | u64 bytes per block
//   u32 tokens (<= 2^24) | u32 of these prompt | u32 of these computed | u32 anchors (one per full block of tokens)
//   numerics_id | tokens, i32 each | anchors, each u32 position, u64 hash
//   u32 CRC-32 of all bytes so far (the header)
//   the blocks of the computed tokens, in order, as in the arena
//   for each further cache group: its blocks that the next token attends to
//   with a recurrent state: the state, as float32
//   u32 CRC-32 of everything after the header
//
// Slots of the last block that hold no token of this sequence are written as zeros, so that another tenant's data in a
// recycled block does not get into the file. CRC-32 (zlib's: a dependency that Protobuf brings anyway, and faster than
// any disk here) detects damage, not manipulation: a file is trusted as far as a prompt is, and every count in it is
// checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_hash.h"
#include "config/file_descriptor.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

inline constexpr std::uint32_t kSequenceFileVersion = 2;

// Writes an open sequence to `path`, all or nothing: a temporary file beside it (mode 0600) is written, synced and
// renamed. Called by the executor's compute thread, between steps. With recurrent state and every token computed, only
// the tokens are written: the last one must be computed again, and a state cannot be rolled back. Error: io, with the
// system's message.
Status export_sequence(const std::string& path, const LoadedModel& model, const Executor& executor, SequenceId id);

// Reads a sequence from a file: first its header, then, once the caller has leased blocks for it, the blocks.
//
//   auto file = SequenceFile::open(path, model);
//   ... lease file->num_blocks() blocks, or fewer: file->anchors() finds cached ones ...
//   file->read_blocks(model, tables);
//   executor.open(file->spec(id, tables, sampling));
//
// Keeps the file open: a file renamed to its path in the meantime is not read.
class SequenceFile {
 public:
  // Reads and checks all but the blocks, O(tokens). Errors, each with a remedy in its message: io (not there,
  // truncated, damaged), unsupported (not such a file, another version, made with another model, kernel variant or KV
  // type, or under a context on the other side of the model's window), invalid_argument (longer than the context
  // served).
  static Result<SequenceFile> open(const std::string& path, const LoadedModel& model);

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<cache::Anchor>& anchors() const { return anchors_; }
  std::uint32_t num_prompt_tokens() const { return num_prompt_tokens_; }
  std::uint32_t num_computed() const { return num_computed_; }
  std::uint32_t num_blocks() const { return blocks_for(num_computed_); }

  // The position that the next step begins at. No step attends to the blocks before a group's window of it.
  std::uint32_t next_position() const;

  // Reads the blocks into the first num_blocks() entries of each group's table (by group), which no other sequence may
  // use; for an entry kNoBlock the block is checked and skipped (the caller has it from the prefix cache). Entries
  // before a group's window of next_position() are not read. Called by the compute thread. After an error (io:
  // truncated or damaged) the contents of the blocks are undefined.
  Status read_blocks(const LoadedModel& model, const BlockTables& tables);
  // The spec to continue the sequence with, after read_blocks(). `tables`: kNoBlock before a group's window of
  // next_position().
  SequenceSpec spec(SequenceId id, BlockTables tables, SamplingParams sampling) const;

 private:
  SequenceFile() = default;
  std::string path_;
  FileDescriptor file_{-1};  // stays open, even if the path is replaced
  std::uint64_t header_bytes_ = 0;
  std::vector<TokenId> tokens_;
  std::vector<cache::Anchor> anchors_;
  std::uint32_t num_prompt_tokens_ = 0;
  std::uint32_t num_computed_ = 0;
  std::vector<float> state_;  // filled by read_blocks()
};

}  // namespace troupe::engine
