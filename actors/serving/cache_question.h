// A question to the cache keeper: which anchors of a session are still cached.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cache/lease_book.h"

namespace troupe::actors {

// Answered exactly once: by the keeper, or unanswered (an empty list) when it is destroyed with a keeper's mailbox.
class CacheQuestion {
 public:
  using Done = std::function<void(std::vector<bool>)>;  // by anchor; any thread
  CacheQuestion(cache::ScopeList scopes, std::vector<std::uint64_t> hashes, Done done)
      : scopes_(scopes), hashes_(std::move(hashes)), done_(std::move(done)) {}
  ~CacheQuestion() {
    if (done_) done_({});
  }
  CacheQuestion(const CacheQuestion&) = delete;
  CacheQuestion& operator=(const CacheQuestion&) = delete;

  void answer(const cache::LeaseBook& book) {
    std::vector<bool> cached;
    for (const std::uint64_t hash : hashes_) cached.push_back(book.find_recyclable_range(scopes_, hash).has_value());
    std::exchange(done_, {})(std::move(cached));
  }

 private:
  cache::ScopeList scopes_;
  std::vector<std::uint64_t> hashes_;
  Done done_;
};

}  // namespace troupe::actors
