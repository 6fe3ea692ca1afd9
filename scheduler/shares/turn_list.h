// A fair queue: items of several users, popped in an order that gives each user an equal share by cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/ids.h"

namespace troupe::scheduler {

// Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Each user has an account: the summed cost of this
// user's popped items. The user with the lowest account is popped next; a user whose queue was empty is raised to the
// lowest account in the list, so that an idle user saves up no share. It follows that
//   - a user without popped items lately waits for at most one item of each other user, however many those have;
//   - of two users that always have items queued, one gets no more ahead of the other than by the cost of the most
//     expensive item of each;
//   - items of equal cost are popped round-robin, one of each user;
//   - the items of one user keep their order.
// Not thread-safe. push takes O(log users), pop and charge O(users), remove_if O(items + users).
template <class T>
class TurnList {
 public:
  // cost: >= 1; 0 counts as 1.
  void push(TenantId tenant, T item, std::uint64_t cost = 1) {
    User& user = users_[tenant];
    if (user.items.empty()) {
      if (!order_.empty()) user.account = std::max(user.account, std::get<0>(*order_.begin()));
      order_.emplace(user.account, ++last_turn_, tenant);
    }
    user.items.push_back({std::move(item), std::max<std::uint64_t>(cost, 1)});
    ++size_;
  }
  // The next item; nothing if the list is empty.
  [[nodiscard]] std::optional<T> pop() {
    if (order_.empty()) return std::nullopt;
    const TenantId tenant = std::get<2>(*order_.begin());
    order_.erase(order_.begin());
    User& user = users_.at(tenant);
    std::optional<T> item = std::move(user.items.front().item);
    user.account += user.items.front().cost;
    user.items.pop_front();
    if (!user.items.empty()) order_.emplace(user.account, ++last_turn_, tenant);
    --size_;
    forget_settled();
    return item;
  }
  // An item of the user's that was popped has cost so much more than was known. Forgotten if no items wait: there is
  // none to compare with.
  void charge(TenantId tenant, std::uint64_t cost) {
    if (order_.empty()) return;
    User& user = users_[tenant];
    user.account = std::max(user.account, std::get<0>(*order_.begin())) + cost;
    if (std::erase_if(order_, [&](const auto& turn) { return std::get<2>(turn) == tenant; }) > 0)
      order_.emplace(user.account, ++last_turn_, tenant);
    forget_settled();
  }
  // Removes and returns all items for which `unwanted(item)` is true. They are not charged to their users.
  template <class Unwanted>
  [[nodiscard]] std::vector<T> remove_if(Unwanted unwanted) {
    std::vector<T> removed;
    for (auto& [tenant, user] : users_) {
      std::deque<Queued> kept;
      for (Queued& queued : user.items) {
        if (unwanted(std::as_const(queued.item)))
          removed.push_back(std::move(queued.item));
        else
          kept.push_back(std::move(queued));
      }
      user.items = std::move(kept);
    }
    size_ -= removed.size();
    std::erase_if(order_, [&](const auto& turn) { return users_.at(std::get<2>(turn)).items.empty(); });
    forget_settled();
    return removed;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Queued {
    T item;
    std::uint64_t cost;
  };
  struct User {
    std::uint64_t account = 0;
    std::deque<Queued> items;
  };

  // Erases accounts of users without items that are not above the lowest account: push() would raise them to it anyway.
  // If the list is empty, erases all.
  void forget_settled() {
    if (order_.empty()) return users_.clear();
    const std::uint64_t lowest = std::get<0>(*order_.begin());
    std::erase_if(users_,
                  [&](const auto& entry) { return entry.second.items.empty() && entry.second.account <= lowest; });
  }

  std::unordered_map<TenantId, User> users_;
  std::set<std::tuple<std::uint64_t, std::uint64_t, TenantId>> order_;  // account, number of the turn, tenant
  std::uint64_t last_turn_ = 0;
  std::size_t size_ = 0;
};

}  // namespace troupe::scheduler
