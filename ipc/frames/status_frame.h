// What the server tells of itself, as far as the one who asks may know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/gateway.h"
#include "ipc/frames/request_counts.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// Live requests that one Status lists.
inline constexpr std::size_t kMaxListedRequests = 256;

struct StatusView {
  std::uint32_t uid = 0;
  bool is_owner = false;
  bool list_requests = false;
  bool profile = false;
};

// What a user may see of the live requests: its own, of an owner all; at most kMaxListedRequests.
[[nodiscard]] std::vector<actors::RequestView> visible(const std::vector<actors::RequestView>& requests,
                                                       std::uint32_t uid, bool is_owner);

// A Status without what RequestCounts and connections count. A guest gets what describes the server and how many
// requests of its own there are; of everything that is a sum over users, or moves with what others do (steps, blocks,
// latencies, memory), only owners are told: two looks at a sum give away what happened between them.
[[nodiscard]] v1::ServerFrame status_frame(std::uint64_t stream, const actors::StatusSnapshot& status,
                                           const StatusView& view);

// Fills in what was received and how it ended: of Generate and Embed together, and of each kind.
void add_counts(v1::Status& status, const RequestCounts& counts);

}  // namespace troupe::ipc
