#include "tests/fuzz/gguf_run.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "config/assert.h"
#include "engine/evaluation/eval.h"
#include "engine/model/encoder.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::fuzz {
namespace {

constexpr std::string_view kBeginning("GGUF\3\0\0\0", 8);  // magic number and version

std::string part_name(std::size_t number, std::size_t count) {
  return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
}

}  // namespace

GgufRun::GgufRun(std::uint64_t max_memory) {
  options_.kernels = "scalar";
  options_.memory = max_memory;
  options_.max_sequences = 1;
  options_.team = &team_;
  for (std::size_t count = 2; count <= kMaxParts; ++count)
    for (std::size_t i = 0; i < count; ++i)
      std::filesystem::create_symlink(files_[i].path(), names_.path(part_name(i + 1, count)));
}

std::string GgufRun::write(std::string_view bytes) const {
  std::size_t count = 0;
  while (!bytes.empty() || count == 0) {
    const bool is_last = count + 1 == kMaxParts;
    const std::string_view part = is_last ? bytes : bytes.substr(0, bytes.find(kBeginning, 1));
    files_[count++].write(part);
    bytes.remove_prefix(part.size());
  }
  return count == 1 ? files_[0].path() : names_.path(part_name(1, count));
}

bool GgufRun::run(std::string_view bytes) {
  const std::string path = write(bytes);
  const auto model = engine::LoadedModel::load(path, options_);
  const bool is_other = !model && model.error().code == ErrorCode::unsupported;
  const auto encoder = is_other ? engine::Encoder::load(path, options_)
                                : Result<std::shared_ptr<const engine::Encoder>>(Error{ErrorCode::unsupported, ""});
  // A loaded model does not read its file: if it did, this would be the end of the process.
  for (const test::TemporaryFile& file : files_) file.write("");
  if (model) {
    step(**model);
    return true;
  }
  if (encoder) {
    encode(**encoder);
    return true;
  }
  if (is_other) check_message(encoder.error().message);
  error_ = model.error();
  check_message(error_.message);
  return false;
}

void GgufRun::encode(const engine::Encoder& encoder) {
  const engine::ModelInfo& info = encoder.info();
  std::vector<TokenId> tokens = {0, static_cast<TokenId>(info.vocab_size - 1), 0};
  tokens.resize(std::min<std::size_t>(tokens.size(), info.context));
  const std::span<const TokenId> texts[] = {tokens, std::span(tokens).first(1)};
  std::vector<float> rows(2 * info.dim);
  engine::Workspace workspace;
  encoder.encode(team_, texts, {encoder.pooling(), true}, workspace, rows.data());
  if (encoder.tokenizer()) (void)encoder.tokenizer()->encode("Once upon [CLS]a\n time, \xE4\xB8\xAD 42", {});
}

void GgufRun::step(const engine::LoadedModel& model) {
  const engine::ModelInfo& info = model.info();
  std::vector<TokenId> tokens = {0, static_cast<TokenId>(info.vocab_size - 1), 0};
  tokens.resize(std::min<std::size_t>(tokens.size(), info.context));
  auto logits = engine::evaluate(model, team_, tokens);
  TROUPE_ASSERT(logits);
  TROUPE_ASSERT(logits->size() == tokens.size() * info.vocab_size);
  engine::Sampler sampler(model.kernels(), {}, model.end_ids());
  const std::span<float> last = std::span(*logits).last(info.vocab_size);
  const engine::SampledToken token = sampler.sample(last, tokens.size());
  TROUPE_ASSERT(token.id >= 0 && static_cast<std::uint32_t>(token.id) < info.vocab_size);
  if (!model.tokenizer()) return;
  for (const TokenId id :
       model.tokenizer()->encode("Once upon <s>a\n time, \xE4\xB8\xAD 42", {.parse_special = true})) {
    TROUPE_ASSERT(id >= 0 && static_cast<std::uint32_t>(id) < info.vocab_size);
    (void)model.tokenizer()->piece(id);
  }
}

}  // namespace troupe::fuzz
