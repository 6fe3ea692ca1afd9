// What a tenant's earlier answers say after the end of a text: the same question again, or another one about the same
// things, is often answered in the same words.
//
// Each tenant and scope has an index of its own (SuffixAutomaton over the answers, one after the other), and proposals
// come from no other, so that they say nothing of what others ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "cache/scope.h"
#include "engine/drafting/suffix_automaton.h"

namespace troupe::engine {

// Not thread-safe.
class EarlierAnswers {
 public:
  // Of the tokens before an answer, these many are kept with it: where its first words are looked up.
  static constexpr std::size_t kMaxBefore = 16;
  static constexpr std::size_t kMinMatch = 3;
  static constexpr std::size_t kMaxMatch = 32;
  static constexpr std::size_t kMaxTokens = 16'384;  // of an index; with one more it begins again with the last half
  // When there are so many indices, the next one replaces the one that was used least recently of the tenant with most.
  static constexpr std::size_t kMaxIndices = 16;

  // `tokens`: the end of a prompt, of which the last kMaxBefore are kept, and an answer of num_answer tokens.
  // O(num_answer); they are found once index() has come to them.
  void learn(TenantId tenant, cache::ScopeId scope, std::span<const TokenId> tokens, std::size_t num_answer);
  // Indexes at most `room` of the learned tokens, which becomes what is left of it; about a microsecond each.
  void index(std::size_t& room);
  // How far one sequence was read.
  struct Reader {
    std::uint64_t text = 0;     // Index::number when it was read; 0: not yet
    std::size_t text_size = 0;  // of what was indexed then
    std::size_t num_read = 0;   // tokens of the sequence
    SuffixAutomaton::Place place{};
  };
  // As Drafter::propose(); a proposal ends where the earlier answer ended. `reader` is the sequence's own, empty at
  // first: as long as the answers stay the same, a call reads the tokens that are new since the last one. Else it looks
  // for the last kMaxMatch. O(tokens read + most + kMaxIndices).
  std::size_t propose(TenantId tenant, cache::ScopeId scope, std::span<const TokenId> tokens, std::size_t most,
                      Reader& reader, std::vector<TokenId>& out);
  [[nodiscard]] std::size_t memory_bytes() const;
  [[nodiscard]] std::size_t num_indices() const { return indices_.size(); }

 private:
  struct Index {
    TenantId tenant{};
    cache::ScopeId scope{};
    std::uint64_t number = 0;   // another one after each beginning of the text was dropped
    std::vector<TokenId> text;  // kEnd after each answer
    SuffixAutomaton automaton;  // of the beginning of `text`
  };
  static constexpr TokenId kEnd = -1;

  [[nodiscard]] Index* find(TenantId tenant, cache::ScopeId scope);
  void make_room();

  std::uint64_t last_number_ = 0;
  std::list<Index> indices_;  // the one that was used last first
};

}  // namespace troupe::engine
