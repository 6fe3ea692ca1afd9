#include "tests/fuzz/gguf_run.h"

#include <algorithm>
#include <vector>

#include "config/assert.h"
#include "engine/evaluation/eval.h"
#include "engine/model/encoder.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::fuzz {

GgufRun::GgufRun(std::uint64_t max_memory) {
  options_.kernels = "scalar";
  options_.memory = max_memory;
  options_.max_sequences = 1;
  options_.team = &team_;
}

bool GgufRun::run(std::string_view bytes) {
  file_.write(bytes);
  const auto model = engine::LoadedModel::load(file_.path(), options_);
  const bool is_other = !model && model.error().code == ErrorCode::unsupported;
  const auto encoder = is_other ? engine::Encoder::load(file_.path(), options_)
                                : Result<std::shared_ptr<const engine::Encoder>>(Error{ErrorCode::unsupported, ""});
  // A loaded model does not read its file: if it did, this would be the end of the process.
  file_.write("");
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
