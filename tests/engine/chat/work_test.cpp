// What a template does is charged as it is done: each operation by its sizes, in pieces between which a rendering can
// end. Times are of a clock that these tests move.
#include <string>

#include <catch2/catch.hpp>

#include "tests/engine/chat/metered.h"
#include "tests/engine/chat/worst_cases.h"

namespace troupe::engine::chat {
namespace {

using test::metered;
using test::Metered;

constexpr std::uint64_t kMostBetweenLooks = Meter::kStepsPerLook + Meter::kMaxPiece;

// A clock on which each look is a millisecond, and which sets a flag at one of them.
struct MovedClock {
  static inline std::int64_t looks = 0, sets_at = -1;
  static inline std::atomic<bool> flag = false;
  static TimeBudget::Time elapsed() {
    if (++looks == sets_at) flag = true;
    return std::chrono::milliseconds(looks);
  }
  static TimeBudget budget(std::int64_t milliseconds) {
    looks = 0;
    sets_at = -1;
    flag = false;
    const std::chrono::milliseconds limit(milliseconds);
    return {limit, limit, {elapsed, [] { return TimeBudget::Time(std::chrono::milliseconds(looks)); }}};
  }
};

// An operation, over a text or a list of N; the least steps for each of N.
struct Cost {
  const char* operation;
  const char* source;  // @: N
  double steps_per_item;
};

constexpr double kCopied = 1.0 / Meter::kBytesPerStep, kSeen = 1.0 / 8;

constexpr Cost kCosts[] = {
    {"literal", "{% for i in r %}{{ '' }}{% endfor %}", 3},
    {"name", "{% for i in r %}{% if i %}{% endif %}{% endfor %}", 3},
    {"argument of a macro", "{% macro m(a, b) %}{% endmacro %}{% for i in r %}{% set x = m(1, 2) %}{% endfor %}", 8},
    {"scope in a scope",
     "{% for i in r %}{% with %}{% with %}{% if q %}{% endif %}{% endwith %}{% endwith %}{% endfor %}", 7},
    {"strip()", "{{ (' ' * @).strip() }}", kSeen},
    {"strip(chars)", "{{ ('a' * @).strip('bcdefghija') }}", kSeen},
    {"strip(many chars)", "{{ 'a'.strip('b' * @) }}", kSeen},
    {"split()", "{% set x = ('a' * @).split() %}", kSeen},
    {"split(sep)", "{% set x = ('a' * @).split('b') %}", kCopied},
    {"rsplit(sep)", "{% set x = ('a' * @).rsplit('b') %}", kCopied},
    {"parts of split(sep)", "{% set x = ('b' * @).split('b') %}", 1},
    {"splitlines()", "{% set x = ('\n' * @).splitlines() %}", 1},
    {"startswith(text)", "{% set x = ('a' * @).startswith('a' * @) %}", kCopied},
    {"startswith(list)", "{% set x = 'a'.startswith(['b'] * @) %}", 1},
    {"endswith(text)", "{% set x = ('a' * @).endswith('a' * @) %}", kCopied},
    {"replace", "{% set x = ('a' * @).replace('a', 'b') %}", 2},
    {"replace('')", "{% set x = ('a' * @).replace('', 'b') %}", 2},
    {"upper()", "{% set x = ('a' * @).upper() %}", 1},
    {"title()", "{% set x = ('a' * @) | title %}", 1},
    {"find(text)", "{% set x = ('a' * @).find('b') %}", kCopied},
    {"find(long text)", "{% set x = ('a' * @).find('a' * 10000 ~ 'b') %}", kCopied},
    {"rfind(text)", "{% set x = ('a' * @).rfind('b') %}", kCopied},
    {"count(text)", "{% set x = ('a' * @).count('a') %}", 1},
    {"join(list)", "{% set x = ','.join(['a'] * @) %}", 2},
    {"isalpha()", "{% set x = ('a' * @).isalpha() %}", kSeen},
    {"islower()", "{% set x = ('a' * @).islower() %}", kSeen},
    {"removeprefix", "{% set x = ('a' * @).removeprefix('a' * @) %}", kCopied},
    {"partition", "{% set x = ('a' * @).partition('b') %}", kCopied},
    {"center", "{% set x = 'a'.center(@) %}", kCopied},
    {"zfill", "{% set x = '1'.zfill(@) %}", kCopied},
    {"format()", "{% set x = ('{0}' * @).format('a') %}", 2},
    {"text * n", "{% set x = 'a' * @ %}", kCopied},
    {"list * n", "{% set x = [1] * @ %}", 1},
    {"text + text", "{% set x = ('a' * @) + 'b' %}", 2 * kCopied},
    {"text ~ text", "{% set x = ('a' * @) ~ 'b' %}", 2 * kCopied},
    {"list + list", "{% set x = [1] * @ + [1] %}", 2},
    {"text % values", "{% set x = '%s' % ('a' * @) %}", 2 * kCopied},
    {"% of many", "{% set x = ('%%' * @) % {} %}", 1},
    {"text in text", "{% set x = 'b' in 'a' * @ %}", kCopied},
    {"item in list", "{% set x = 2 in [1] * @ %}", 2},
    {"text == text", "{% set x = 'a' * @ == 'a' * @ %}", 3 * kCopied},
    {"text < text", "{% set x = 'a' * @ < 'a' * @ %}", 3 * kCopied},
    {"list == list", "{% set x = [1] * @ == [1] * @ %}", 3},
    {"list < list", "{% set x = [1] * @ < [1] * @ %}", 3},
    {"text[i]", "{% set x = ('a' * @)[-1] %}", 2 * kSeen},
    {"text[a:b]", "{% set x = ('a' * @)[1:] %}", 2 * kSeen},
    {"text[::step]", "{% set x = ('a' * @)[::-1] %}", 1},
    {"list[a:b]", "{% set x = ([1] * @)[:] %}", 2},
    {"escape", "{% set x = ('<' * @) | e %}", 1},
    {"indent", "{% set x = ('\n' * @) | indent(2, blank=true) %}", 1},
    {"truncate", "{% set x = ('a' * @) | truncate(9) %}", kSeen},
    {"wordcount", "{% set x = ('a' * @) | wordcount %}", kSeen},
    {"int", "{% set x = (' ' * @) | int %}", kSeen},
    {"float", "{% set x = (' ' * @) | float %}", kSeen},
    {"tojson of a text", "{% set x = ('a' * @) | tojson %}", kSeen},
    {"tojson of a list", "{% set x = ([1] * @) | tojson %}", 2},
    {"tojson with sorted keys",
     "{% set x = dict(r | batch(1) | map('list') | map('join', '') | batch(2)) | "
     "tojson(sort_keys=true) %}",
     4},
    {"string of a text", "{% set x = ['a' * @] | string %}", kSeen},
    {"string of a list", "{% set x = ([1] * @) | string %}", 2},
    {"list", "{% set x = r | list %}", 1},
    {"list of a text", "{% set x = ('a' * @) | list %}", 1},
    {"reverse", "{% set x = r | reverse %}", 1},
    {"join", "{% set x = r | join %}", 2},
    {"sort", "{% set x = r | sort %}", 6},
    {"sort(attribute)", "{% set x = ([{'a': 1}] * @) | sort(attribute='a') %}", 6},
    {"dictsort", "{% set x = dict(r | batch(1) | map('join') | batch(2)) | dictsort %}", 4},
    {"unique", "{% set x = r | unique | list %}", 3},
    {"min", "{% set x = r | min %}", 1},
    {"sum", "{% set x = r | sum %}", 1},
    {"batch", "{% set x = r | batch(1) | list %}", 2},
    {"slice", "{% set x = r | slice(2) | list %}", 1},
    {"groupby", "{% set x = ([{'a': 1}] * @) | groupby('a') %}", 6},
    {"map", "{% set x = r | map('string') | list %}", 2},
    {"map(attribute)", "{% set x = ([{'a': 1}] * @) | map(attribute='a') | list %}", 3},
    {"select", "{% set x = r | select('odd') | list %}", 2},
    {"selectattr", "{% set x = ([{'a': 1}] * @) | selectattr('a') | list %}", 3},
    {"is upper", "{% set x = ('A' * @) is upper %}", kSeen},
    {"is sameas", "{% set x = ('a' * @) is sameas ('a' * @) %}", 2 * kCopied},
    {"length of a text", "{% set x = ('a' * @) | length %}", kSeen},
    {"range", "{% set x = range(@) %}", 1},
    {"dict", "{% set x = dict([(1, 2)] * @) %}", 3},
    {"dict.items()", "{% set x = dict(r | batch(2) | list).items() %}", 1},
    {"list.index", "{% set x = ([1] * @ + [2]).index(2) %}", 2},
    {"list.count", "{% set x = ([1] * @).count(1) %}", 2},
    {"key that is a tuple",
     "{% set x = {((1,) * @): 1} %}{% set x = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: "
     "9}[(1,) * @] %}",
     3},
    {"key that is a text", "{% set x = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}['a' * @] %}",
     2 * kCopied},
    {"loop", "{% for i in r %}{% endfor %}", 3},
    {"loop over a text", "{% for i in 'a' * @ %}{% endfor %}", 4},
    {"loop over a dictionary", "{% for i in dict(r | batch(2) | list) %}{% endfor %}", 2},
    {"loop.changed", "{% for i in [1] %}{{ loop.changed([1] * @) }}{{ loop.changed([1] * @) }}{% endfor %}", 3},
    {"output", "{{ 'a' * @ }}", 2 * kCopied},
    {"strftime_now", "{% for i in r %}{% set x = strftime_now('%B') %}{% endfor %}", 4},
};

std::string sized(std::string source, std::size_t size) {
  for (std::size_t at = source.find('@'); at != std::string::npos; at = source.find('@', at))
    source.replace(at, 1, std::to_string(size));
  return "{% set r = range(" + std::to_string(size) + ") %}" + source;
}

TEST_CASE("the work of each operation is charged by the sizes of what it is given") {
  constexpr std::size_t kSmall = 8192, kLarge = 32'768;
  const std::uint64_t own = metered(sized("", kLarge)).steps - metered(sized("", kSmall)).steps;
  for (const Cost& cost : kCosts) {
    INFO(cost.operation);
    const Metered small = metered(sized(cost.source, kSmall)), large = metered(sized(cost.source, kLarge));
    REQUIRE(large.error == "");
    REQUIRE(large.steps > small.steps + own);
    const double per_item = static_cast<double>(large.steps - small.steps - own) / (kLarge - kSmall);
    CHECK(per_item >= cost.steps_per_item);
    CHECK(large.longest_piece <= kMostBetweenLooks);
  }
}

TEST_CASE("whatever a template does, it ends at the first look at the clock that is past its time, within its memory") {
  for (const test::WorstCase& each : test::kWorstCases) {
    INFO(each.name);
    constexpr int kLimit = 100;
    TimeBudget time = MovedClock::budget(kLimit);
    const Metered made = metered(each.source, &time);
    CHECK(MovedClock::looks <= kLimit + 2);  // the budget has one reading when it is made
    CHECK(made.longest_piece <= kMostBetweenLooks);
    CHECK(made.steps <= (kLimit + 2) * kMostBetweenLooks);
    CHECK(made.most_bytes <= Limits().max_value_bytes);
    CHECK(time.was_used_up() == (made.error == "it takes longer than 100 ms"));
  }
}

TEST_CASE("whatever a template does, it ends at the next look once it is not wanted any more") {
  for (const test::WorstCase& each : test::kWorstCases) {
    INFO(each.name);
    for (const std::int64_t at : {2, 10, 40}) {
      TimeBudget time = MovedClock::budget(1000);
      MovedClock::sets_at = at;
      const Metered made = metered(each.source, &time, &MovedClock::flag);
      CHECK(MovedClock::looks <= at);
      CHECK(made.was_interrupted == MovedClock::flag);
    }
  }
}

TEST_CASE("a dictionary is a table: a search looks at few slots, and keeps the order of insertion") {
  const auto steps = [](int size) {
    return metered("{% set d = dict(range(" + std::to_string(size) +
                   ") | batch(2) | list) %}"
                   "{% for i in range(1000) %}{% set x = d[i] %}{% endfor %}")
               .steps -
           metered("{% set d = dict(range(" + std::to_string(size) +
                   ") | batch(2) | list) %}"
                   "{% for i in range(1000) %}{% set x = i %}{% endfor %}")
               .steps;
  };
  CHECK(steps(100'000) < 2 * steps(1000));
}

TEST_CASE("memory is counted before it is taken, whatever takes it") {
  // A text of 150 MB is not begun; of one that has room no more lines are made than have.
  CHECK(metered("{% set x = ('\n' * 150000000).splitlines() %}").most_bytes < 100'000);
  for (const char* source :
       {"{% set x = ('\n' * 5000000).splitlines() %}", "{% set x = (' a' * 5000000).split() %}",
        "{% set x = ('\n' * 5000000) | indent('a' * 100) %}", "{% set x = ('a' * 5000000) | list %}",
        "{% set l = [1] * 500000 %}{% set x = l | sort | map('string') | list | reverse | list %}",
        "{{ (messages[0].content * 1000000).replace('', 'x') }}"}) {
    INFO(source);
    const Metered made = metered(source);
    CHECK(made.error == "its values take more than 64 MiB");
    CHECK(made.most_bytes <= std::size_t{64} << 20);
  }
}

TEST_CASE("a budget of time is used up once, by the processor's or by a clock's unless the thread was starved") {
  static std::int64_t elapsed, processor;
  const TimeBudget::Clock clock = {[]() -> TimeBudget::Time { return std::chrono::milliseconds(elapsed); },
                                   []() -> TimeBudget::Time { return std::chrono::milliseconds(processor); }};
  elapsed = processor = 5;
  TimeBudget time(std::chrono::milliseconds(1000), std::chrono::milliseconds(100), clock);
  elapsed = 900;
  processor = 104;
  CHECK_FALSE(time.is_used_up());  // others had the processor
  processor = 105;
  CHECK(time.is_used_up());
  CHECK(time.was_used_up());
  elapsed = processor = 5;
  TimeBudget other(std::chrono::milliseconds(1000), std::chrono::milliseconds(100), clock);
  elapsed = 5000;
  processor = 29;
  CHECK_FALSE(other.is_used_up());
  processor = 30;
  CHECK(other.is_used_up());
}

}  // namespace
}  // namespace troupe::engine::chat
