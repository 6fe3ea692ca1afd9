#include "engine/tokenizers/reasoning_markers.h"

#include <algorithm>
#include <array>

#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {
namespace {

struct KnownMarkers {
  std::string_view open, close;
  std::string_view token;   // of a vocabulary that has the pair
  std::string_view lead{};  // ReasoningMarkers::lead
};

constexpr std::array<KnownMarkers, 10> kKnown = {{
    {"<think>", "</think>", "</think>"},
    {"[THINK]", "[/THINK]", "[/THINK]"},                             // Magistral
    {"<seed:think>", "</seed:think>", "</seed:think>"},              // Seed-OSS
    {"<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|>"},  // Command A, Command R7B
    {"<|inner_prefix|>", "<|inner_suffix|>", "<|inner_suffix|>"},    // Apertus
    {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant", "<|channel|>",
     "<|channel|>final<|message|>"},                                    // gpt-oss
    {"\u25C1think\u25B7", "\u25C1/think\u25B7", "\u25C1/think\u25B7"},  // Kimi-VL
    {"<thought>", "</thought>", "</thought>"},                          // EXAONE Deep
    {"<reasoning>", "</reasoning>", "</reasoning>"},
    {"<thinking>", "</thinking>", "</thinking>"},
}};

std::vector<TokenId> encoded(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

bool has_token(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = encoded(tokenizer, text);
  return ids.size() == 1 && tokenizer.raw_piece(ids.front()) == text;
}

// Nothing is left of an answer that ends with its reasoning.
bool ends_answers(const Tokenizer& tokenizer, const KnownMarkers& markers) {
  return std::ranges::any_of(encoded(tokenizer, markers.close),
                             [&](TokenId id) { return tokenizer.is_end_of_generation(id); });
}

ReasoningMarkers markers_of(const KnownMarkers& known, const Tokenizer* tokenizer) {
  ReasoningMarkers markers{
      .open = std::string(known.open), .close = std::string(known.close), .lead = std::string(known.lead)};
  if (tokenizer == nullptr) return markers;
  std::vector<TokenId>& ids = markers.control_ids;
  for (const std::string_view text : {known.open, known.close, known.lead})
    for (const TokenId id : encoded(*tokenizer, text))
      if (tokenizer->kind(id) == TokenKind::control) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return markers;
}

}  // namespace

ReasoningMarkers find_reasoning_markers(std::string_view template_source, const Tokenizer* tokenizer) {
  const auto is_usable = [&](const KnownMarkers& each) {
    return tokenizer == nullptr || !ends_answers(*tokenizer, each);
  };
  for (const KnownMarkers& each : kKnown) {
    const bool is_written = template_source.find(each.open) != std::string_view::npos ||
                            template_source.find(each.close) != std::string_view::npos;
    if (is_written && is_usable(each)) return markers_of(each, tokenizer);
  }
  if (tokenizer != nullptr)
    for (const KnownMarkers& each : kKnown)
      if (has_token(*tokenizer, each.token) && is_usable(each)) return markers_of(each, tokenizer);
  return markers_of(kKnown.front(), tokenizer);
}

bool is_within_reasoning(std::string_view text) {
  return std::ranges::any_of(kKnown, [&](const KnownMarkers& each) {
    const std::size_t open = text.rfind(each.open);
    return open != std::string_view::npos && text.find(each.close, open) == std::string_view::npos;
  });
}

bool ends_with_reasoning(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  return std::ranges::any_of(kKnown, [&](const KnownMarkers& each) { return text.ends_with(each.close); });
}

}  // namespace troupe::engine
