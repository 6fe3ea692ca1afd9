#include "ipc/activity.h"

#include <fmt/format.h>

namespace troupe::ipc {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::string Activity::text() const {
  const char* const what = what_.load(kRelaxed);
  if (!what) return "it does nothing that has a name here";
  const std::uint64_t user = uid_and_pid_.load(kRelaxed);
  const std::uint32_t pid = static_cast<std::uint32_t>(user);
  std::string text = fmt::format("it {}{}", what, detail_.load(kRelaxed));
  if (has_user_.load(kRelaxed)) text += fmt::format(" of uid {}", user >> 32);
  if (has_user_.load(kRelaxed) && pid != 0) text += fmt::format(" pid {}", pid);
  return text;
}

Doing::Doing(Activity& activity, const char* what, const char* detail, ActiveFor user)
    : activity_(activity), what_before_(activity.what_.load(kRelaxed)) {
  activity_.what_.store(what, kRelaxed);
  activity_.detail_.store(detail, kRelaxed);
  activity_.uid_and_pid_.store(std::uint64_t{user.uid} << 32 | static_cast<std::uint32_t>(user.pid), kRelaxed);
  activity_.has_user_.store(user.is_known, kRelaxed);
}

Doing::~Doing() {
  activity_.what_.store(what_before_, kRelaxed);
  activity_.detail_.store("", kRelaxed);
  activity_.has_user_.store(false, kRelaxed);
}

}  // namespace troupe::ipc
