// The K, V and recurrent state of a sequence in ordinary memory: on their way between blocks and a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace troupe::engine {

// What a sequence that continues after `num_computed` tokens reads: group 0's blocks, of each further group those that
// position num_computed attends to, and the state after num_computed tokens. It is written and read in parts, so that
// no step waits for a copy of the whole.
//
// save() and restore() are called by the compute thread. Not thread-safe: handed from thread to thread.
class SequenceImage {
 public:
  [[nodiscard]] static std::uint64_t bytes_for(const LoadedModel& model, std::uint32_t num_computed);
  // A number that differs, almost surely, where blocks of the same number of tokens have other contents: a hash of the
  // cache groups' windows and sizes, and the state's size. Part of the files' format.
  [[nodiscard]] static std::uint32_t layout_of(const LoadedModel& model);
  // Memory without contents. num_computed >= 1. Throws bad_alloc.
  SequenceImage(const LoadedModel& model, std::uint32_t num_computed);

  [[nodiscard]] std::uint32_t num_computed() const { return num_computed_; }
  [[nodiscard]] std::uint32_t layout() const { return layout_; }
  // The contents, as in a file: group after group, then the state as float32.
  [[nodiscard]] std::span<std::byte> bytes() { return {bytes_.get(), num_bytes_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {bytes_.get(), num_bytes_}; }

  // Copies the blocks of positions [from, to) of the sequence with these tables, to <= num_computed. Slots of the last
  // block that hold no token become zeros, so that another tenant's data in a recycled block does not get into a file.
  void save(const LoadedModel& model, const BlockTables& tables, std::uint32_t from, std::uint32_t to);
  void save_state(std::span<const float> state);  // Executor::state(); nothing without recurrent layers
  // Writes these blocks, which no other sequence may use. `from` is in a block that is not shared. Blocks that
  // position num_computed does not attend to are left out.
  void restore(const LoadedModel& model, const BlockTables& tables, std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] std::vector<float> state() const;  // for SequenceSpec::state

 private:
  struct Part {  // one group's blocks
    std::uint32_t first_block = 0;
    std::uint64_t block_bytes = 0;
    std::size_t offset = 0;
  };
  template <class Copy>
  void for_blocks(std::uint32_t from, std::uint32_t to, Copy copy) const;

  std::uint32_t num_computed_;
  std::uint32_t layout_;
  std::size_t num_bytes_;
  std::size_t state_bytes_;
  std::vector<Part> parts_;  // by group
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace troupe::engine
