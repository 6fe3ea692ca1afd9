// The groups of users over TCP. They are asked for on a thread of their own: the machine's database of users may be a
// directory on the network, which takes seconds to answer when it is away.
#pragma once

#include <asio.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::ipc {

// Used by the io thread, but for `find`. Lives until `io` has stopped.
class GroupLookup {
 public:
  using Groups = std::vector<std::uint32_t>;
  using Find = std::function<Groups(std::uint32_t uid)>;
  using OnGroups = std::function<void(const Groups&)>;

  // find: called on the thread, which start() makes.
  GroupLookup(asio::io_context& io, Find find) : io_(io), find_(std::move(find)) {}
  void start() { thread_.emplace(1); }

  // Calls `done` with the user's groups: at once if they are known, else later, on the io thread.
  void ask(std::uint32_t uid, OnGroups done);
  // What is known is asked for anew.
  void forget();
  // Callers that wait: of this user, and of all.
  [[nodiscard]] std::uint32_t num_waiting(std::uint32_t uid) const;
  [[nodiscard]] std::size_t num_waiting() const { return num_waiting_; }

 private:
  void told(std::uint32_t uid, std::uint64_t generation, Groups groups);

  asio::io_context& io_;
  const Find find_;
  std::unordered_map<std::uint32_t, Groups> known_;
  std::unordered_map<std::uint32_t, std::vector<OnGroups>> waiting_;
  std::size_t num_waiting_ = 0;
  std::uint64_t generation_ = 0;             // how often forget() was called
  std::optional<asio::thread_pool> thread_;  // joined first
};

}  // namespace troupe::ipc
