// Servers with one call of the C library that fails, or that waits for the test (tests/cli/interpose/fail_call.cpp).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "tests/cli/process.h"

namespace troupe::test {

// A sanitizer's own malloc and interceptors want to come first.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCanInterpose = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kCanInterpose = false;
#else
inline constexpr bool kCanInterpose = true;
#endif
#else
inline constexpr bool kCanInterpose = true;
#endif

// The library for LD_PRELOAD, whose list is split at spaces and colons: where the build lies below a folder with one, a
// link to it, which lives as long as this process.
inline std::string fail_call_library() {
  static const std::string own = TROUPE_FAIL_CALL;
  if (own.find_first_of(" :") == std::string::npos) return own;
  static const TempFolder folder;
  const std::string link = folder.path("fail_call.so");
  std::error_code exists;
  std::filesystem::create_symlink(own, link, exists);
  return link;
}

// Where a process waits until the test lets it go on.
class Gate {
 public:
  // At the `number`-th call of `kind`.
  Gate(const TempFolder& folder, const std::string& kind, int number)
      : fifo_(folder.path("gate")), call_(kind + ":" + std::to_string(number)) {
    REQUIRE(::mkfifo(fifo_.c_str(), 0600) == 0);
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  std::map<std::string, std::string> environment() const {
    return {{"LD_PRELOAD", fail_call_library()}, {"HOLD_CALL", call_ + ":" + fifo_}};
  }
  // Returns when the process waits there.
  void wait() { writer_ = ::open(fifo_.c_str(), O_WRONLY | O_CLOEXEC); }
  void open() {
    if (writer_ >= 0) ::close(writer_);
    writer_ = -1;
  }

 private:
  std::string fifo_, call_;
  int writer_ = -1;
};

}  // namespace troupe::test
