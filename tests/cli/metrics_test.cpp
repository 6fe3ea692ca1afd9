// What `troupe status --prometheus` and `troupe top` make of a status.
#include <catch2/catch.hpp>

#include "cli/prometheus.h"
#include "cli/top_screen.h"
#include "tests/cli/prometheus_text.h"

using namespace troupe;
using namespace troupe::cli;
using test::Labels;
using test::PrometheusText;

namespace {

client::ServerStatus some_status() {
  client::ServerStatus s;
  s.health.readiness = client::Readiness::ready;
  s.server = "troupe 0.1.0";
  s.model = "say \"hi\"\\\n";  // what a file's metadata may hold
  s.kernels = "avx2";
  s.uptime_seconds = 100;
  s.num_threads = 2;
  s.requests_running = 2;
  s.requests_waiting = 1;
  s.requests_ended = {{"eos", 5}, {"cancelled", 1}, {"queue_full", 2}, {"internal", 3}};
  s.prompt_tokens = 1000;
  s.cached_tokens = 250;
  s.generated_tokens = 400;
  s.steps = 200;
  s.step_seconds = 1;
  s.blocks_total = 100;
  s.blocks_free = 60;
  s.blocks_cached = 30;
  s.blocks_referenced = 25;
  s.window_blocks_total = 10;
  s.window_blocks_cached = 4;
  s.snapshots_total = 7;
  s.snapshots_cached = 3;
  s.snapshot_hits = 12;
  s.histogram_bounds = {0.001, 0.01, 0.1};
  s.histograms = {{.name = "time_to_first_token", .counts = {1, 6, 2, 1}, .sum_seconds = 0.5}};
  s.memory = {{.kind = "weights", .bytes = 2u << 20, .peak_bytes = 2u << 20}};
  s.resident_bytes = 20u << 20;
  s.live_requests = {
      {.request = 7, .uid = 1000, .state = "queued", .prompt_tokens = 12, .age_seconds = 0.4},
      {.request = 8, .uid = 1000, .state = "running", .prompt_tokens = 40, .generated_tokens = 9, .age_seconds = 75},
      {.request = 9, .uid = 1001, .state = "running", .prompt_tokens = 800, .age_seconds = 4000}};
  return s;
}

}  // namespace

TEST_CASE("prometheus: the text parses, with vLLM's names behind troupe's prefix") {
  const client::ServerStatus status = some_status();
  const PrometheusText text(to_prometheus(status));
  const std::string model = "say \"hi\"\\\\n";  // Printable, and as the reader leaves the escapes
  const Labels only{{"model_name", model}};
  CHECK(text.value("troupe:num_requests_running", only) == 2);
  CHECK(text.value("troupe:num_requests_waiting", only) == 1);
  CHECK(text.value("troupe:kv_cache_usage_perc", only) == 0.25);
  CHECK(text.value("troupe:prefix_cache_queries_total", only) == 1000);
  CHECK(text.value("troupe:prefix_cache_hits_total", only) == 250);
  CHECK(text.value("troupe:generation_tokens_total", only) == 400);
  CHECK(text.value("troupe:request_success_total", {{"model_name", model}, {"finished_reason", "eos"}}) == 5);
  CHECK(text.value("troupe:request_success_total", {{"model_name", model}, {"finished_reason", "length"}}) == 0);
  CHECK(text.value("troupe:request_failure_total",
                   {{"model_name", model}, {"kind", "refused"}, {"reason", "queue_full"}}) == 2);
  CHECK(text.value("troupe:request_failure_total",
                   {{"model_name", model}, {"kind", "failed"}, {"reason", "internal"}}) == 3);
  CHECK(text.value("troupe:memory_bytes", {{"model_name", model}, {"kind", "weights"}}) == 2u << 20);
  CHECK(text.value("troupe:kv_window_blocks", {{"model_name", model}, {"state", "cached"}}) == 4);
  CHECK(text.value("troupe:state_snapshots", only) == 3);
  CHECK(text.value("troupe:state_snapshots_capacity", only) == 7);
  CHECK(text.value("troupe:state_snapshot_hits_total", only) == 12);
}

