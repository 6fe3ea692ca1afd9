#include <unistd.h>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/client/first_words.h"
#include "cli/model/bench_report.h"
#include "cli/model/probe_report.h"
#include "cli/serve/tenant_rules.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/signals.h"
#include "cli/terminal/status_line.h"
#include "cli/terminal/text.h"

using namespace troupe;
using namespace troupe::cli;

TEST_CASE("every error has the exit code that scripts and service managers expect") {
  CHECK(exit_code(ErrorCode::invalid_argument) == 2);
  CHECK(exit_code(ErrorCode::bad_config) == 78);
  CHECK(exit_code(ErrorCode::bad_model) == 65);
  CHECK(exit_code(ErrorCode::unsupported) == 65);
  CHECK(exit_code(ErrorCode::model_missing) == 66);
  CHECK(exit_code(ErrorCode::permission) == 77);
  CHECK(exit_code(ErrorCode::busy) == 69);
  CHECK(exit_code(ErrorCode::io) == 1);
  CHECK(exit_code(ErrorCode::protocol) == 1);
  CHECK(exit_code(ErrorCode::out_of_memory) == 1);
  CHECK(client_exit_code(ErrorCode::busy) == 75);
  CHECK(client_exit_code(ErrorCode::unsupported) == 2);
  CHECK(client_exit_code(ErrorCode::permission) == 77);
}

