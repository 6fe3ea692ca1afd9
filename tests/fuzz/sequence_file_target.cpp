// A changed file of a saved sequence: an error, or a sequence that can be continued.
//
// The first byte of an input says how it is taken. Bit 0: the rest is a file as it stands; else it is a list of edits
// to a real file of the embedded model (bit 2: one of version 3), each a position (u32, modulo the size), a kind and a
// byte: the kinds set, add to, cut at and lengthen; with bit 2 of the kind positions are counted from the first token
// on. Bit 1: the checksums are made right afterwards, as far as the file can be told apart.
//
// Every number of an accepted file is checked or used: written again it is the same file, but for the version.
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/model/sequence_file.h"
#include "tests/engine/saved_sequence.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temp_folder.h"

namespace troupe::fuzz {
namespace {

constexpr std::uint32_t kNumTokens = 75, kNumComputed = 70;
constexpr std::size_t kNumTokensAt = 44, kIdBytesAt = 12, kNumAnchorsAt = 52;  // engine/model/sequence_file.h
constexpr std::size_t kVersionAt = 8, kFixedBytes = 64, kDigestBytes = 16, kChecksumBytes = 4;
constexpr std::size_t kMostBytes = 1u << 20;

template <class T>
T number_at(const std::string& bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::size_t digest_bytes(const std::string& bytes) {
  return number_at<std::uint32_t>(bytes, kVersionAt) > 3 ? kDigestBytes : 0;
}

// From `begin` to `end`, where the checksum stands.
void correct_checksum(std::string& bytes, std::size_t begin, std::size_t end) {
  const auto sum =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + begin), end - begin));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
}

void correct_checksums(std::string& bytes) {
  if (bytes.size() < kFixedBytes + 2 * kChecksumBytes) return;
  const std::uint64_t sums = kFixedBytes + digest_bytes(bytes) +
                             std::uint64_t{number_at<std::uint32_t>(bytes, kIdBytesAt)} +
                             std::uint64_t{number_at<std::uint32_t>(bytes, kNumTokensAt)} * sizeof(TokenId) +
                             std::uint64_t{number_at<std::uint32_t>(bytes, kNumAnchorsAt)} * 12;
  if (sums + 2 * kChecksumBytes > bytes.size()) return;
  correct_checksum(bytes, 0, sums);
  correct_checksum(bytes, sums + kChecksumBytes, bytes.size() - kChecksumBytes);
}

class SequenceFileRun {
 public:
  SequenceFileRun() {
    engine::LoadOptions options;
    options.kernels = "scalar";
    options.num_blocks = 16;
    options.context = 128;
    const auto loaded = engine::LoadedModel::load(TROUPE_MODELS "/tales-5m-tq2_0.gguf", options);
    TROUPE_ASSERT(loaded);
    model_ = *loaded;
    engine::Executor executor(*model_, team_);
    engine::SequenceSpec spec{.id = 1, .tokens = {}, .tables = {{0, 1, 2}}, .sampling = {}};
    for (std::uint32_t i = 0; i < kNumTokens; ++i) spec.tokens.push_back(static_cast<TokenId>(300 + i * 7));
    executor.open(spec);
    engine::StepResult result;
    executor.step({.items = {{.sequence = 1, .num_tokens = kNumComputed, .new_blocks = {}}}}, result);
    TROUPE_ASSERT(test::save_sequence(path_, *model_, executor, 1));
    real_ = read_back();
    TROUPE_ASSERT(real_.size() > kFixedBytes);
    old_ = test::as_version_3(real_);
  }

  void run(Input input) {
    const std::uint8_t mode = input.byte();
    std::string bytes = mode & 1 ? std::string(input.rest()) : edited(mode & 4 ? old_ : real_, input);
    if (mode & 2) correct_checksums(bytes);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    auto file = engine::SequenceFile::open(test::directory_of(path_), "sequence");
    if (!file) return check_message(file.error().message);
    check(*file, bytes);
  }

