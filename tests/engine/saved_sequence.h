// Sequences of an Executor that are saved to a file, and continued from one.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "engine/model/sequence_file.h"

namespace troupe::test {

inline PrivateDirectory directory_of(const std::string& path) {
  auto directory = PrivateDirectory::open(std::filesystem::path(path).parent_path());
  TROUPE_ASSERT(directory);
  return std::move(*directory);
}

// In parts of `part` tokens.
inline engine::SequenceImage image_of(const engine::LoadedModel& model, const engine::Executor& executor, SequenceId id,
                                      std::uint32_t part = 1u << 20) {
  const std::uint32_t num_computed = executor.num_computed(id);
  engine::SequenceImage image(model, num_computed);
  BlockTables tables;
  for (GroupId group = 0; group < model.arenas().size(); ++group) tables.push_back(executor.block_table(id, group));
  for (std::uint32_t from = 0; from < num_computed; from += part)
    image.save(model, tables, from, std::min(num_computed, from + part));
  if (model.cache_spec().has_state()) image.save_state(executor.state(id));
  return image;
}

inline Status save_sequence(const std::string& path, const engine::LoadedModel& model, const engine::Executor& executor,
                            SequenceId id) {
  const auto tokens = executor.tokens(id);
  const engine::SequenceRecord record{.numerics_id = model.numerics_id(),
                                      .model_hash = model.model().content_hash(),
                                      .tokens = {tokens.begin(), tokens.end()},
                                      .created = 1'700'000'000,
                                      .num_answers = 3,
                                      .vocabulary_digest = 5,
                                      .template_digest = 6};
  const engine::SequenceImage image = image_of(model, executor, id);
  return engine::write_sequence(directory_of(path), std::filesystem::path(path).filename(), record, &image);
}

// The bytes of a file as version 3 of the format has them: without the digests behind the fixed-size part.
inline std::string as_version_3(std::string bytes) {
  const auto number_at = [&](std::size_t offset) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return std::size_t{value};
  };
  bytes.erase(64, 16);
  bytes[8] = 3;
  const std::size_t sum_at = 64 + number_at(12) + number_at(44) * sizeof(TokenId) + number_at(52) * 12;
  const auto sum = static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), sum_at));
  std::memcpy(bytes.data() + sum_at, &sum, sizeof sum);
  return bytes;
}

inline Result<engine::SequenceFile> open_sequence(const std::string& path, const engine::LoadedModel& model) {
  auto file = engine::SequenceFile::open(directory_of(path), std::filesystem::path(path).filename());
  if (!file) return file;
  if (const Status fits = file->check(model); !fits) return fits.error();
  return file;
}

// Fills the blocks of these tables and opens the sequence, with further tokens behind those of the file. Entries of
// blocks before `from` are not written.
inline Status continue_sequence(engine::SequenceFile& file, const engine::LoadedModel& model,
                                engine::Executor& executor, SequenceId id, const BlockTables& tables,
                                const std::vector<TokenId>& more = {}, std::uint32_t from = 0) {
  engine::SequenceImage image(model, file.num_computed());
  if (Status read = file.read(image); !read) return read;
  image.restore(model, tables, from, image.num_computed());
  engine::SequenceSpec spec;
  spec.id = id;
  spec.num_cached = image.num_computed();
  spec.tokens = file.record().tokens;
  spec.tokens.insert(spec.tokens.end(), more.begin(), more.end());
  spec.tables = tables;
  spec.state = image.state();
  executor.open(std::move(spec));
  return Ok{};
}

}  // namespace troupe::test
