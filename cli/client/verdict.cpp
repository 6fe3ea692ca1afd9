#include "cli/client/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/client/comparison.h"
#include "config/sampling/sampling_numbers.h"
#include "scheduler/shares/admission.h"

namespace troupe::cli {
namespace {

using scheduler::Outcome;

// Of a list so many entries are shown.
constexpr std::size_t kMostShown = 8;

// "(300: -inf, 337: 3)", or with " and 12 more" at its end.
template <class Entries, class Word>
std::string listed(const Entries& entries, Word&& word) {
  std::vector<std::string> words;
  for (const auto& each : entries) {
    if (words.size() == kMostShown) break;
    words.push_back(word(each));
  }
  const std::size_t more = entries.size() - words.size();
  return fmt::format("({}{})", fmt::join(words, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string stops(const actors::Proof& proof) {
  std::vector<std::string> parts;
  if (const auto& ids = proof.sampling.stop_ids; !ids.empty())
    parts.push_back("stop_ids " + listed(ids, [](TokenId id) { return fmt::format("{}", id); }));
  if (const auto& texts = proof.stop_strings; !texts.empty())
    parts.push_back("stop " + listed(texts, [](const std::string& text) { return fmt::format("\"{}\"", text); }));
  return fmt::format("{}", fmt::join(parts, " and "));
}

// "the form json_schema of 345 bytes"
std::string form_of(const actors::AnswerForm& form) {
  const engine::constraints::Constraint& constraint = form.constraint();
  const std::size_t bytes = engine::constraints::bytes_of(constraint);
  return fmt::format("the form {}{}", engine::constraints::kConstraintKinds[static_cast<std::size_t>(constraint.kind)],
                     bytes > 0 ? fmt::format(" of {} bytes", bytes) : "");
}

bool is_stopped(const actors::Proof& proof) {
  return proof.outcome == Outcome::stop_id || proof.outcome == Outcome::stop_string;
}

}  // namespace

std::string proved_for(const actors::Proof& proof) {
  const engine::SamplingParams& sampling = proof.sampling;
  const engine::SamplingParams neutral;
  std::vector<std::string> parts{fmt::format("the model {}", actors::parts_of(proof.numerics_id).model_hash),
                                 fmt::format("a prompt of {} tokens", proof.prompt->size()),
                                 fmt::format("temperature {}", sampling.temperature)};
  if (!sampling.is_greedy()) {
    parts.push_back(fmt::format("seed {}", sampling.seed));
    if (sampling.choice > 0) parts.push_back(fmt::format("choice {}", sampling.choice));
  }
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, const auto& value, const auto& usual) {
        if (number.name == config::kTemperature.name || value == usual || (number.only_draws && sampling.is_greedy()))
          return;
        parts.push_back(fmt::format("{} {}", number.name, value));
      },
      sampling, neutral);
  if (sampling.ignore_eos) parts.push_back("ignore_eos");
  if (sampling.min_tokens > 0) parts.push_back(fmt::format("min_tokens {}", sampling.min_tokens));
  if (!proof.begins_with.empty()) parts.push_back(fmt::format("begins_with \"{}\"", proof.begins_with));
  if (proof.form) parts.push_back(form_of(*proof.form));
  if (sampling.reasoning_budget)
    parts.push_back(fmt::format("reasoning_budget {}", sampling.reasoning_budget->num_tokens));
  if (!sampling.logit_bias.empty())
    parts.push_back(fmt::format(
        "logit_bias of {} ids {}", sampling.logit_bias.size(),
        listed(sampling.logit_bias, [](const auto& bias) { return fmt::format("{}: {}", bias.first, bias.second); })));
  if (provable_end(proof) == Outcome::length) parts.push_back(fmt::format("max_tokens {}", provable_tokens(proof)));
  if (is_stopped(proof)) parts.push_back(stops(proof));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string not_proved(const actors::Proof& proof, std::string_view name) {
  std::vector<std::string> parts;
  if (proof.model != name)
    parts.push_back(fmt::format("the name \"{}\" (here the model with this hash is \"{}\")", proof.model, name));
  if (provable_end(proof) != proof.outcome)
    parts.push_back(fmt::format("the end by {} ({}; the answer goes on)", scheduler::info(proof.outcome).name,
                                proof.outcome == Outcome::tool_call ? "behind the last call that its request allowed"
                                                                    : "it came from outside"));
  else if (proof.outcome != Outcome::length && !proof.form && proof.sampling.max_tokens != scheduler::kUnlimitedTokens)
    parts.push_back(fmt::format("max_tokens {} (it was not reached)", proof.sampling.max_tokens));
  if (proof.sampling.is_greedy()) parts.push_back("seed and choice (at temperature 0 nothing is drawn)");
  if (!proof.recomputed_from.empty())
    parts.push_back(fmt::format("that the conversation in the prompt was computed under numerics {} before",
                                proof.recomputed_from));
  if (!proof.sampling.logit_bias.empty()) parts.push_back("that each entry of logit_bias changed the answer");
  if (const std::string unmet = stops(proof); !unmet.empty())
    parts.push_back(is_stopped(proof) ? "those of the stops that the answer does not meet"
                                      : unmet + " (the answer meets none)");
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace troupe::cli