 private:
  static std::string edited(const std::string& real, Input& input) {
    std::string bytes = real;
    while (!input.empty()) {
      std::size_t position = input.number<std::uint32_t>();
      const std::uint8_t kind = input.byte(), value = input.byte();
      if (kind & 4) position += kFixedBytes + digest_bytes(real) + number_at<std::uint32_t>(real, kIdBytesAt);
      position %= bytes.size() + 1;
      if (kind % 4 == 2) bytes.resize(position);
      if (kind % 4 == 3) bytes.resize(std::min(bytes.size() + std::size_t{value} * 64, kMostBytes), 'x');
      if (position >= bytes.size()) continue;
      if (kind % 4 == 0) bytes[position] = static_cast<char>(value);
      if (kind % 4 == 1) bytes[position] = static_cast<char>(bytes[position] + value);
    }
    return bytes;
  }

  void check(engine::SequenceFile& file, const std::string& bytes) {
    const engine::SequenceRecord& record = file.record();
    TROUPE_ASSERT(!record.tokens.empty() && file.num_computed() <= record.tokens.size());
    TROUPE_ASSERT(file.anchors() == cache::anchors_of(record.tokens));
    for (const TokenId id : record.tokens) TROUPE_ASSERT(id >= 0);
    for (const char c : record.numerics_id) TROUPE_ASSERT(c > ' ' && c <= '~');
    (void)file.check_contents();
    TROUPE_ASSERT(file.file_bytes() == bytes.size());
    is_old_ = file.version() < engine::kSequenceFileVersion;
    TROUPE_ASSERT(bytes.size() + (is_old_ ? kDigestBytes : 0) ==
                  engine::sequence_file_bytes(record, file.content_bytes()));
    if (const Status fits = file.check(*model_); !fits) return check_message(fits.error().message);
    const engine::ModelInfo& info = model_->info();
    TROUPE_ASSERT(record.tokens.size() <= info.context);
    for (const TokenId id : record.tokens) TROUPE_ASSERT(static_cast<std::uint32_t>(id) < info.vocab_size);
    if (file.num_computed() == 0) return check_written_again(record, nullptr, bytes);
    engine::SequenceImage image(*model_, file.num_computed());
    if (const Status read = file.read(image); !read) return check_message(read.error().message);
    check_written_again(record, &image, bytes);
    if (record.tokens.size() == info.context) return;  // there is no place for another token
    BlockTables tables(1, BlockTable(blocks_for(static_cast<std::uint32_t>(record.tokens.size() + 1))));
    for (std::size_t i = 0; i < tables[0].size(); ++i) tables[0][i] = static_cast<BlockId>(i);
    engine::Executor executor(*model_, team_);
    TROUPE_ASSERT(test::continue_sequence(file, *model_, executor, 1, tables, {7}));
    engine::StepResult result;
    const std::uint32_t left = executor.num_known(1) - executor.num_computed(1);
    executor.step({.items = {{.sequence = 1, .num_tokens = left, .output = engine::Output::sample, .new_blocks = {}}}},
                  result);
    for (const engine::SampledToken& token : result.items.at(0).tokens)
      TROUPE_ASSERT(token.id >= 0 && static_cast<std::uint32_t>(token.id) < info.vocab_size);
  }

  void check_written_again(const engine::SequenceRecord& record, const engine::SequenceImage* image,
                           const std::string& bytes) {
    TROUPE_ASSERT(engine::write_sequence(test::directory_of(path_), "sequence", record, image));
    const std::string written = read_back();
    TROUPE_ASSERT((is_old_ ? test::as_version_3(written) : written) == bytes);
  }

  std::string read_back() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  engine::Team team_{1};
  std::shared_ptr<engine::LoadedModel> model_;
  test::TempFolder folder_;
  std::string path_ = folder_.path("sequence");
  std::string real_, old_;
  bool is_old_ = false;  // the file that is checked: version 3, which is not written
};

}  // namespace
}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static troupe::fuzz::SequenceFileRun run;
  run.run(troupe::fuzz::Input(data, size));
  return 0;
}
