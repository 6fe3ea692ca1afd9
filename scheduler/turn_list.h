// Whose turn it is: things of several users, in turns of the users and by what the things cost.
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

namespace troupe::scheduler {

// Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Each user has an account of what was taken out of the
// list for that user, and the lowest account goes next; who comes into the list begins at the lowest one of those in
// it, so that no turns can be saved up. It follows that
//   - a user for whom nothing was taken lately waits for at most one thing of each other user, however many they have;
//   - of two users who always have something in here, one gets no more ahead of the other than by the cost of the most
//     expensive thing of each;
//   - things that all cost the same are done one of each user in turn;
//   - the things of one user keep their order.
// Not thread-safe. push and pop take O(users), remove_if O(things).
template <class T>
class TurnList {
 public:
  // cost: >= 1; 0 counts as 1.
  void push(std::uint32_t uid, T item, std::uint64_t cost = 1) {
    User& user = users_[uid];
    if (user.things.empty()) {
      if (!order_.empty()) user.account = std::max(user.account, std::get<0>(*order_.begin()));
      order_.emplace(user.account, ++last_turn_, uid);
    }
    user.things.push_back({std::move(item), std::max<std::uint64_t>(cost, 1)});
    ++size_;
  }
  // The next one; nothing if there is none.
  [[nodiscard]] std::optional<T> pop() {
    if (order_.empty()) return std::nullopt;
    const std::uint32_t uid = std::get<2>(*order_.begin());
    order_.erase(order_.begin());
    User& user = users_.at(uid);
    std::optional<T> item = std::move(user.things.front().item);
    user.account += user.things.front().cost;
    user.things.pop_front();
    if (!user.things.empty()) order_.emplace(user.account, ++last_turn_, uid);
    --size_;
    forget_settled();
    return item;
  }
  // Takes out all things for which `unwanted(thing)` is true. They cost nothing.
  template <class Unwanted>
  [[nodiscard]] std::vector<T> remove_if(Unwanted unwanted) {
    std::vector<T> removed;
    for (auto& [uid, user] : users_) {
      std::deque<Thing> kept;
      for (Thing& thing : user.things) {
        if (unwanted(std::as_const(thing.item)))
          removed.push_back(std::move(thing.item));
        else
          kept.push_back(std::move(thing));
      }
      user.things = std::move(kept);
    }
    size_ -= removed.size();
    std::erase_if(order_, [&](const auto& turn) { return users_.at(std::get<2>(turn)).things.empty(); });
    forget_settled();
    return removed;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Thing {
    T item;
    std::uint64_t cost;
  };
  struct User {
    std::uint64_t account = 0;
    std::deque<Thing> things;
  };

  // Accounts that make no difference any more: of users without things whom the lowest account has caught up with. Of
  // an empty list that is all.
  void forget_settled() {
    if (order_.empty()) return users_.clear();
    const std::uint64_t lowest = std::get<0>(*order_.begin());
    std::erase_if(users_,
                  [&](const auto& entry) { return entry.second.things.empty() && entry.second.account <= lowest; });
  }

  std::unordered_map<std::uint32_t, User> users_;
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> order_;  // account, turn, uid of those with things
  std::uint64_t last_turn_ = 0;
  std::size_t size_ = 0;
};

}  // namespace troupe::scheduler
