// Connections over TCP that have shown no right key, where keys are asked for: which of them goes first. Plain: time is
// an argument.
//
// They have places of their own, 64 at most, and all of them may be used for a moment, by clients that open
// many connections and then show their key on each. What stays without a key is kept to a small part.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::ipc {

struct Stranger {
  std::string peer{};  // guessing_peer()
  // Since when it has not begun a request, or still sends or reads the one it has begun; nullopt: its key is being
  // checked, and it stays.
  std::optional<std::chrono::steady_clock::time_point> idle_since{};
};

// After this time a connection without a right key counts as one that stays.
inline constexpr std::chrono::milliseconds kStrangerGrace{1000};

// Their places, however many connections a user may have.
[[nodiscard]] constexpr std::size_t strangers_limit(std::size_t connections_per_user) {
  return std::min<std::size_t>(connections_per_user, 64);
}
// A body without a right key is no longer than this.
inline constexpr std::uint32_t kStrangerBodyBytes = 64u << 10;

// Of `limit` places: the part of those that stay, and what one peer may have of it.
[[nodiscard]] constexpr std::size_t strangers_part(std::size_t limit) { return limit < 8 ? 1 : limit / 4; }
[[nodiscard]] constexpr std::size_t strangers_part_of_one(std::size_t limit) { return limit < 16 ? 1 : limit / 8; }

// The index of the one that is to go because more stay than may: of the peer of which most stay the longest idle.
[[nodiscard]] std::optional<std::size_t> stranger_beyond_part(const std::vector<Stranger>& strangers, std::size_t limit,
                                                              std::chrono::steady_clock::time_point now);

// The index of the one that is to go for a connection that comes now, of this peer (empty: one that is no stranger),
// where no place is left: of those of the same peer, or of peers that have more, the longest idle of the peer that has
// most; one that has sent nothing unread first, as has_unread(index) says.
[[nodiscard]] std::optional<std::size_t> stranger_to_make_room(const std::vector<Stranger>& strangers,
                                                               std::string_view newcomer,
                                                               const std::function<bool(std::size_t)>& has_unread);

}  // namespace troupe::ipc
