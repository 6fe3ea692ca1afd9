// Usage on the wire: the question, and its answer.
#pragma once

#include <variant>

#include "actors/requests/usage_report.h"
#include "ipc/frames/wire.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// The query for an owner; a guest's is for its own tenant only.
[[nodiscard]] std::variant<actors::UsageQuery, Refusal> to_query(const v1::UsageRequest& request);

// The report, or a refusal if there is an error. Owners alone get notes and what is wrong with the server's file.
[[nodiscard]] v1::ServerFrame usage_frame(std::uint64_t stream, const Result<actors::UsageReport>& report,
                                          bool is_owner);

}  // namespace troupe::ipc
