#include "config/options/values.h"

#include <catch2/catch.hpp>

using namespace troupe::config;

namespace {

const Option& option(std::string_view name) {
  for (const Option& row : option_table())
    if (row.name == name) return row;
  FAIL("no option " << name);
  std::abort();
}

// The error of assigning `text`, or "" and the new value's text.
std::string assigned(std::string_view name, std::vector<std::string> texts, Options& options) {
  return assign(option(name), texts, options).value_or("");
}
std::string error_of(std::string_view name, const std::string& text) {
  Options options;
  return assigned(name, {text}, options);
}

}  // namespace

TEST_CASE("amounts of memory are read in every unit and written in the shortest exact one") {
  CHECK(parse_bytes("4096") == 4096u);
  CHECK(parse_bytes("0") == 0u);
  CHECK(parse_bytes("512b") == 512u);
  CHECK(parse_bytes("3k") == 3072u);
  CHECK(parse_bytes("3KiB") == 3072u);
  CHECK(parse_bytes("3KB") == 3000u);
  CHECK(parse_bytes("512M") == 512u << 20);
  CHECK(parse_bytes("2mb") == 2'000'000u);
  CHECK(parse_bytes("4GiB") == std::uint64_t{4} << 30);
  CHECK(parse_bytes("1.5g") == std::uint64_t{3} << 29);
  CHECK(parse_bytes("2GB") == 2'000'000'000u);
  CHECK(parse_bytes("1T") == std::uint64_t{1} << 40);
  CHECK(parse_bytes("1TB") == 1'000'000'000'000u);
  for (const char* bad : {"", "GiB", "-1", "4 GiB", "4Gigs", "1.2.3M", "0x10", "1e3", "nan", "inf", "9999999T", "M4"})
    CHECK_FALSE(parse_bytes(bad));
  CHECK(format_bytes(0) == "0");
  CHECK(format_bytes(1000) == "1000");
  CHECK(format_bytes(1536) == "1536");
  CHECK(format_bytes(3 << 10) == "3KiB");
  CHECK(format_bytes(std::uint64_t{3} << 29) == "1536MiB");
  CHECK(format_bytes(std::uint64_t{4} << 40) == "4TiB");
  CHECK(format_bytes(std::uint64_t{1} << 60) == "1048576TiB");
}

TEST_CASE("durations are read in every unit and written in the shortest exact one") {
  using std::chrono::milliseconds;
  CHECK(parse_duration("500ms") == milliseconds(500));
  CHECK(parse_duration("30s") == milliseconds(30'000));
  CHECK(parse_duration("30") == milliseconds(30'000));
  CHECK(parse_duration("1.5s") == milliseconds(1500));
  CHECK(parse_duration("2m") == milliseconds(120'000));
  CHECK(parse_duration("2MIN") == milliseconds(120'000));
  CHECK(parse_duration("1h") == milliseconds(3'600'000));
  CHECK(parse_duration("1d") == milliseconds(86'400'000));
  for (const char* bad : {"", "s", "-1s", "1 s", "1y", "1001d", "1s2"}) CHECK_FALSE(parse_duration(bad));
  CHECK(format_duration(milliseconds(0)) == "0s");
  CHECK(format_duration(milliseconds(1)) == "1ms");
  CHECK(format_duration(milliseconds(1500)) == "1500ms");
  CHECK(format_duration(milliseconds(90'000)) == "90s");
  CHECK(format_duration(milliseconds(120'000)) == "2m");
  CHECK(format_duration(milliseconds(86'400'000)) == "24h");
}

TEST_CASE("numbers and switches are read whole or not at all") {
  CHECK(parse_integer("-7") == -7);
  for (const char* bad : {"", "7x", "7.0", " 7", "99999999999999999999", "+7"}) CHECK_FALSE(parse_integer(bad));
  CHECK(parse_number("0.25") == 0.25);
  CHECK(parse_number("-1e-3") == -0.001);
  for (const char* bad : {"", "nan", "inf", "-inf", "1.0x", "0,5"}) CHECK_FALSE(parse_number(bad));
  for (const char* yes : {"1", "true", "YES", "On"}) CHECK(parse_switch(yes) == true);
  for (const char* no : {"0", "False", "no", "off"}) CHECK(parse_switch(no) == false);
  CHECK_FALSE(parse_switch("maybe"));
  CHECK_FALSE(parse_switch(""));
  CHECK(format_number(0.1) == "0.1");
  CHECK(format_number(1.0) == "1");
}

TEST_CASE("a value of every type reaches its field") {
  Options options;
  CHECK(assigned("json", {"yes"}, options).empty());
  CHECK(assigned("ctx-size", {"4096"}, options).empty());
  CHECK(assigned("temp", {"0.5"}, options).empty());
  CHECK(assigned("memory", {"2G"}, options).empty());
  CHECK(assigned("timeout", {"250ms"}, options).empty());
  CHECK(assigned("seed", {"18446744073709551615"}, options).empty());
  CHECK(assigned("kv-type", {"f32"}, options).empty());
  CHECK(assigned("model", {"a b.gguf"}, options).empty());
  CHECK(assigned("allow-uid", {"1,2", "3"}, options).empty());
  CHECK(assigned("stop", {"a,b", "c"}, options).empty());
  CHECK(options.json);
  CHECK(options.ctx_size == 4096);
  CHECK(options.temperature == 0.5);
  CHECK(options.memory == Bytes{std::uint64_t{2} << 30});
  CHECK(options.timeout == std::chrono::milliseconds(250));
  CHECK(options.seed == 18446744073709551615u);
  CHECK(options.kv_type == "f32");
  CHECK(options.model == std::vector<std::string>{"a b.gguf"});
  CHECK(options.allow_uid == std::vector<std::int64_t>{1, 2, 3});
  CHECK(options.stop == std::vector<std::string>{"a,b", "c"});
  CHECK(assigned("seed", {"-1"}, options).empty());
  CHECK_FALSE(options.seed);
  CHECK(assigned("allow-uid", {""}, options).empty());
  CHECK(options.allow_uid.empty());
  CHECK(assigned("threads", {"1", "2"}, options).empty());
  CHECK(options.threads == 2);
}

TEST_CASE("a bad value is named with what is allowed, and changes nothing") {
  CHECK(error_of("json", "perhaps") == "'perhaps' is not a switch: it must be true or false");
  CHECK(error_of("parallel", "0") == "0 is out of range: it must be 1 to 4096");
  CHECK(error_of("parallel", "many") == "'many' is not a whole number (1 to 4096)");
  CHECK(error_of("temp", "101") == "101 is out of range: it must be 0 to 100");
  CHECK(error_of("temp", "hot") == "'hot' is not a number (0 to 100)");
  CHECK(error_of("top-p", "0") == "0 is out of range: it must be above 0, at most 1");
  CHECK(error_of("max-frame-bytes", "17MiB") == "17MiB is out of range: it must be 4KiB to 16MiB");
  CHECK(error_of("memory", "lots") == "'lots' is not an amount of memory such as 512M or 4GiB (0 to 1024TiB)");
  CHECK(error_of("drain-timeout", "25h") == "25h is out of range: it must be 0s to 24h");
  CHECK(error_of("drain-timeout", "soon") == "'soon' is not a duration such as 500ms or 30s (0s to 24h)");
  CHECK(error_of("seed", "-2") == "'-2' is not a seed: it must be a whole number from 0 on, or -1");
  CHECK(error_of("kv-type", "f61") == "'f61' is not one of f16|f32|int8|q8_0 (did you mean f16?)");
  CHECK(error_of("log-level", "loud") == "'loud' is not one of trace|debug|info|warn|error|off");
  CHECK(error_of("allow-uid", "1,x") == "'x' is not a whole number (0 to 4294967294)");
  CHECK(error_of("allow-uid", "1,-1") == "-1 is out of range: it must be 0 to 4294967294");
  Options options;
  CHECK_FALSE(assigned("parallel", {"0"}, options).empty());
  CHECK_FALSE(assigned("allow-uid", {"5,x"}, options).empty());
  CHECK(options.max_sequences == Options{}.max_sequences);
  CHECK(options.allow_uid.empty());
}

TEST_CASE("ranges are described in the option's unit, open ends too") {
  Option row = option("threads");
  row.range = {};
  CHECK(describe_range(row).empty());
  row.range = {.min = 3};
  CHECK(describe_range(row) == "3 or more");
  row.range.above_min = true;
  CHECK(describe_range(row) == "above 3");
  row.range = {.max = 9};
  CHECK(describe_range(row) == "at most 9");
}

TEST_CASE("every default reads back from its own text") {
  const Options defaults;
  for (const Option& row : option_table()) {
    Options options;
    const std::vector<std::string> texts = to_texts(row, defaults);
    if (texts.empty()) continue;  // an empty list
    INFO(row.name);
    CHECK(assign(row, texts, options).value_or("") == "");
    CHECK(to_texts(row, options) == texts);
  }
}

TEST_CASE("the nearest name is found for slips and not for other words") {
  const std::vector<std::string> names{"--temp", "--top-k", "--top-p", "--max-num-seqs", "-c"};
  CHECK(nearest("--tmep", names) == "--temp");
  CHECK(nearest("--tem", names) == "--temp");
  CHECK(nearest("-temp", names) == "--temp");
  CHECK(nearest("--max-num-sequences", names) == "--max-num-seqs");
  CHECK(nearest("--top_k", names) == "--top-k");
  CHECK_FALSE(nearest("--help", names));
  CHECK_FALSE(nearest("-x", names));
  CHECK_FALSE(nearest("", names));
  CHECK_FALSE(nearest("--temp", {}));
}
