// The output of `troupe status --prometheus` and `troupe top` for given statuses.
#include <catch2/catch.hpp>

#include <algorithm>

#include "cli/client/prompt_progress.h"
#include "cli/status/status_report.h"
#include "cli/status/top_screen.h"
#include "cli/terminal/accounts.h"
#include "cli/terminal/text.h"
#include "ipc/http/prometheus_text.h"
#include "tests/cli/prometheus_text.h"

using namespace troupe;
using namespace troupe::cli;
using test::Labels;
using test::PrometheusText;

namespace {

client::ServerStatus status_without_numbers() {
  client::ServerStatus s;
  s.health.readiness = client::Readiness::ready;
  s.server = "troupe 0.1.0";
  s.model = "say \"hi\"\\\n";  // what a file's metadata may hold
  s.kernels = "avx2";
  s.num_threads = 2;
  s.requests_ended = {{"eos", 5}, {"cancelled", 1}, {"queue_full", 2}, {"internal", 3}};
  s.histogram_bounds = {0.001, 0.01, 0.1};
  s.memory = {{.kind = "weights", .bytes = 2u << 20, .peak_bytes = 2u << 20}};
  return s;
}

// The same with numbers.
client::ServerStatus some_status(double uptime_seconds = 100, double generated_tokens = 400, double running = 2,
                                 std::uint64_t within_100_ms = 2) {
  client::ServerStatus s = status_without_numbers();
  MetricList& m = s.metrics;
  m.gauge("uptime_seconds", "Since the start.", uptime_seconds);
  m.gauge("num_requests_running", "Requests that take part in steps.", running, {.key = "requests_running"});
  m.gauge("num_requests_waiting", "Requests that wait.", 1, {.key = "requests_waiting"});
  for (const auto& [reason, count] : {std::pair{"eos", 5}, {"length", 0}})
    m.counter("request_success", "By how.", count, {.labels = {{"finished_reason", reason}}});
  m.counter("request_failure", "By why.", 2, {.labels = {{"kind", "refused"}, {"reason", "queue_full"}}});
  m.counter("request_failure", "By why.", 3, {.labels = {{"kind", "failed"}, {"reason", "internal"}}});
  m.counter("prompt_tokens", "Tokens.", 1000);
  m.counter("prefix_cache_queries", "Tokens.", 1000);
  m.counter("prefix_cache_hits", "Tokens.", 250, {.key = "cached_tokens"});
  m.counter("generation_tokens", "Tokens.", generated_tokens, {.key = "generated_tokens"});
  m.counter("steps", "Passes.", 200);
  m.counter("step_seconds", "Their time.", 1);
  m.gauge("kv_blocks_capacity", "Blocks.", 100, {.key = "blocks_total"});
  m.gauge("kv_blocks", "Blocks by state.", 60, {.labels = {{"state", "free"}}, .key = "blocks_free"});
  m.gauge("memory_bytes", "By kind.", 2u << 20, {.labels = {{"kind", "weights"}}});
  m.gauge("kv_blocks", "Blocks by state.", 25, {.labels = {{"state", "referenced"}}, .key = "blocks_referenced"});
  m.gauge("kv_cache_usage_perc", "Share.", 0.25);
  m.gauge("kv_window_blocks", "Of layers with a window.", 4, {.labels = {{"state", "cached"}}});
  m.gauge("model_ready", "Of a model.", 1, {.labels = {{"model", "cats"}}});
  m.gauge("state_snapshots", "Of recurrent state.", 3);
  m.gauge("state_snapshots_capacity", "Room for them.", 7);
  m.counter("state_snapshot_hits", "Sequences.", 12);
  m.gauge("resident_memory_bytes", "All.", 20u << 20, {.key = "resident_bytes"});
  m.add({.name = "time_to_first_token",
         .help = "Histogram.",
         .kind = MetricKind::histogram,
         .value = 0.5,
         .counts = {1, 6, within_100_ms, 1},
         .key = "time_to_first_token"});
  s.live_requests = {
      {.request = 7, .uid = 1000, .state = "queued", .prompt_tokens = 12, .age_seconds = 0.4},
      {.request = 8, .uid = 1000, .state = "running", .prompt_tokens = 40, .generated_tokens = 9, .age_seconds = 75},
      {.request = 9,
       .uid = 1001,
       .state = "running",
       .prompt_tokens = 800,
       .computed_tokens = 512,
       .age_seconds = 4000}};
  return s;
}

std::string name_of_uid(std::uint32_t uid) { return uid == 1000 ? "anna" : "ben"; }

TopScreen screen_of(const client::ServerStatus& status) {
  TopScreen screen(name_of_uid);
  screen.show(status);
  return screen;
}

std::string text_of(const TopScreen& screen, ScreenSize size = {}, bool with_keys = true) {
  std::string text;
  for (const std::string& line : screen.lines(size, with_keys)) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("prometheus: series of the whole server keep the first model's name when another one becomes the default") {
  client::ServerStatus status = some_status();
  status.first_model = "dogs";
  const PrometheusText text(ipc::http::prometheus_text(status));
  CHECK(text.value("troupe:num_requests_running", {{"model_name", "dogs"}}) == 2);
  CHECK(text.value("troupe:model_ready", {{"model_name", "cats"}, {"model", "cats"}}) == 1);
}

TEST_CASE("prometheus: the text parses, with vLLM's names behind troupe's prefix") {
  const client::ServerStatus status = some_status();
  const PrometheusText text(ipc::http::prometheus_text(status));
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
  CHECK(text.value("troupe:model_ready", {{"model_name", "cats"}, {"model", "cats"}}) == 1);
  CHECK(text.value("troupe:state_snapshots", only) == 3);
  CHECK(text.value("troupe:state_snapshots_capacity", only) == 7);
  CHECK(text.value("troupe:state_snapshot_hits_total", only) == 12);
}

TEST_CASE("status: it names the tenants that are refused most, with what for, as far as the server tells") {
  client::ServerStatus status = some_status();
  CHECK(status_text(status, false).find("\nrefused ") == std::string::npos);
  const auto add = [&](const std::string& tenant, const std::vector<std::pair<std::string, double>>& reasons) {
    double refused = 0;
    for (const auto& [reason, count] : reasons) {
      refused += count;
      status.metrics.append(
          {.name = "tenant_requests_refused", .value = count, .labels = {{"tenant", tenant}, {"limit", reason}}});
    }
    status.metrics.append({.name = "tenant_requests_received", .value = 100, .labels = {{"tenant", tenant}}});
    status.metrics.append(
        {.name = "tenant_requests_ended", .value = refused, .labels = {{"tenant", tenant}, {"kind", "refused"}}});
    status.metrics.append(
        {.name = "tenant_requests_ended", .value = 3, .labels = {{"tenant", tenant}, {"kind", "done"}}});
  };
  add("0", {{"too_long", 2}});
  add("web", {});
  add("lab", {{"queue_full", 1}, {"max_requests_per_user", 40}});
  add("ci", {{"too_long", 1}});
  add("4000000123", {{"quota", 30}});
  CHECK(status_text(status, false)
            .find("lab 41 of 100 (max_requests_per_user 40, queue_full 1); 4000000123 30 of 100 (quota 30); root 2 of "
                  "100 (too_long 2); 1 others") != std::string::npos);
  const auto json = status_json(status, {})["refused_most"];
  REQUIRE(json.size() == 4);
  CHECK(json[0]["tenant"] == "lab");
  CHECK(json[0]["refused"] == 41);
  CHECK(json[0]["reasons"]["max_requests_per_user"] == 40);
  TopScreen screen(user_name);
  screen.show(status);
  bool is_shown = false;
  for (const std::string& line : screen.lines({.rows = 30, .columns = 120}, true))
    is_shown |= line.starts_with("refused   lab 41 of 100");
  CHECK(is_shown);
}

TEST_CASE("status: of several models each has its line, and one that failed says why") {
  client::ServerStatus status = some_status();
  CHECK(status_text(status, false).find("model cats") == std::string::npos);
  status.health.models = {{.name = "cats", .readiness = client::Readiness::ready, .load_fraction = 1},
                          {.name = "dogs", .readiness = client::Readiness::loading, .load_fraction = 0.4},
                          {.name = "owls", .readiness = client::Readiness::failed, .problem = "no such file"},
                          {.name = "dogs", .load_fraction = 0.2, .replacing = true},
                          {.name = "cats", .readiness = client::Readiness::draining, .retiring = true}};
  status.models = {{.name = "cats",
                    .numerics_id = "n",
                    .requests_waiting = 1,
                    .requests_running = 2,
                    .prompt_tokens = 30,
                    .generated_tokens = 40,
                    .memory = {{.kind = "weights", .bytes = 1u << 20}, {.kind = "kv_cache", .bytes = 1u << 20}}},
                   {.name = "dogs"},
                   {.name = "owls"},
                   {.name = "dogs"},
                   {.name = "cats", .numerics_id = "o", .requests_running = 5}};
  const std::string text = status_text(status, false);
  CHECK(text.find("ready; 1 waiting, 2 running, 0 parked; 30 tokens of prompts, 40 generated; 2.00 MiB resident\n") !=
        std::string::npos);
  CHECK(text.find("loading (40 %)\n") != std::string::npos);
  CHECK(text.find("failed: no such file\n") != std::string::npos);
  CHECK(text.find("loading (20 %), to replace it\n") != std::string::npos);
  CHECK(text.find("retiring; 0 waiting, 5 running") != std::string::npos);
  const auto json = status_json(status, {});
  CHECK(json["model_health"][2]["readiness"] == "failed");
  CHECK(json["model_health"][2]["problem"] == "no such file");
  CHECK(json["model_health"][3]["replacing"] == true);
  CHECK(json["model_health"][4]["retiring"] == true);
  CHECK(json["model_use"][0]["memory"]["weights"] == 1u << 20);
  CHECK(text_of(screen_of(status), {.rows = 24, .columns = 200}).find("cats, dogs (loading), owls (failed)") !=
        std::string::npos);
  status.own_only = true;
  CHECK(status_text(status, false).find("2 running, 0 parked; 30") == std::string::npos);
}

TEST_CASE("status: models on request have a line, and say so while they are out") {
  client::ServerStatus status = some_status();
  CHECK(status_text(status, false).find("on request") == std::string::npos);
  status.metrics.gauge("models_on_request", "Models.", 5);
  status.metrics.gauge("models_on_request_loaded", "Models.", 2);
  status.metrics.gauge("model_load_waiting", "Requests.", 3);
  status.metrics.counter("model_loads_on_request", "Loads.", 9);
  status.metrics.counter("model_loads_on_request_failed", "Loads.", 1);
  status.metrics.counter("model_load_on_request_seconds", "Seconds.", 25);
  status.metrics.gauge("model_loading_share", "Part.", 0.625);
  status.health.models = {{.name = "cats", .readiness = client::Readiness::ready, .load_fraction = 1},
                          {.name = "dogs", .readiness = client::Readiness::on_request, .on_request = true}};
  const std::string text = status_text(status, false);
  CHECK(text.find("2 of 5 models in memory, 3 requests wait; 9 loads of 2.5 s (1 failed), loading 62 % of the last "
                  "minutes\n") != std::string::npos);
  CHECK(text.find("on-request\n") != std::string::npos);
  CHECK(status_json(status, {})["model_loads_on_request"] == 9);
}

TEST_CASE("prometheus: whatever names and help a server sends, the text parses") {
  client::ServerStatus status = some_status();
  status.metrics.gauge("a b", "A name with a space.", 1);
  status.metrics.gauge("1a", "A name with a digit first.", 1);
  status.metrics.gauge("", "No name.", 1);
  status.metrics.gauge("odd", "A line\nand another one.", 1, {.labels = {{"a b", "x"}, {"c", "y\n\"z"}}});
  status.metrics.counter("odd", "A counter beside a gauge.", 2);
  status.metrics.gauge("odd", "The same name, apart from the first.", 3, {.labels = {{"c", "y"}}});
  const PrometheusText text(ipc::http::prometheus_text(status));
  CHECK(text.families.size() == PrometheusText(ipc::http::prometheus_text(some_status())).families.size() + 2);
  CHECK(text.families.at("troupe:odd").samples.at("troupe:odd").size() == 2);
  CHECK(text.families.at("troupe:odd_total").type == "counter");
}

TEST_CASE("prometheus: a histogram's buckets add up, what is above all bounds is in +Inf") {
  const PrometheusText text(ipc::http::prometheus_text(some_status()));
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

TEST_CASE("status and top show recent latencies, and a dash for those that a server does not tell") {
  client::ServerStatus status = some_status();
  CHECK(recent_latency(status, "time_to_first_token") == "- / -");
  status.metrics.gauge("recent_latency_seconds", "", 5.066,
                       {.labels = {{"quantile", "0.5"}}, .key = "time_to_first_token_p50"});
  status.metrics.gauge("recent_latency_seconds", "", 0.00123,
                       {.labels = {{"quantile", "0.99"}}, .key = "time_to_first_token_p99"});
  CHECK(recent_latency(status, "time_to_first_token") == "5066 ms / 1.23 ms");
  CHECK(status_text(status, false).find("first token 5066 ms / 1.23 ms, next - / -, wait for the first step - / -") !=
        std::string::npos);
  const std::vector<std::string> lines = screen_of(status).lines({24, 200}, false);
  CHECK(std::ranges::any_of(lines, [](const std::string& line) {
    return line.find("first token 5066 ms / 1.23 ms, next - / - (p50 / p99)") != std::string::npos;
  }));
}

TEST_CASE("top has a line for each of several models, and for one that does not simply serve") {
  client::ServerStatus status = some_status();
  status.health.models = {{.name = "cats", .readiness = client::Readiness::ready, .load_fraction = 1}};
  status.models = {{.name = "cats", .requests_running = 2}};
  const auto has_models = [&] { return text_of(screen_of(status)).find("\nmodels ") != std::string::npos; };
  CHECK_FALSE(has_models());
  MetricList& m = status.metrics;
  m.counter("model_canary_failures", "It differed.", 2, {.labels = {{"model", "cats"}}});
  m.counter("model_canary_failures", "It differed.", 7, {.labels = {{"model", "cats"}, {"unit", "3"}}});
  m.counter("model_weights_failures", "Damaged.", 1, {.labels = {{"model", "cats"}}});
  m.gauge("model_file_changed", "1 if so.", 1, {.labels = {{"model", "cats"}}});
  CHECK(has_models());
  status.health.models.push_back({.name = "cats", .load_fraction = 0.2, .replacing = true});
  status.health.models.push_back({.name = "cats", .readiness = client::Readiness::draining, .retiring = true});
  status.models.push_back({.name = "cats"});
  status.models.push_back({.name = "cats", .requests_running = 5});
  const std::string screen = text_of(screen_of(status), {.rows = 24, .columns = 200});
  INFO(screen);
  CHECK(screen.find(
            "models    cats  ready; 2 running, 0 waiting, 0 parked; its canary differed 2 times; its weights were "
            "damaged 1 time; its file changed on disk\n") != std::string::npos);
  CHECK(screen.find("          cats  loading (20 %), to replace it; 0 running, 0 waiting, 0 parked\n") !=
        std::string::npos);
  CHECK(screen.find("          cats  retiring; 5 running, 0 waiting, 0 parked\n") != std::string::npos);
  for (int i = 0; i < 9; ++i) status.health.models.push_back({.name = "more" + std::to_string(i)});
  const std::string many = text_of(screen_of(status), {.rows = 24, .columns = 200});
  INFO(many);
  CHECK(many.find("          ... and 6 more\n") != std::string::npos);
  CHECK(many.find(" 8 anna ") != std::string::npos);
  status.health.models.resize(3);
  status.models.resize(3);
  for (const std::uint64_t waiting : {0u, 0u, 2u}) {
    status.health.models.push_back({.name = "out", .readiness = client::Readiness::on_request});
    status.models.push_back({.name = "out", .requests_waiting = waiting});
  }
  status.metrics.gauge("model_load_waiting", "Requests.", 2);
  const std::string with_out = text_of(screen_of(status), {.rows = 24, .columns = 200});
  INFO(with_out);
  CHECK(with_out.find("  out   on-request; 0 running, 2 waiting, 0 parked\n          2 on request, not in memory; 2 "
                      "requests wait for a load\n") != std::string::npos);
  CHECK(with_out.find("  cats  ready  up") != std::string::npos);
  status.own_only = true;  // a guest is told how they are, and not what they do
  CHECK(text_of(screen_of(status), {.rows = 24, .columns = 200}).find("retiring\n") != std::string::npos);
}

TEST_CASE("top fits any screen, and lists running requests before waiting ones") {
  const TopScreen top = screen_of(some_status());
  for (const bool with_keys : {false, true})
    for (const std::size_t rows : {1u, 5u, 9u, 12u, 24u})
      for (const std::size_t columns : {1u, 40u, 80u, 200u}) {
        const auto lines = top.lines({.rows = rows, .columns = columns}, with_keys);
        CHECK(lines.size() <= rows);
        for (const std::string& line : lines) CHECK(line.size() <= columns);
      }
  const std::string screen = text_of(top);
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
  CHECK(screen.find(" 512/800 ") != std::string::npos);
  CHECK(screen.find(" 8 anna ") != std::string::npos);
  CHECK(screen.find(" 9 ben ") != std::string::npos);
}

TEST_CASE("top colours the server's state, a question and a server that is away, and else changes no line") {
  client::ServerStatus status = some_status();
  const ScreenSize size{.rows = 24, .columns = 160};
  TopScreen top = screen_of(status);
  std::vector<std::string> plain = top.lines(size, true);
  const std::string state = name_of(status.health);
  REQUIRE(plain[0].find("  " + state + "  up ") != std::string::npos);
  plain[0].replace(plain[0].find("  " + state + "  up ") + 2, state.size(), "\x1b[32m" + state + "\x1b[0m");
  CHECK(top.colored_lines(size) == plain);
  status.health.stalled = true;
  CHECK(screen_of(status).colored_lines(size)[0].find("  \x1b[31mstalled\x1b[0m  up ") != std::string::npos);
  status.health = {.readiness = client::Readiness::draining};
  CHECK(screen_of(status).colored_lines(size)[0].find("  \x1b[33mdraining\x1b[0m  up ") != std::string::npos);
  CHECK(top.press('j') == TopScreen::Act::none);
  CHECK(top.press('c') == TopScreen::Act::none);
  CHECK(top.colored_lines(size).back().starts_with("\x1b[33mcancel request "));
  top.show_away("gone");
  CHECK(top.colored_lines(size)[0].starts_with("\x1b[33mno answer (gone)"));
  CHECK(top.colored_lines(size)[1] == plain[0]);
  CHECK(TopScreen(name_of_uid).colored_lines(size).front().empty());  // nothing is known yet
  CHECK(top.colored_lines({.rows = 0, .columns = 9}).empty());
}

TEST_CASE("top's speeds are those since the last look, and what does not fit is counted") {
  const client::ServerStatus before = some_status();
  const client::ServerStatus now = some_status(102, 500);
  TopScreen top = screen_of(before);
  top.show(now);
  const std::string screen = text_of(top, {.rows = 12, .columns = 80});
  INFO(screen);
  CHECK(screen.find("50.0 tokens/s generated") != std::string::npos);
  CHECK(screen.find("... and 2 more") != std::string::npos);
  client::ServerStatus shared = before;
  shared.live_requests.erase(shared.live_requests.begin() + 2);
  CHECK(text_of(screen_of(shared)).find("... and 1 of other users") != std::string::npos);
}

TEST_CASE("top shows the tenant that a request counts for: a rule's name, or a user, whose connection it may not be") {
  client::ServerStatus status = some_status();
  status.live_requests[0].tenant = "web";
  status.live_requests[1].tenant = "1001";
  const std::string screen = text_of(screen_of(status));
  CHECK(screen.find(" 7 web") != std::string::npos);
  CHECK(screen.find(" 8 ben") != std::string::npos);
}

TEST_CASE("top shows the ids that HTTP clients know their requests by, where the screen has room") {
  client::ServerStatus status = some_status();
  CHECK_FALSE(text_of(screen_of(status), {.rows = 24, .columns = 160}).find(" ID") != std::string::npos);
  status.live_requests[1].client_id = "job-17\x1b[2J";
  const std::string screen = text_of(screen_of(status), {.rows = 24, .columns = 160});
  INFO(screen);
  CHECK(screen.find("AGE  ID") != std::string::npos);
  CHECK(screen.find("1:15  job-17") != std::string::npos);
  CHECK(screen.find('\x1b') == std::string::npos);
}

TEST_CASE("top sorts as its key says: by phase, age, tokens, user") {
  client::ServerStatus status = some_status();
  status.live_requests[0].uid = 1001;  // 7 ben, queued; 8 anna, 49 tokens; 9 ben, 512 tokens
  status.live_requests[1].computed_tokens = 40;
  TopScreen top = screen_of(status);
  const auto order = [&] {
    const std::string screen = text_of(top);
    std::vector<std::pair<std::size_t, int>> found;
    for (const auto& [row, number] : {std::pair{" 7 ben", 7}, {" 8 anna", 8}, {" 9 ben", 9}})
      found.emplace_back(screen.find(row), number);
    std::sort(found.begin(), found.end());
    return std::vector<int>{found[0].second, found[1].second, found[2].second};
  };
  CHECK(order() == std::vector<int>{8, 9, 7});
  CHECK(top.press('s') == TopScreen::Act::none);
  CHECK(order() == std::vector<int>{7, 8, 9});
  top.press('s');
  CHECK(order() == std::vector<int>{9, 8, 7});
  top.press('s');
  CHECK(order() == std::vector<int>{8, 7, 9});
  top.press('s');
  CHECK(order() == std::vector<int>{8, 9, 7});
}

TEST_CASE("top cancels the chosen request after a confirmation") {
  using Act = TopScreen::Act;
  TopScreen top = screen_of(some_status());
  CHECK(top.press('c') == Act::none);
  CHECK(text_of(top).find("choose a request first") != std::string::npos);
  CHECK(top.press('y') == Act::none);
  top.press('j');
  CHECK(top.selected() == 8);
  top.press('j');
  CHECK(top.selected() == 9);
  CHECK(text_of(top).find(">        9 ben") != std::string::npos);
  for (int i = 0; i < 5; ++i) top.press('j');
  CHECK(top.selected() == 7);  // the last row, and no further
  top.press('k');
  CHECK(top.selected() == 9);
  CHECK(top.press('c') == Act::none);
  CHECK(text_of(top).find("cancel request 9 of ben?") != std::string::npos);
  CHECK(top.press('n') == Act::none);
  CHECK(top.press('y') == Act::none);  // no question is open any more
  top.press('c');
  CHECK(top.press('y') == Act::cancel);
  CHECK(top.selected() == 9);
  top.say("request 9 is cancelled");
  CHECK(text_of(top).find("request 9 is cancelled") != std::string::npos);

  client::ServerStatus later = some_status();
  later.live_requests.pop_back();
  top.press('c');
  top.show(later);  // it ended before the question was answered
  CHECK_FALSE(top.selected());
  CHECK(top.press('y') == Act::none);
  CHECK(top.press('q') == Act::stop);
  CHECK(top.press(' ') == Act::look);
}

TEST_CASE("a request that is chosen is on the screen, however small that is") {
  client::ServerStatus status = some_status(100, 400, 40);
  status.live_requests.clear();
  for (std::uint64_t i = 1; i <= 40; ++i)
    status.live_requests.push_back({.request = i, .uid = 1000, .state = "running"});
  TopScreen top = screen_of(status);
  for (int i = 1; i <= 40; ++i) {
    top.press('j');
    const std::string screen = text_of(top, {.rows = 14, .columns = 80});
    INFO(screen);
    CHECK(screen.find("> " + std::string(8 - std::to_string(i).size(), ' ') + std::to_string(i) + " anna") !=
          std::string::npos);
  }
}

TEST_CASE("top reports that the server is away, keeps the last status, and restarts its speeds with the next server") {
  TopScreen top(name_of_uid);
  top.show_away("no server at /x");
  CHECK(text_of(top).find("no answer (no server at /x); trying again") == 0);
  CHECK(top.press('j') == TopScreen::Act::none);
  top.show(some_status());
  CHECK(text_of(top).find("no answer") == std::string::npos);
  top.show_away("gone");
  CHECK(text_of(top).find("no answer (gone)") == 0);
  CHECK(text_of(top).find("decode") != std::string::npos);
  top.show(some_status(10, 20));  // another server: its counters have begun at 0
  CHECK(text_of(top).find("2.0 tokens/s generated") != std::string::npos);
}

TEST_CASE("a user is shown by name, and by number if the system knows no name") {
  CHECK(user_name(0) == "root");
  CHECK(user_name(4'000'000'123) == "4000000123");
}

TEST_CASE("a prompt's progress names the computed and all tokens, and before that what the request waits for") {
  client::LiveRequest request{.state = "received"};
  CHECK(prompt_progress_text(request) == "waiting for the model");
  request.state = "queued";
  CHECK(prompt_progress_text(request) == "waiting for the first step, behind other requests");
  request.state = "running";
  request.prompt_tokens = 8192;
  request.computed_tokens = 512;
  CHECK(prompt_progress_text(request) == "prompt: 512 of 8192 tokens, 6 %");
  request.cached_tokens = 32;
  CHECK(prompt_progress_text(request) == "prompt: 512 of 8192 tokens, 6 % (32 cached)");
  request.state = "parked\x1b";
  request.prompt_tokens = 0;
  CHECK(prompt_progress_text(request) == "waiting: parked\\x1b");
}
