// What is needed to prove an answer: to compute it again and compare (docs/verification.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/requests/answer_form.h"
#include "cache/ids.h"
#include "engine/sampling/sampler.h"
#include "scheduler/outcome.h"

namespace troupe::actors {

// Where the text of an answer may match a stop string.
enum class StopScope : std::uint8_t {
  text,             // anywhere
  answer,           // behind the model's reasoning, if it begins with that, or its prompt ends where that begins
  behind_reasoning  // likewise, and the prompt ends within reasoning
};

struct Proof {
  std::string numerics_id{};  // under which it was computed
  std::string model{};        // the name under which it was served
  std::shared_ptr<const std::vector<TokenId>> prompt{};
  // As used: with the seed, the choice, and in max_tokens what the context left of the request's, or kUnlimitedTokens
  // for an answer that was cut before anything counted.
  engine::SamplingParams sampling{};
  std::vector<std::string> stop_strings{};
  StopScope stop_scope = StopScope::text;
  std::string begins_with{};                 // that it had to, behind its reasoning, as text (Request::begins_with)
  std::vector<TokenId> shown_ids{};          // ascending: control tokens whose text is in `text`
  std::shared_ptr<const AnswerForm> form{};  // that it had to have; null: any
  std::vector<TokenId> ids{};                // the answer
  std::string text{};
  scheduler::Outcome outcome = scheduler::Outcome::internal;
  std::string stop{};             // the stop string that matched
  std::string recomputed_from{};  // End::recomputed_from: nothing that is proved depends on it
};

// The parts of a numerics_id (docs/numerics.md); empty where it has too few.
struct NumericsParts {
  std::string_view recipe, kernels, kv_type;
  std::string_view model_hash;  // of the contents of the model's file
  std::string_view states;      // "s512": recurrent states are rounded every 512 positions; empty: they are not
};
[[nodiscard]] constexpr NumericsParts parts_of(std::string_view numerics_id) {
  NumericsParts parts;
  for (std::string_view* const part :
       {&parts.recipe, &parts.kernels, &parts.kv_type, &parts.model_hash, &parts.states}) {
    const std::size_t end = std::min(numerics_id.find('-'), numerics_id.size());
    *part = numerics_id.substr(0, end);
    numerics_id.remove_prefix(std::min(end + 1, numerics_id.size()));
  }
  return parts;
}

}  // namespace troupe::actors
