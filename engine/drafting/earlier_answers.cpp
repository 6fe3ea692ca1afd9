#include "engine/drafting/earlier_answers.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "config/assert.h"

namespace troupe::engine {

// The index, which is the one that was used last from now on; null: there is none.
EarlierAnswers::Index* EarlierAnswers::find(TenantId tenant, cache::ScopeId scope) {
  const auto found = std::ranges::find_if(
      indices_, [&](const Index& index) { return index.tenant == tenant && index.scope == scope; });
  if (found == indices_.end()) return nullptr;
  indices_.splice(indices_.begin(), indices_, found);
  return &indices_.front();
}

void EarlierAnswers::make_room() {
  if (indices_.size() < kMaxIndices) return;
  std::unordered_map<TenantId, std::size_t> counts;
  for (const Index& index : indices_) ++counts[index.tenant];
  const std::size_t most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->second;
  const auto last = std::find_if(indices_.rbegin(), indices_.rend(),
                                 [&](const Index& index) { return counts[index.tenant] == most; });
  indices_.erase(std::next(last).base());
}

void EarlierAnswers::learn(TenantId tenant, cache::ScopeId scope, std::span<const TokenId> tokens,
                           std::size_t num_answer) {
  TROUPE_ASSERT(num_answer <= tokens.size());
  if (num_answer == 0) return;
  const std::size_t most = std::min(tokens.size(), num_answer + kMaxBefore);
  tokens = tokens.last(most).first(std::min(most, kMaxTokens / 2 - 1));
  Index* index = find(tenant, scope);
  if (!index) {
    make_room();
    index = &indices_.emplace_front();
    index->tenant = tenant;
    index->scope = scope;
    index->number = ++last_number_;
  }
  if (index->text.size() + tokens.size() + 1 > kMaxTokens) {
    index->text.erase(index->text.begin(), index->text.end() - static_cast<std::ptrdiff_t>(kMaxTokens / 2));
    index->automaton.clear();
    index->number = ++last_number_;
  }
  index->text.insert(index->text.end(), tokens.begin(), tokens.end());
  index->text.push_back(kEnd);
}

void EarlierAnswers::index(std::size_t& room) {
  for (Index& index : indices_) {
    for (; index.automaton.size() < index.text.size(); --room) {
      if (room == 0) return;
      index.automaton.push(index.text[index.automaton.size()]);
    }
  }
}

std::size_t EarlierAnswers::propose(TenantId tenant, cache::ScopeId scope, std::span<const TokenId> tokens,
                                    std::size_t most, Reader& reader, std::vector<TokenId>& out) {
  out.clear();
  const Index* index = find(tenant, scope);
  if (!index) return 0;
  const SuffixAutomaton& automaton = index->automaton;
  if (reader.text != index->number || reader.text_size != automaton.size() || reader.num_read > tokens.size())
    reader = {.text = index->number,
              .text_size = automaton.size(),
              .num_read = tokens.size() - std::min(tokens.size(), kMaxMatch)};
  while (reader.num_read < tokens.size()) automaton.read(tokens[reader.num_read++], reader.place);
  const SuffixAutomaton::Match match = automaton.match(reader.place);
  if (match.length < kMinMatch) return 0;
  for (std::size_t i = match.end; i < automaton.size() && out.size() < most && index->text[i] != kEnd; ++i)
    out.push_back(index->text[i]);
  return out.empty() ? 0 : match.length;
}

std::size_t EarlierAnswers::memory_bytes() const {
  std::size_t bytes = 0;
  for (const Index& index : indices_)
    bytes += sizeof(Index) + index.text.capacity() * sizeof(TokenId) + index.automaton.memory_bytes();
  return bytes;
}

}  // namespace troupe::engine
