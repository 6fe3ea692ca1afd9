// What an answer of a model is made with where its request says nothing: a [model.defaults] table, LoadModel's and its
// clients' (`model load`), and what the model's own file names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/sampling/sampling_numbers.h"

namespace troupe::config {

inline constexpr std::size_t kMaxSystemPromptBytes = 16'384;

// What is absent or empty is as the protocols have it.
struct ModelDefaults : SomeSamplingNumbers {
  std::string reasoning{};                         // one of reasoning_efforts(): "none" is without
  std::optional<std::int64_t> reasoning_budget{};  // most tokens of it
  std::string system{};                            // the first message of a conversation without one of that role
  friend bool operator==(const ModelDefaults&, const ModelDefaults&) = default;

  [[nodiscard]] bool empty() const { return *this == ModelDefaults{}; }
};

// "none", "minimal", "low", ...: as OpenAI's reasoning_effort.
[[nodiscard]] std::span<const std::string_view> reasoning_efforts();

// What is wrong with them, with the key's name: "temp is -1; it must be ...". Empty: nothing.
[[nodiscard]] std::string problem_of(const ModelDefaults& defaults);

// `own`, and what it lacks from `others`.
[[nodiscard]] ModelDefaults with_fallback(ModelDefaults own, const ModelDefaults& others);

}  // namespace troupe::config
