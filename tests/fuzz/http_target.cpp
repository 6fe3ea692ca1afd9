// Arbitrary bytes as requests of HTTP: however they are cut, the same requests are read and the same error is found;
// limits hold; and what was read can be judged and answered.
//
// The first byte of an input is the seed of the cuts, the second the limit of bodies in KiB.
#include <random>
#include <string>
#include <vector>

#include "ipc/http/border.h"
#include "ipc/http/head_rules.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/ipc/http/read_all.h"

namespace troupe::fuzz {
namespace {

using namespace ipc::http;
using ipc::http::test::read_all;
using ipc::http::test::ReadResult;

std::vector<std::string> cut(std::string_view bytes, std::uint8_t seed) {
  std::vector<std::string> pieces;
  std::minstd_rand random(seed);
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), 1 + random() % (1u << (random() % 12)));
    pieces.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return pieces;
}

void check(const Request& request, std::uint64_t max_body_bytes) {
  const RequestHead& head = request.head;
  TROUPE_ASSERT(request.body.size() <= max_body_bytes);
  TROUPE_ASSERT(!head.length || *head.length == request.body.size());
  TROUPE_ASSERT(head.fields.size() <= kMaxFields && head.target.size() <= kMaxTargetBytes);
  TROUPE_ASSERT(head.path == "*" || head.path.starts_with('/'));
  TROUPE_ASSERT(is_authority(head.host));
  TROUPE_ASSERT(!(head.length && head.find("transfer-encoding")));
  for (const Field& field : head.fields)
    for (const char c : field.name + field.value) TROUPE_ASSERT(c != '\r' && c != '\n' && c != '\0');
  const BorderRules rules{.allow_hosts = {"my.box"}, .cors_origins = {"https://a.b"}};
  static_cast<void>(check_host(head, rules));
  static_cast<void>(check_origin(head, rules));
  for (const Field& field : cors_fields(head, rules)) TROUPE_ASSERT(!field.name.empty());
}

}  // namespace
}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  fuzz::Input in(data, size);
  const std::uint8_t seed = in.byte();
  const std::uint64_t max_body_bytes = std::uint64_t{in.byte()} << 10;
  const std::string bytes(in.rest());
  const auto whole = ipc::http::test::read_all({bytes}, max_body_bytes);
  const auto pieces = ipc::http::test::read_all(fuzz::cut(bytes, seed), max_body_bytes);
  TROUPE_ASSERT(whole == pieces);
  for (const auto& request : whole.requests) fuzz::check(request, max_body_bytes);
  if (whole.failed) {
    TROUPE_ASSERT(whole.error.status >= 400 && whole.error.status <= 505);
    fuzz::check_message(whole.error.message);
  }
  return 0;
}
