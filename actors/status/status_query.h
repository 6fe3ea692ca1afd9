// A status query on its way to telemetry.
#pragma once

#include <functional>
#include <utility>

#include "actors/server_context.h"
#include "actors/status_snapshot.h"

namespace troupe::actors {

[[nodiscard]] StatusSnapshot take_snapshot(const ServerContext& context, TimePoint now);

// Calls `done` exactly once: in answer(), or in the destructor, as when telemetry dies before it has answered. Shared
// between actors, but at any time only one of them may answer.
class StatusQuery {
 public:
  // Everything that the context refers to outlives the query except its thread pools, which the query does not use.
  StatusQuery(const ServerContext& context, std::function<void(StatusSnapshot)> done)
      : context_(context), done_(std::move(done)) {}
  ~StatusQuery() { answer(std::chrono::steady_clock::now()); }
  StatusQuery(const StatusQuery&) = delete;
  StatusQuery& operator=(const StatusQuery&) = delete;

  void answer(TimePoint now) {
    if (const auto done = std::exchange(done_, nullptr)) done(take_snapshot(context_, now));
  }

 private:
  const ServerContext context_;
  std::function<void(StatusSnapshot)> done_;
};

}  // namespace troupe::actors
