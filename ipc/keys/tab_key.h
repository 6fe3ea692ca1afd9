// The key of `troupe serve --open`: a text for one use, which the page exchanges for the key that it goes on with. Both
// are drawn at random (256 bits), and neither outlives the process.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ipc/keys/secrets.h"

namespace troupe::ipc {

inline constexpr std::string_view kOncePrefix = "once_";
inline constexpr std::string_view kTabPrefix = "tab_";

// Thread-safe. Comparisons take constant time.
class TabKey {
 public:
  TabKey();
  TabKey(const TabKey&) = delete;
  TabKey& operator=(const TabKey&) = delete;

  // The text for one use: "once_" and 43 letters and digits. Empty once it was exchanged.
  [[nodiscard]] std::string once() const;
  // The key that the page goes on with, if `text` is the one for one use and nothing was given for it yet.
  [[nodiscard]] std::optional<std::string> exchange(std::string_view text);
  // Whether exchange() gave this text.
  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  Hash process_key_{};  // of the hashes: they say nothing outside this process
  mutable std::mutex mutex_;
  std::string once_;
  std::optional<Hash> given_;
};

}  // namespace troupe::ipc
