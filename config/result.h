// A value or an error: how functions report failures that input or the system can cause.
//
// Failures that only a bug of ours can cause are assertions instead (TROUPE_ASSERT in config/assert.h).
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

// What went wrong, coarse enough to choose an exit code from (cli/terminal/exit_code.h has the table).
enum class ErrorCode {
  invalid_argument,  // a value of a call, flag or request field is out of range
  bad_config,        // a configuration file or variable cannot be used
  bad_model,         // a model file is damaged or contradicts itself
  model_missing,     // there is no such model file
  unsupported,       // well formed, but not something this version (or this CPU) can do
  permission,        // the operating system or our own rules do not allow it
  busy,              // in use (the socket of a live server), or a server without room
  out_of_memory,     // it does not fit the memory budget
  os_limit,          // the system gives this process no more descriptors, threads or memory
  io,                // reading, writing or connecting failed
  protocol,          // the peer sent something that is not our protocol
};

struct Error {
  ErrorCode code;
  std::string message;  // one line for the user: what is wrong, the numbers, what to do
};

// Either a T or an Error. Reading the one that is not there is a bug (asserted in debug builds).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& value() {
    assert(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    assert(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const {
    assert(state_.index() == 1);
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

// The result of a function without a value.
struct Ok {};
using Status = Result<Ok>;

}  // namespace troupe