TEST_CASE("amounts are written with three digits") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1536) == "1.50 KiB");
  CHECK(human_bytes(98304) == "96.0 KiB");
  CHECK(human_bytes(192u << 20) == "192 MiB");
  CHECK(human_bytes(std::uint64_t{3} << 50) == "3072 TiB");
  CHECK(human_count(999) == "999");
  CHECK(human_count(5'250'000) == "5.25 M");
  CHECK(human_count(1'100'000'000) == "1.10 G");
}

TEST_CASE("any number is a time, also one that no calendar has") {
  constexpr const char* kDay = "%Y-%m-%d";
  CHECK(local_time(std::int64_t{1'000'000'000}, kDay) == "2001-09-09");
  CHECK(local_time(~std::uint64_t{0}, kDay) == "@18446744073709551615");
  CHECK(local_time(std::uint64_t{1} << 63, kDay) == "@9223372036854775808");
  CHECK(local_time((std::uint64_t{1} << 63) - 1, kDay) == "@9223372036854775807");
  CHECK(local_time(std::numeric_limits<std::int64_t>::min(), kDay) == "@-9223372036854775808");
  CHECK(local_time(std::int64_t{300'000'000'000}, kDay) == "@300000000000");  // the year 11476
  CHECK(local_time(std::int64_t{-1'000'000'000}, kDay) == "1938-04-24");
}

TEST_CASE("labels and values stand in two columns") {
  CHECK(aligned({{"a", "1"}, {"long", "2"}}) == "a     1\nlong  2\n");
  CHECK(aligned({}).empty());
}

TEST_CASE("token ids are read with spaces, commas or brackets, and nothing else") {
  CHECK(*parse_ids("1 424\n437") == std::vector<TokenId>{1, 424, 437});
  CHECK(*parse_ids("[1, 424,437]") == std::vector<TokenId>{1, 424, 437});
  CHECK(parse_ids("")->empty());
  CHECK(format_ids({1, 2}) == "[1, 2]");
  CHECK(format_ids({}) == "[]");
  for (const char* bad : {"1 x", "-1", "1.5", "2147483648"}) {
    const auto ids = parse_ids(bad);
    REQUIRE_FALSE(ids);
    CHECK(ids.error().code == ErrorCode::invalid_argument);
    CHECK(ids.error().message.find("is not a token id") != std::string::npos);
  }
}

TEST_CASE("the bar fills from left to right and never overflows") {
  CHECK(Progress::bar(0) == "[" + std::string(40, '.') + "]   0 %");
  CHECK(Progress::bar(0.5) == "[" + std::string(20, '#') + std::string(20, '.') + "]  50 %");
  CHECK(Progress::bar(1) == "[" + std::string(40, '#') + "] 100 %");
  CHECK(Progress::bar(1.5) == Progress::bar(1));
  CHECK(Progress::bar(-1) == Progress::bar(0));
}

namespace {

// To a stream of C's, as the real one is.
class FileSink final : public spdlog::sinks::sink {
 public:
  explicit FileSink(std::FILE* out) : out_(out) {}
  void log(const spdlog::details::log_msg& message) override {
    std::fwrite(message.payload.data(), 1, message.payload.size(), out_);
    std::fputc('\n', out_);
  }
  void flush() override { std::fflush(out_); }
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  std::FILE* out_;
};

// What is logged while it lives.
class LogCapture {
 public:
  LogCapture() : previous_(spdlog::default_logger()) {
    auto logger = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~LogCapture() { spdlog::set_default_logger(previous_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> previous_;
};

}  // namespace

TEST_CASE("away from a terminal, progress is a line per tenth, from the first second on") {
  using namespace std::chrono_literals;
  const LogCapture log;
  const Progress::Clock::time_point start{};
  Progress progress(false, start);
  progress.update(0.3, start + 999ms);
  CHECK(log.text().empty());
  progress.update(0.35, start + 1s);
  progress.update(0.39, start + 2s);
  progress.update(0.41, start + 3s);
  progress.finish();
  CHECK(log.text() == "loading: 30 %\nloading: 40 %\n");
}

TEST_CASE("what is logged or written while a line is drawn stands on a line of its own, above it") {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  const auto written = [&] {
    std::fflush(out);
    return std::string(text, size);
  };
  {
    StatusLine line(out);
    spdlog::logger logger("test", std::make_shared<FileSink>(out));
    log_above(line, logger);
    log_above(line, logger);  // once is enough
    logger.info("before");
    line.draw("loading [##..]");
    line.draw("loading [###.]");
    logger.info("loaded");
    line.write_above([&] { std::fputs("plain\n", out); });
    line.draw("again");
  }
  CHECK(written() ==
        "before\n\r\033[Kloading [##..]\r\033[Kloading [###.]\r\033[Kloaded\nplain\n\r\033[Kagain\r\033[K");
  std::fclose(out);
  std::free(text);
}

TEST_CASE("a model that bench and eval load shows its progress up to the end, if it takes over a second") {
  using namespace std::chrono_literals;
  const std::string tales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
  const LogCapture log;
  const auto now = Progress::Clock::now();
  REQUIRE(load_showing(tales, {}, Progress(false, now + 1h)));  // never a second after its start
  CHECK(log.text().empty());
  REQUIRE(load_showing(tales, {}, Progress(false, now - 1h)));
  CHECK(log.text().ends_with("loading: 100 %\n"));
  CHECK_FALSE(load_showing(tales + ".none", {}, Progress(false, now)));
}

TEST_CASE("the median of an even count is between the two in the middle") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
}

TEST_CASE("a benchmark's case is named as llama-bench names it") {
  CHECK(BenchCase{.depth = 0, .num_prompt = 512}.name() == "pp512");
  CHECK(BenchCase{.depth = 128, .num_gen = 64, .batch = 8}.name() == "tg64 x8 @ d128");
}

TEST_CASE("posted events and signals come out of one queue, and waiting can time out") {
  using namespace std::chrono_literals;
  EventQueue events;
  const SignalThread signals({SIGINT, SIGTERM}, [&](int number) { events.post_signal(number); });
  CHECK_FALSE(events.wait(0ms));
  std::thread([&] {
    events.post(Event::loaded);
    events.post(Event::ended);
  }).join();
  CHECK(events.wait() == Event::loaded);
  CHECK(events.wait() == Event::ended);
  CHECK_FALSE(events.wait(0ms));
  CHECK(events.last_signal() == 0);
  ::kill(::getpid(), SIGTERM);
  CHECK(events.wait() == Event::signal);
  CHECK(events.last_signal() == SIGTERM);
  std::thread late([&] { events.post(Event::ended); });
  CHECK(events.wait() == Event::ended);
  late.join();
}

TEST_CASE("a probe is shown with what was disturbed, and what the CPU lacks") {
  engine::MachineProbe probe;
  probe.machine = {"Some CPU", "", "0-1"};
  probe.num_threads = 2;
  probe.clock = {3e9, 1, 0, 0};
  probe.pairs = {{kernels::Unit::int8_avx2, 0, 1, 0.52, 0}};
  probe.peaks = {{kernels::Unit::int8_avx2, 1, {200e9, 1, 0, 0}}, {kernels::Unit::int8_avx2, 2, {210e9, 1, 0, 3}}};
  probe.reads = {{1u << 30, 1, true, {10e9, 1, 0, 0}}, {1u << 30, 1, false, {9e9, 1, 2, 0}}};
  std::ostringstream out;
  print_probe(probe, out);
  const std::string text = out.str();
  INFO(text);
  for (const char* line : {"\nclock       3.00 GHz\n", "keep 52 % each (int8-avx2): siblings of one core\n",
                           "\nwake-up     not measured: there is one CPU\n",
                           "\nint8-avx2             200         210*\n", "\nint8-amx           absent      absent\n",
                           "\n1.00 GiB   2 MiB      10.0\n", "\n1.00 GiB   4 KiB       9.0*\n", "\n* measured while"})
    CHECK_THAT(text, Catch::Contains(line));
  CHECK(text.find("over 1 %, so") == std::string::npos);
  probe.others_percent = 1.5;
  print_probe(probe, out);
  CHECK_THAT(out.str(), Catch::Contains("by other processes 1.5 %: over 1 %, so the limits are higher"));

  CHECK(limits_line(probe, 2, {kernels::Unit::none, kernels::Unit::int8_avx2, kernels::Unit::int8_amx}) ==
        "read 10.0 GB/s (1.00 GiB), int8-avx2 210 GOP/s");
  CHECK(limits_line({}, 2, {kernels::Unit::int8_avx2}).empty());
  CHECK(share_text(0.638, "read") == "64 % of read");
}

TEST_CASE("a first word that looks like a model's name is told from the beginning of a text") {
  const std::vector<std::string> served{"tales"};
  for (const char* name : {"tales", "llama3", "Llama-3.2-1B", "qwen2.5:7b", "phi3", "a.gguf", "models/b.gguf", "yi-6b"})
    CHECK(looks_like_model(name, served));
  for (const char* word : {"Once", "llama", "Llamas", "tale", "3", "phi", "gptify2", "Yiddish", "2001:", "gemma or 2"})
    CHECK_FALSE(looks_like_model(word, served));
}

TEST_CASE("a server's message names flags instead of fields") {
  CHECK(with_flags("deadline_ms: ask for a longer deadline_ms, or fewer max_tokens") ==
        "--timeout: ask for a longer --timeout, or fewer -n");
  CHECK(with_flags("top_k must be 0 or more; max_tokens_left, xtop_k") ==
        "--top-k must be 0 or more; max_tokens_left, xtop_k");
  CHECK(with_flags("").empty());
  CHECK(with_flags("(temperature)") == "(--temp)");
}

TEST_CASE("a rule by cgroup is refused by name where processes have no cgroup that it could match") {
  config::Given given;
  given.file = "t.toml";
  given.tenants = {{.line = 3, .uid = {1}}, {.line = 7, .cgroup = "/system.slice/web.service"}};
  CHECK(check_cgroup_rules(given, "0::/\n"));
  CHECK(check_cgroup_rules(given, "9:memory:/m\n1:name=systemd:/user.slice\n"));
  const Status refused = check_cgroup_rules(given, "9:memory:/m\n3:cpu,cpuacct:/c\n");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::bad_config);
  CHECK(refused.error().message.starts_with("t.toml:7: cgroup = '/system.slice/web.service' would match no process"));
  given.tenants.pop_back();
  CHECK(check_cgroup_rules(given, ""));
}