TEST_CASE("prometheus: what the model has no layers for is not there") {
  client::ServerStatus status = some_status();
  status.window_blocks_total = status.snapshots_total = 0;
  const PrometheusText text(to_prometheus(status));
  for (const auto& [name, family] : text.families) {
    CHECK(name.find("window") == std::string::npos);
    CHECK(name.find("snapshot") == std::string::npos);
  }
}

TEST_CASE("prometheus: a histogram's buckets add up, what is above all bounds is in +Inf") {
  const PrometheusText text(to_prometheus(some_status()));
  const auto& family = text.families.at("troupe:time_to_first_token_seconds");
  CHECK(family.type == "histogram");
  const std::string name = "troupe:time_to_first_token_seconds";
  CHECK(family.samples.at(name + "_count").begin()->second == 10);
  CHECK(family.samples.at(name + "_sum").begin()->second == 0.5);
  std::vector<double> counts;
  for (const auto& [labels, count] : family.samples.at(name + "_bucket")) counts.push_back(count);
  std::sort(counts.begin(), counts.end());
  CHECK(counts == std::vector<double>{1, 7, 9, 10});
}

TEST_CASE("quantiles are upper bounds of buckets, of what was counted in between") {
  const client::ServerStatus status = some_status();
  CHECK(quantile(status, {}, "time_to_first_token", 0.5) == 0.01);
  CHECK(quantile(status, {}, "time_to_first_token", 0.1) == 0.001);
  CHECK_FALSE(quantile(status, {}, "time_to_first_token", 0.99));     // above the last bound
  CHECK_FALSE(quantile(status, status, "time_to_first_token", 0.5));  // nothing new
  CHECK_FALSE(quantile(status, {}, "no_such_histogram", 0.5));
  client::ServerStatus later = status;
  later.histograms[0].counts[2] += 5;
  CHECK(quantile(later, status, "time_to_first_token", 0.5) == 0.1);
}

TEST_CASE("top fits any screen, and shows who runs before who waits") {
  const client::ServerStatus status = some_status();
  for (const std::size_t rows : {1u, 5u, 9u, 12u, 24u})
    for (const std::size_t columns : {1u, 40u, 80u, 200u}) {
      const auto lines = top_screen(status, std::nullopt, {.rows = rows, .columns = columns});
      CHECK(lines.size() <= rows);
      for (const std::string& line : lines) CHECK(line.size() <= columns);
    }
  const auto lines = top_screen(status, std::nullopt, {});
  std::string screen;
  for (const std::string& line : lines) screen += line + "\n";
  INFO(screen);
  const std::size_t decode = screen.find("decode"), prefill = screen.find("prefill"), queued = screen.find("queued");
  REQUIRE(queued != std::string::npos);
  CHECK(decode < prefill);
  CHECK(prefill < queued);
  CHECK(screen.find("2 running, 1 waiting, 0 parked") != std::string::npos);
  CHECK(screen.find("4.0 tokens/s generated") != std::string::npos);
  CHECK(screen.find("(25 % cached)") != std::string::npos);
  CHECK(screen.find("of 5.00 ms") != std::string::npos);
  CHECK(screen.find("1:06:40") != std::string::npos);
}

TEST_CASE("top's speeds are those since the last look, and what does not fit is counted") {
  const client::ServerStatus before = some_status();
  client::ServerStatus now = before;
  now.uptime_seconds += 2;
  now.generated_tokens += 100;
  const auto lines = top_screen(now, before, {.rows = 12, .columns = 80});
  std::string screen;
  for (const std::string& line : lines) screen += line + "\n";
  INFO(screen);
  CHECK(screen.find("50.0 tokens/s generated") != std::string::npos);
  CHECK(screen.find("... and 2 more") != std::string::npos);
  client::ServerStatus shared = before;
  shared.live_requests.erase(shared.live_requests.begin() + 2);
  std::string own;
  for (const std::string& line : top_screen(shared, before, {})) own += line + "\n";
  CHECK(own.find("... and 1 of other users") != std::string::npos);
}
