#include "engine/tokenizers/special_tokens.h"

#include "config/assert.h"

namespace troupe::engine {

void SpecialTokens::add(std::string_view text, TokenId id, bool on_request) {
  TROUPE_ASSERT(!text.empty());
  begins_[static_cast<std::uint8_t>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [edge_to, is_new] = edges_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    node = edge_to->second;
  }
  if (nodes_[node].id < 0) nodes_[node] = {id, on_request};
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from, bool all,
                                                        Interrupt& interrupt) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    interrupt.poll();
    if (!begins_[static_cast<std::uint8_t>(text[begin])]) continue;
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size(); ++end) {
      interrupt.poll();
      const auto next = edges_.find(edge(node, text[end]));
      if (next == edges_.end()) break;
      node = next->second;
      const Node& here = nodes_[node];
      if (here.id >= 0 && (all || !here.on_request)) longest = Match{here.id, begin, end + 1 - begin};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace troupe::engine
