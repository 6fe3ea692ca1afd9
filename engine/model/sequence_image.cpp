#include "engine/model/sequence_image.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "cache/group.h"
#include "config/assert.h"

namespace troupe::engine {
namespace {

std::uint32_t first_block_of(const CacheGroup& group, std::uint32_t num_computed) {
  return std::min(cache::first_window_block(num_computed, group.window), blocks_for(num_computed));
}

// Zeros in all slots of a block from `used` on.
void clear_slots(const CacheGroup& group, std::uint32_t used, std::byte* block) {
  for (const kernels::KvShape& layer : group.layers) {
    kernels::clear_kv(layer, block, used);
    block += layer.layer_bytes();
  }
}

}  // namespace

std::uint64_t SequenceImage::bytes_for(const LoadedModel& model, std::uint32_t num_computed) {
  if (num_computed == 0) return 0;
  const CacheSpec& spec = model.cache_spec();
  std::uint64_t bytes = spec.state.bytes();
  for (const CacheGroup& group : spec.groups)
    bytes += (blocks_for(num_computed) - first_block_of(group, num_computed)) * group.bytes_per_block;
  return bytes;
}

std::uint32_t SequenceImage::layout_of(const LoadedModel& model) {
  const CacheSpec& spec = model.cache_spec();
  std::vector<std::uint64_t> numbers = {spec.state.exact_floats, spec.state.large_floats};
  for (const CacheGroup& group : spec.groups)
    numbers.insert(numbers.end(), {group.layers.size(), group.window, group.bytes_per_block});
  const auto* const bytes = reinterpret_cast<const Bytef*>(numbers.data());
  return static_cast<std::uint32_t>(crc32_z(0, bytes, numbers.size() * sizeof(std::uint64_t)));
}

SequenceImage::SequenceImage(const LoadedModel& model, std::uint32_t num_computed)
    : num_computed_(num_computed),
      layout_(layout_of(model)),
      num_bytes_(bytes_for(model, num_computed)),
      state_bytes_(model.cache_spec().state.bytes()),
      bytes_(new std::byte[num_bytes_]) {
  TROUPE_ASSERT(num_computed >= 1);
  std::size_t offset = 0;
  for (const CacheGroup& group : model.cache_spec().groups) {
    const Part& part = parts_.emplace_back(Part{
        .first_block = first_block_of(group, num_computed), .block_bytes = group.bytes_per_block, .offset = offset});
    offset += (blocks_for(num_computed) - part.first_block) * part.block_bytes;
  }
  TROUPE_ASSERT(offset + state_bytes_ == num_bytes_);
}

// Calls copy(group, index of the block, its offset in the image) for the blocks of positions [from, to).
template <class Copy>
void SequenceImage::for_blocks(std::uint32_t from, std::uint32_t to, Copy copy) const {
  TROUPE_ASSERT(from < to && to <= num_computed_);
  for (GroupId group = 0; group < parts_.size(); ++group) {
    const Part& part = parts_[group];
    if (part.block_bytes == 0) continue;
    for (std::uint32_t i = std::max(from / kBlockSize, part.first_block); i < blocks_for(to); ++i)
      copy(group, i, part.offset + (i - part.first_block) * part.block_bytes);
  }
}

void SequenceImage::save(const LoadedModel& model, const BlockTables& tables, std::uint32_t from, std::uint32_t to) {
  for_blocks(from, to, [&](GroupId group, std::uint32_t index, std::size_t offset) {
    KvArena& arena = *model.arena(group);
    std::byte* const copy = bytes_.get() + offset;
    std::memcpy(copy, arena.block(tables[group][index]), arena.bytes_per_block());
    const bool is_last = index == num_computed_ / kBlockSize;
    if (is_last) clear_slots(model.cache_spec().groups[group], num_computed_ % kBlockSize, copy);
  });
}

void SequenceImage::save_state(std::span<const float> state) {
  TROUPE_ASSERT(state.size_bytes() == state_bytes_);
  if (state_bytes_ != 0) std::memcpy(bytes_.get() + num_bytes_ - state_bytes_, state.data(), state_bytes_);
}

void SequenceImage::restore(const LoadedModel& model, const BlockTables& tables, std::uint32_t from,
                            std::uint32_t to) const {
  for_blocks(from, to, [&](GroupId group, std::uint32_t index, std::size_t offset) {
    KvArena& arena = *model.arena(group);
    std::memcpy(arena.block(tables[group][index]), bytes_.get() + offset, arena.bytes_per_block());
  });
}

std::vector<float> SequenceImage::state() const {
  std::vector<float> state(state_bytes_ / sizeof(float));
  if (state_bytes_ != 0) std::memcpy(state.data(), bytes_.get() + num_bytes_ - state_bytes_, state_bytes_);
  return state;
}

}  // namespace troupe::engine
