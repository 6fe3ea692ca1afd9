// The record of work that threw, and hooks with which tests make work throw.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <string>

#include "actors/requests/request.h"
#include "engine/engine.h"

namespace troupe::actors {

// A request is ended after this many failed steps (or failed encodings of its text).
inline constexpr std::uint32_t kMaxFaults = 2;

struct Failure {
  bool out_of_memory = false;  // std::bad_alloc
  std::string what;            // one line, without prompt or answer text
};

[[nodiscard]] inline Failure failure_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return {.out_of_memory = true, .what = "out of memory"};
  } catch (const std::exception& e) {
    return {.out_of_memory = false, .what = e.what()};
  } catch (...) {
    return {.out_of_memory = false, .what = "an unknown exception"};
  }
}

// Called on the thread that does the work, right before it. An exception they throw counts as thrown by the work
// itself. Empty except in tests and with TROUPE_TEST_KILL.
struct FaultPoints {
  std::function<void(const engine::StepBatch&)> before_step{};  // compute thread
  std::function<void(RequestId)> before_pass{};                 // compute thread, before each pass of an Embed
  std::function<void(const Request&)> before_encode{};          // tokenizers and text threads
  std::function<void(RequestId)> before_row{};  // batcher, before it handles a step's row of this request
};

}  // namespace troupe::actors
