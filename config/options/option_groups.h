// Groups of options that a part of the server keeps (KeptGroups), against the rows of their members.
#pragma once

#include "config/options/option.h"
#include "config/result.h"

namespace troupe::config {

// The first member that is out of the range of its row. Error: invalid_argument, "max_streams is 0; it must be 1 to
// ...".
template <class Group>
[[nodiscard]] Status check_ranges(const Group& group);

// Copies the members whose rows say that a running server can change them.
template <class Group>
void take_reloadable(Group& running, const Group& fresh);

// --- definitions ---

[[nodiscard]] Status check_ranges_of(std::uint32_t kept_group, const Options& options);
void copy_reloadable_of(std::uint32_t kept_group, const Options& from, Options& to);

template <class Group>
Status check_ranges(const Group& group) {
  Options options;
  static_cast<Group&>(options) = group;
  return check_ranges_of(sets_with<Group, KeptGroups>(), options);
}

template <class Group>
void take_reloadable(Group& running, const Group& fresh) {
  Options from, to;
  static_cast<Group&>(from) = fresh;
  static_cast<Group&>(to) = running;
  copy_reloadable_of(sets_with<Group, KeptGroups>(), from, to);
  running = to;
}

}  // namespace troupe::config
