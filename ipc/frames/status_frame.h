// Builds the Status frame, limited to what the asking user may see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "actors/gateway.h"
#include "config/metric.h"
#include "ipc/request_kinds.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// Live requests that one Status lists.
inline constexpr std::size_t kMaxListedRequests = 256;

// A live request of the caller.
struct OwnRequest {
  std::uint64_t number = 0;  // among its own, from 1, in order of arrival
  std::uint64_t stream = 0;  // on the connection that asks; 0: it belongs to another
};
using OwnRequests = std::unordered_map<actors::RequestId, OwnRequest>;

struct StatusView {
  scheduler::Tenant tenant;  // that asks
  bool list_requests = false;
  bool this_connection = false;
  bool profile = false;
  OwnRequests own{};
};

// The live requests to list: of those that the view asks for a guest's own, all for an owner; at most
// kMaxListedRequests.
[[nodiscard]] std::vector<actors::RequestView> visible(const std::vector<actors::RequestView>& requests,
                                                       const StatusView& view);

// A Status without the fields of add_counts() and of connections. A guest gets the fields that describe the server and
// the number of its own live requests; only owners get sums over users and fields that change with other users'
// activity (steps, blocks, latencies, memory), because two readings of a sum reveal what happened between them.
[[nodiscard]] v1::ServerFrame status_frame(std::uint64_t stream, const actors::StatusSnapshot& status,
                                           const StatusView& view);

// If frames may only be small, leaves out the explanations of the metrics, and if need be those by tenant, so that the
// other numbers fit.
void fit_status(v1::ServerFrame& frame, std::uint64_t max_frame_bytes);

// Appends metrics, and sets the fields of Status that are named as their keys. No two calls append the same one.
void add_metrics(const MetricList& metrics, v1::Status& status);

// Fills in received requests and their outcomes: of Generate and Embed together, and of each kind.
void add_counts(v1::Status& status, const RequestCounts& counts);

}  // namespace troupe::ipc
