#include "ipc/http/request_id.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>

namespace troupe::ipc::http {
namespace {

constexpr std::size_t kIdLength = 24;
constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Nothing that a log, a terminal or a header could take for more than text.
bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return kLetters.find(c) != std::string_view::npos || std::string_view("-_.:/+=@").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::string new_id() {
  static std::mt19937_64 random{[] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }()};
  std::string id;
  while (id.size() < kIdLength) {
    std::uint64_t number = random();
    for (int i = 0; i < 8; ++i, number /= kLetters.size()) id += kLetters[number % kLetters.size()];
  }
  return id;
}

std::string request_id(const RequestHead& head) {
  const std::string* given = head.find("x-request-id");
  return given && is_request_id(*given) ? *given : new_id();
}

}  // namespace troupe::ipc::http
