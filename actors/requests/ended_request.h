// What a log of requests says of one that has ended. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "actors/requests/request.h"

namespace troupe::actors {

// Nothing of the request's text or of its answer. Its own texts live as long as the call that it is given to; client_id
// and model may be as a client sent them.
struct EndedRequest {
  scheduler::Tenant tenant{};
  Protocol protocol = Protocol::frames;
  std::string_view kind{};       // "generate"
  RequestId request = 0;         // 0: it ended before the gateway gave it one; then there are no counts either
  std::uint32_t choice = 0;      // of a request for several answers, each of which ends by itself
  std::string_view client_id{};  // empty: it has none
  std::string_view model{};      // empty: it named none, or was not read that far
  scheduler::Outcome outcome = scheduler::Outcome::internal;
  Usage usage{};
  double total_seconds = 0;
};

// nullopt: the entry ends nothing.
[[nodiscard]] inline std::optional<EndedRequest> ended_request(const UsageEntry& entry) {
  if (!entry.outcome || !entry.body) return std::nullopt;
  return EndedRequest{.tenant = entry.tenant,
                      .protocol = entry.body->protocol,
                      .kind = entry.kind == WorkKind::embed ? "embed" : "generate",
                      .request = entry.request,
                      .choice = entry.body->sampling.choice,
                      .client_id = entry.body->client_id,
                      .model = entry.body->model,
                      .outcome = *entry.outcome,
                      .usage = entry.usage,
                      .total_seconds = entry.total_seconds};
}

}  // namespace troupe::actors
