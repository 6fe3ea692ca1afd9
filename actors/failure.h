// Work that threw: why, and where tests make it throw.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "actors/request.h"
#include "engine/engine.h"

namespace troupe::actors {

struct Failure {
  bool out_of_memory = false;  // std::bad_alloc
  std::string what;            // one line, free of anybody's text
};

[[nodiscard]] Failure failure_of(const std::exception_ptr& thrown);

// Called on the thread that does the work, right before it. What they throw counts as thrown by the work itself. All
// are empty but in tests.
struct FaultPoints {
  std::function<void(const engine::StepBatch&)> before_step;  // compute thread
  std::function<void(const Request&)> before_encode;          // tokenizers and text threads
  std::function<void(RequestId)> before_row;                  // batcher: what a step brought for this request
};

}  // namespace troupe::actors
