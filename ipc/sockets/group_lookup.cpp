#include "ipc/sockets/group_lookup.h"

#include <new>
#include <utility>

#include "config/assert.h"

namespace troupe::ipc {
namespace {

// Users whose groups are remembered, so that the database is not asked for each connection.
constexpr std::size_t kMaxRememberedGroups = 1024;

}  // namespace

void GroupLookup::ask(std::uint32_t uid, OnGroups done) {
  if (const auto known = known_.find(uid); known != known_.end()) return done(known->second);
  TROUPE_ASSERT(thread_);
  std::vector<OnGroups>& waiting = waiting_[uid];
  waiting.push_back(std::move(done));
  ++num_waiting_;
  if (waiting.size() > 1) return;  // it is being asked for
  asio::post(*thread_, [this, uid, generation = generation_] {
    Groups groups;
    try {
      groups = find_(uid);
    } catch (const std::bad_alloc&) {  // as a user without groups: what these would allow is refused
    }
    asio::post(io_, [this, uid, generation, groups = std::move(groups)]() mutable {
      told(uid, generation, std::move(groups));
    });
  });
}

void GroupLookup::told(std::uint32_t uid, std::uint64_t generation, Groups groups) {
  const auto found = waiting_.find(uid);
  const std::vector<OnGroups> waiting = std::move(found->second);
  waiting_.erase(found);
  num_waiting_ -= waiting.size();
  if (known_.size() >= kMaxRememberedGroups) known_.clear();
  if (generation == generation_) known_.emplace(uid, groups);
  for (const OnGroups& each : waiting) each(groups);
}

void GroupLookup::forget() {
  known_.clear();
  ++generation_;
}

std::uint32_t GroupLookup::num_waiting(std::uint32_t uid) const {
  const auto found = waiting_.find(uid);
  return found == waiting_.end() ? 0 : static_cast<std::uint32_t>(found->second.size());
}

}  // namespace troupe::ipc
