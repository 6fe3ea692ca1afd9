// Ids of calls: nine letters and digits, as the chat templates of Mistral's models want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::engine::chat {

inline constexpr std::size_t kCallIdBytes = 9;

// The same for the same number; numbers that differ have, as good as always, ids that differ.
[[nodiscard]] std::string call_id(std::uint64_t number);

// The id that stands for one that was made elsewhere: itself if it has kCallIdBytes, else one of its hash.
[[nodiscard]] std::string call_id_for(std::string_view id);

}  // namespace troupe::engine::chat
