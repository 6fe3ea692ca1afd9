// Any bytes as a pattern: read or refused within the limits of work and memory, and what is read means the same in both
// writings and goes on from wherever a text leads. The first byte chooses what part of a text must match; the pattern
// ends with a zero byte, behind which comes a text.
#include <string>

#include "config/utf8.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/expressions/pattern.h"
#include "tests/fuzz/fuzz_target.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxWalkedBytes = 2'000;
constexpr std::size_t kMaxWork = kMaxMakingWork / 10;  // sanitizers make each derivation that much slower
constexpr std::size_t kMaxBytesUsed = 500'000'000;     // far above what the limits of a pool allow

// The end of a walk over `text`, completed by a shortest text, is a text of the pattern.
void check_walk(RegexPool& pool, RegexId id, std::string_view text, Writing writing) {
  if (pool.shortest(id) == RegexPool::kNoLength) return;
  std::string walked;
  RegexId at = id;
  for (const char each : text.substr(0, kMaxWalkedBytes)) {
    const RegexId next = pool.next(at, static_cast<std::uint8_t>(each));
    if (next == kNoText) break;
    at = next;
    walked += each;
  }
  const std::string whole = walked + pool.shortest_text(at);
  TROUPE_ASSERT(pool.matches(id, whole));
  TROUPE_ASSERT(is_utf8(whole));
  if (writing == Writing::plain) return;
  const auto read = chat::parse_json('"' + whole + '"');
  TROUPE_ASSERT(read);
  TROUPE_ASSERT(written(*read->text(), Writing::json) == whole);
}

void check_pattern(std::string_view pattern, PatternExtent extent, std::string_view text) {
  RegexPool plain, json;
  plain.limit_work(kMaxWork);
  json.limit_work(kMaxWork);
  const auto in_plain = parse_pattern(plain, pattern, Writing::plain, extent);
  const auto in_json = parse_pattern(json, pattern, Writing::json, extent);
  TROUPE_ASSERT(static_cast<bool>(in_plain) == static_cast<bool>(in_json));
  if (!in_plain) {
    fuzz::check_message(in_plain.error().message);
    TROUPE_ASSERT(in_plain.error().message == in_json.error().message);
    return;
  }
  check_walk(plain, *in_plain, text, Writing::plain);
  check_walk(json, *in_json, text, Writing::json);
  const std::string_view subject = text.substr(0, kMaxWalkedBytes);
  if (is_utf8(subject)) {
    const bool matches = plain.matches(*in_plain, subject);
    TROUPE_ASSERT(json.matches(*in_json, written(subject, Writing::json)) == matches);
    if (extent == PatternExtent::whole && matches) {
      const auto somewhere = parse_pattern(plain, pattern, Writing::plain, PatternExtent::somewhere);
      TROUPE_ASSERT(somewhere && plain.matches(*somewhere, subject));
    }
  } else {
    TROUPE_ASSERT(!plain.matches(*in_plain, subject));
  }
  TROUPE_ASSERT(plain.bytes_used() + json.bytes_used() < kMaxBytesUsed);
}

}  // namespace
}  // namespace troupe::engine::constraints

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  using namespace troupe::engine::constraints;
  fuzz::Input in(data, size);
  const PatternExtent extent = (in.byte() & 1) != 0 ? PatternExtent::whole : PatternExtent::somewhere;
  const std::string_view pattern = in.until('\0');
  try {
    check_pattern(pattern, extent, in.rest());
  } catch (const ConstraintLimit& limit) {
    fuzz::check_message(limit.what());
  }
  return 0;
}
