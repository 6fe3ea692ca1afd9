// Vectors of texts from language models.
#include <cstring>

#include "engine/evaluation/eval.h"
#include "engine/memory/workspace.h"
#include "engine/model/hidden_states.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::HiddenStates;
using engine::Pooling;
using engine::Team;

std::vector<float> vectors_of(const HiddenStates& states, Team& team, const std::vector<std::vector<TokenId>>& texts,
                              const engine::PoolingOptions& options) {
  std::vector<std::span<const TokenId>> spans(texts.begin(), texts.end());
  engine::Workspace workspace;
  std::vector<float> rows(texts.size() * states.info().dim);
  states.encode(team, spans, options, workspace, rows.data());
  return rows;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST_CASE("the last hidden state is the one that the next token's logits come from, in every family, batch and step") {
  for (const std::string name : {"llama-F32", "gemma3-F32", "olmoe-F32", "mamba-F32", "rwkv7-F32", "falcon-h1-F32",
                                 "lfm2-F32", "deci-F32", "qwen35-F32"}) {
    const auto path = golden_model(name);
    if (!path) return;
    INFO(name);
    Team team(2), alone(1);
    const std::shared_ptr<const engine::LoadedModel> model = load_model(*path, "");
    const HiddenStates states(model);
    const engine::PoolingOptions last{Pooling::last, false};
    const std::uint32_t vocab_size = model->info().vocab_size;
    // More than a step, and more than the windows of gemma3.
    const std::vector<std::vector<TokenId>> texts = {random_tokens(600, vocab_size, 1),
                                                     random_tokens(3, vocab_size, 2)};
    const auto rows = vectors_of(states, team, texts, last);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::span<const float> row(rows.data() + i * model->info().dim, model->info().dim);
      CHECK(same_bits(vectors_of(states, alone, {texts[i]}, last), row));
      const auto logits = *engine::evaluate(*model, team, texts[i]);
      std::vector<float> of_row(vocab_size);
      engine::Workspace workspace;
      model->model().head(team, row.data(), 1, workspace, of_row.data());
      CHECK(same_bits(of_row, std::span(logits).last(vocab_size)));
    }
  }
}

TEST_CASE("the first token's state is the same before any text, and the mean takes in all steps of a long one") {
  const auto path = golden_model("rwkv7-F32");
  if (!path) return;
  Team team(2);
  const std::shared_ptr<const engine::LoadedModel> model = load_model(*path, "");
  const HiddenStates states(model);
  const std::size_t dim = model->info().dim;
  const auto text = random_tokens(1020, model->info().vocab_size, 4);  // two steps
  const auto first = vectors_of(states, team, {text}, {Pooling::cls, false});
  CHECK(same_bits(first, vectors_of(states, team, {{text[0]}}, {Pooling::last, false})));
  // The mean of the first n tokens grows by the last one's share.
  std::vector<double> sum(dim);
  for (const std::size_t length : {1017u, 1018u, 1019u, 1020u}) {
    const std::vector<TokenId> part(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    const auto mean = vectors_of(states, team, {part}, {Pooling::mean, false});
    const auto last = vectors_of(states, team, {part}, {Pooling::last, false});
    for (std::size_t i = 0; i < dim; ++i) {
      const double total = double{mean[i]} * static_cast<double>(length);
      if (length != 1017) CHECK(total - sum[i] == Approx(double{last[i]}).margin(2e-3));
      sum[i] = total;
    }
  }
}

TEST_CASE("the mean is that of all tokens' states, and vectors have length 1 if they are to") {
  const auto path = golden_model("llama-F32");
  if (!path) return;
  Team team(2);
  const std::shared_ptr<const engine::LoadedModel> model = load_model(*path, "");
  const HiddenStates states(model);
  const auto text = random_tokens(5, model->info().vocab_size, 3);
  const std::size_t dim = model->info().dim;
  std::vector<double> sum(dim);
  for (std::size_t length = 1; length <= text.size(); ++length) {
    const auto row = vectors_of(states, team, {{text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length)}},
                                {Pooling::last, false});
    for (std::size_t i = 0; i < dim; ++i) sum[i] += double{row[i]};
  }
  const auto mean = vectors_of(states, team, {text}, {Pooling::mean, false});
  for (std::size_t i = 0; i < dim; ++i) CHECK(mean[i] == Approx(sum[i] / 5).epsilon(1e-5).margin(1e-6));
  const auto unit = vectors_of(states, team, {text}, {Pooling::mean, true});
  double squares = 0;
  for (const float x : unit) squares += double{x} * double{x};
  CHECK(squares == Approx(1).epsilon(1e-5));
  CHECK(states.max_tokens() <= engine::kMaxHiddenTokens);
}

}  // namespace
}  // namespace troupe::test
