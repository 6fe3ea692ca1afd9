#include "engine/constraints/token_trie.h"

#include <algorithm>
#include <bit>

namespace troupe::engine::constraints {
namespace {

struct TokenText {
  std::string_view bytes;
  TokenId id;
  std::size_t num_characters;
};

// `texts` ascend, each once.
std::vector<TokenTrie::Node> trie_of(const std::vector<TokenText>& texts) {
  std::vector<TokenTrie::Node> nodes;
  std::vector<std::size_t> path;  // the nodes of the text before
  const auto close = [&](std::size_t depth) {
    while (path.size() > depth) {
      TokenTrie::Node& node = nodes[path.back()];
      node.behind = static_cast<std::uint32_t>(nodes.size());
      path.pop_back();
      if (!path.empty()) {
        TokenTrie::Node& above = nodes[path.back()];
        above.max_characters = std::max(above.max_characters, node.max_characters);
      }
    }
  };
  std::string_view before;
  for (const TokenText& text : texts) {
    const auto shared = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), text.bytes.begin(), text.bytes.end()).first - before.begin());
    close(shared);
    for (std::size_t at = shared; at < text.bytes.size(); ++at) {
      path.push_back(nodes.size());
      nodes.push_back({0, TokenTrie::Node::kNoToken, static_cast<std::uint16_t>(at + 1),
                       static_cast<std::uint8_t>(text.bytes[at]), 0});
    }
    nodes[path.back()].token = text.id;
    nodes[path.back()].max_characters = static_cast<std::uint8_t>(std::min<std::size_t>(text.num_characters, 255));
    before = text.bytes;
  }
  close(0);
  return nodes;
}

// The number of nodes for a byte that no token begins with.
std::array<std::uint32_t, 256> roots_of(const std::vector<TokenTrie::Node>& nodes) {
  std::array<std::uint32_t, 256> roots;
  roots.fill(static_cast<std::uint32_t>(nodes.size()));
  for (std::uint32_t at = 0; at < nodes.size(); at = nodes[at].behind) roots[nodes[at].byte] = at;
  return roots;
}

}  // namespace

std::size_t TokenMask::count() const {
  std::size_t count = 0;
  for (const std::uint64_t word : words_) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

TokenTrie::TokenTrie(const std::vector<std::string>& pieces) : num_tokens_(pieces.size()) {
  std::vector<TokenText> texts;
  for (std::size_t id = 0; id < pieces.size(); ++id)
    // Longer ones than a node's depth can say are never written.
    if (!pieces[id].empty() && pieces[id].size() <= UINT16_MAX)
      texts.push_back({pieces[id], static_cast<TokenId>(id), 0});
  std::stable_sort(texts.begin(), texts.end(),
                   [](const TokenText& a, const TokenText& b) { return a.bytes < b.bytes; });
  std::vector<TokenText> by_kind[kNumTextKinds], others;
  all_of_.assign(kNumTextKinds * (kMaxTextDepth + 1), TokenMask(num_tokens_));
  ByteSet single;
  for (std::size_t at = 0; at < texts.size(); ++at) {
    TokenText& text = texts[at];
    max_token_bytes_ = std::max(max_token_bytes_, text.bytes.size());
    if (text.bytes.size() == 1) single.add(static_cast<std::uint8_t>(text.bytes.front()));
    const std::optional<KindOfText> kind = kind_of_text(text.bytes);
    if (kind) {
      text.num_characters = kind->num_characters;
      for (std::size_t each = static_cast<std::size_t>(kind->kind); each < kNumTextKinds; ++each) {
        TokenMask* const masks = &all_of_[each * (kMaxTextDepth + 1)];
        for (std::size_t length = kind->num_characters; length <= kMaxTextDepth; ++length)
          masks[length - 1].allow(text.id);
        masks[kMaxTextDepth].allow(text.id);
      }
    }
    if (at > 0 && texts[at - 1].bytes == text.bytes) {
      // Of several the first stands in the tries.
      const TokenId first =
          !doubles_.empty() && doubles_.back().second == texts[at - 1].id ? doubles_.back().first : texts[at - 1].id;
      doubles_.emplace_back(first, text.id);
      continue;
    }
    (kind ? by_kind[static_cast<std::size_t>(kind->kind)] : others).push_back(text);
  }
  const ByteSet of_no_text = ByteSet::of(0xC0) | ByteSet::of(0xC1) | ByteSet::range(0xF5, 0xFF);
  has_every_byte_ = (single | of_no_text) == ByteSet::all();
  for (std::size_t kind = 0; kind < kNumTextKinds; ++kind) of_kind_[kind] = trie_of(by_kind[kind]);
  others_ = trie_of(others);
  for (std::size_t kind = 0; kind < kNumTextKinds; ++kind) roots_.push_back(roots_of(of_kind_[kind]));
  roots_.push_back(roots_of(others_));
}

TokenTrie TokenTrie::of(const Tokenizer& tokenizer, const MarkTokens& marks) {
  std::vector<std::string> pieces(tokenizer.size());
  for (std::uint32_t id = 0; id < tokenizer.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const TokenKind kind = tokenizer.kind(token);
    if (!tokenizer.is_end_of_generation(token) &&
        (kind == TokenKind::normal || kind == TokenKind::user_defined || kind == TokenKind::byte))
      pieces[id] = tokenizer.piece(token);
    if (!marks.marks().empty() && pieces[id].find(MarkTokens::kFirstByte) != std::string::npos) pieces[id].clear();
  }
  for (const MarkTokens::Mark& mark : marks.marks()) pieces[static_cast<std::size_t>(mark.id)] = mark.bytes;
  return TokenTrie(pieces);
}

const TokenMask& TokenTrie::all_of(TextKind kind, std::uint8_t max_characters) const {
  const std::size_t length = max_characters == kEveryDepth ? kMaxTextDepth : std::size_t{max_characters} - 1;
  return all_of_[static_cast<std::size_t>(kind) * (kMaxTextDepth + 1) + length];
}

std::pair<TokenId, std::size_t> TokenTrie::longest_of(std::string_view text) const {
  std::pair<TokenId, std::size_t> best{Node::kNoToken, 0};
  if (text.empty()) return best;
  const auto search = [&](const std::vector<Node>& nodes, const std::array<std::uint32_t, 256>& roots) {
    std::size_t depth = 1;
    for (std::size_t at = roots[static_cast<std::uint8_t>(text.front())];
         at < nodes.size() && depth <= text.size() && nodes[at].depth == depth;) {
      if (nodes[at].byte != static_cast<std::uint8_t>(text[depth - 1])) {
        at = nodes[at].behind;
        continue;
      }
      if (nodes[at].token != Node::kNoToken && depth > best.second) best = {nodes[at].token, depth};
      ++depth;
      ++at;
    }
  };
  for (std::size_t kind = 0; kind < kNumTextKinds; ++kind) search(of_kind_[kind], roots_[kind]);
  search(others_, roots_.back());
  return best;
}

std::size_t TokenTrie::tokens_to_write(std::string_view text) const {
  std::size_t count = 0;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(1, longest_of(text).second);
    text.remove_prefix(length);
    ++count;
  }
  return count;
}

}  // namespace troupe::engine::constraints
