// A question to the cache keeper: which anchors of a session are still cached.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "cache/lease_book.h"

namespace troupe::actors {

// Answered by one call of answer() or answer_unknown(), on any thread.
class CacheQuestion {
 public:
  using Done = std::function<void(std::vector<bool>)>;  // by anchor; empty: it is not known
  CacheQuestion(cache::ScopeList scopes, std::vector<std::uint64_t> hashes, Done done)
      : scopes_(scopes), hashes_(std::move(hashes)), done_(std::move(done)) {}
  CacheQuestion(const CacheQuestion&) = delete;
  CacheQuestion& operator=(const CacheQuestion&) = delete;

  void answer(const cache::LeaseBook& book) const {
    std::vector<bool> cached;
    for (const std::uint64_t hash : hashes_) cached.push_back(book.find_recyclable_range(scopes_, hash).has_value());
    done_(std::move(cached));
  }
  // There is no keeper.
  void answer_unknown() const { done_({}); }

 private:
  const cache::ScopeList scopes_;
  const std::vector<std::uint64_t> hashes_;
  const Done done_;
};

}  // namespace troupe::actors
