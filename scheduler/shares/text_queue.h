// Texts that wait for a thread to encode or decode them, conversations that wait to be rendered, and forms of answers
// that wait to be compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "scheduler/shares/turn_list.h"

namespace troupe::scheduler {

// Texts up to this size are small: at most about 10 ms of one thread.
inline constexpr std::uint64_t kMaxSmallTextBytes = 16u << 10;
inline constexpr std::uint64_t kMaxSmallTextNs = 10'000'000;

// Small and large texts wait in two fair queues (TurnList), by the time that they take: what is expected of their bytes
// when they are popped, and what they took beyond that when they are done. With at least max_large + 1 threads, one
// thread is always free for small texts: a small text waits for small ones only, for at most one of each other user,
// and never for a large one, not even of its own user. On the other threads large texts go before small ones, so
// neither kind starves the other.
//
// What a rendering takes is not known by its bytes, nor what it takes to compile the form of an answer, which counts as
// one: both are large until their user's last one has been quick.
//
// Not thread-safe.
template <class T>
class TextQueue {
 public:
  enum class Work : std::uint8_t { text, rendering };
  struct Next {
    T item;
    bool is_large;
    TenantId tenant;
    Work work;
    std::uint64_t expected_ns;
  };

  // max_large: large texts that may be worked on at once; >= 1.
  explicit TextQueue(std::uint32_t max_large) : max_large_(max_large) {}

  void push(TenantId tenant, std::uint64_t bytes, T item, Work work = Work::text) {
    const bool is_large = bytes > kMaxSmallTextBytes || (work == Work::rendering && !quick_.contains(tenant));
    const std::uint64_t cost = (bytes + kBytesPerText) * kNsPerByte;
    (is_large ? large_ : small_).push(tenant, Next{std::move(item), is_large, tenant, work, cost}, cost);
  }
  // The next text for an idle thread; nothing if the queue is empty or holds only large texts and max_large of them are
  // being worked on. Afterwards the caller calls done().
  [[nodiscard]] std::optional<Next> pop() {
    if (num_large_ < max_large_) {
      if (auto next = large_.pop()) {
        ++num_large_;
        return next;
      }
    }
    return small_.pop();
  }
  // took_ns: as measured.
  void done(const Next& text, std::uint64_t took_ns) {
    TROUPE_ASSERT(!text.is_large || num_large_ > 0);
    if (text.is_large) --num_large_;
    if (took_ns > text.expected_ns) (text.is_large ? large_ : small_).charge(text.tenant, took_ns - text.expected_ns);
    if (text.work == Work::rendering) remember(text.tenant, took_ns <= kMaxSmallTextNs);
  }
  // Takes out all texts for which `unwanted(text)` is true.
  template <class Unwanted>
  [[nodiscard]] std::vector<T> remove_if(Unwanted unwanted) {
    std::vector<T> removed;
    for (TurnList<Next>* list : {&large_, &small_})
      for (Next& each : list->remove_if([&](const Next& next) { return unwanted(next.item); }))
        removed.push_back(std::move(each.item));
    return removed;
  }
  [[nodiscard]] std::size_t size() const { return small_.size() + large_.size(); }

 private:
  // Added to each text's cost: waking a thread and answering takes about as long as this many bytes.
  static constexpr std::uint64_t kBytesPerText = 64;
  static constexpr std::uint64_t kNsPerByte = kMaxSmallTextNs / kMaxSmallTextBytes;
  static constexpr std::size_t kMaxQuick = 4096;

  void remember(TenantId tenant, bool is_quick) {
    if (is_quick) {
      if (quick_.size() == kMaxQuick) quick_.clear();
      quick_.insert(tenant);
      return;
    }
    if (quick_.erase(tenant) == 0) return;
    // Those that wait are not known to be small any more.
    for (Next& each :
         small_.remove_if([&](const Next& next) { return next.tenant == tenant && next.work == Work::rendering; })) {
      each.is_large = true;
      const std::uint64_t cost = each.expected_ns;
      large_.push(tenant, std::move(each), cost);
    }
  }

  const std::uint32_t max_large_;
  std::uint32_t num_large_ = 0;  // being worked on
  TurnList<Next> small_, large_;
  std::unordered_set<TenantId> quick_;  // users whose last rendering took no longer than a small text
};

}  // namespace troupe::scheduler
