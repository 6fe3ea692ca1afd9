// Models whose weights, cache or canary are damaged: they go out, and others are served. Real threads.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "engine/memory/memory_policy.h"
#include "engine/model/canary_file.h"
#include "engine/weights/weights_file.h"
#include "tests/actors/gateway_fixture.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;
using troupe::test::TempFolder;
namespace fs = std::filesystem;

// Knows where weights are, to damage them.
class DamagingMemory final : public engine::MemoryPolicy {
 public:
  std::byte* allocate(engine::MemoryKind kind, std::size_t bytes) noexcept override {
    std::byte* const data = engine::system_memory()->allocate(kind, bytes);
    const std::lock_guard lock(mutex_);
    if (kind == engine::MemoryKind::weights && data) weights_.emplace_back(data, bytes);
    return data;
  }
  void release(engine::MemoryKind kind, std::byte* data, std::size_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(weights_, [&](const auto& each) { return each.first == data; });
    }
    engine::system_memory()->release(kind, data, bytes);
  }
  // One bit of the last matrix, which a step may read at that moment.
  void flip() {
    const std::lock_guard lock(mutex_);
    auto* const byte = reinterpret_cast<unsigned char*>(weights_.back().first + weights_.back().second / 2);
    __atomic_xor_fetch(byte, 0x10, __ATOMIC_RELAXED);
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::byte*, std::size_t>> weights_;
};

GatewayOptions checked_model(const TempFolder& folder) {
  GatewayOptions options = embedded_model();
  options.canary_file = folder.path("state/canaries.json");
  options.canary_interval = std::chrono::hours(24);
  options.scrub_rate = 0;
  return options;
}

std::vector<ModelCheck> check(Gateway& gateway, const std::vector<std::string>& names = {}) {
  std::promise<ModelChecks> told;
  gateway.check_models(names, [&](ModelChecks checks) { told.set_value(std::move(checks)); });
  auto answer = told.get_future();
  if (answer.wait_for(std::chrono::minutes(1)) != std::future_status::ready) FAIL("nothing happened for a minute");
  auto checks = answer.get();
  REQUIRE(std::holds_alternative<std::vector<ModelCheck>>(checks));
  return std::get<std::vector<ModelCheck>>(std::move(checks));
}

double metric(Gateway& gateway, const std::string& name, const std::string& model) {
  std::promise<double> value;
  gateway.status([&](const StatusSnapshot& status) {
    for (const Metric& each : status.metrics)
      if (each.name == name && each.labels.front().second == model) return value.set_value(each.value);
    value.set_value(-1);
  });
  return value.get_future().get();
}

TEST_CASE("damaged models: a check of sound ones finds nothing, beside answers") {
  const TempFolder folder;
  const auto gateway = start(checked_model(folder));
  auto sink = std::make_shared<Recorder>();
  gateway->submit(greedy("Once upon a time", 64), sink);
  const auto checks = check(*gateway);
  REQUIRE(checks.size() == 1);
  CHECK(checks[0].canary_ok);
  CHECK(checks[0].weights_ok);
  CHECK(checks[0].bytes > 1'000'000);
  CHECK(checks[0].problem.empty());
  CHECK(checks[0].file_change.empty());
  CHECK(sink->wait_for_end().outcome == Outcome::length);
  const std::string name = checks[0].name;
  CHECK(metric(*gateway, "model_canary_runs", name) == 2);
  CHECK(metric(*gateway, "model_canary_failures", name) == 0);
  CHECK(metric(*gateway, "model_weights_checked_bytes", name) == static_cast<double>(checks[0].bytes));
  CHECK(check(*gateway, {name, name, name}).size() == 1);
  bool refused = false;
  gateway->check_models({"no such"}, [&](const ModelChecks& result) { refused = std::holds_alternative<End>(result); });
  CHECK(refused);
}

TEST_CASE("damaged models: a flipped bit takes the model out, its streams end as failures, others go on") {
  const TempFolder folder;
  const auto memory = std::make_shared<DamagingMemory>();
  GatewayOptions options = checked_model(folder);
  options.model().name = "sound";
  options.models.push_back(options.model());
  options.models.back().name = "damaged";
  options.models.back().load.memory_policy = memory;
  const auto gateway = start(std::move(options));
  auto lives = std::make_shared<Recorder>(), other = std::make_shared<Recorder>();
  Request request = greedy("Once upon a time", 200);
  request.model = "damaged";
  request.sampling.ignore_eos = true;
  request.credit = 3;  // then it waits for its client
  gateway->submit(request, lives);
  lives->wait_for_tokens(3);
  memory->flip();
  const auto checks = check(*gateway, {"damaged"});
  REQUIRE(checks.size() == 1);
  CHECK_FALSE(checks[0].weights_ok);
  CHECK_THAT(checks[0].problem, Catch::Contains("is not what was loaded"));
  const End end = lives->wait_for_end();
  CHECK(end.outcome == Outcome::model_unloaded);
  CHECK(end.retry_after.has_value());
  CHECK_THAT(end.message, Catch::Contains("this answer is not to be used; ask again"));
  CHECK(lives->ids().size() == 3);
  request.model = "sound";
  request.credit = kAllCredit;
  gateway->submit(request, other);
  CHECK(other->wait_for_end().outcome == Outcome::length);
  CHECK(gateway->is_making_progress());
  // It is loaded again, from its file; a request waits, or fails until that has begun, and is never answered wrong.
  request.model = "damaged";
  for (;;) {
    auto late = std::make_shared<Recorder>();
    gateway->submit(request, late);
    const End answer = late->wait_for_end();
    if (answer.outcome == Outcome::model_unloaded) {
      CHECK(late->ids().empty());
      continue;
    }
    CHECK(answer.outcome == Outcome::length);
    CHECK(late->ids() == other->ids());
    break;
  }
  CHECK(metric(*gateway, "model_weights_failures", "damaged") == 1);
  CHECK(check(*gateway, {"damaged"}).front().problem.empty());
  // A second time it stays out.
  memory->flip();
  CHECK_FALSE(check(*gateway, {"damaged"}).front().problem.empty());
  auto last = std::make_shared<Recorder>(), late = std::make_shared<Recorder>();
  gateway->submit(request, last);  // may come before its actors know of it
  CHECK(last->wait_for_end().outcome == Outcome::model_unloaded);
  gateway->submit(request, late);
  const End refused = late->wait_for_end();
  CHECK(refused.outcome == Outcome::model_unloaded);
  CHECK_THAT(refused.message, Catch::Contains("this machine's memory or a CPU may be faulty"));
  for (const ModelHealth& each : gateway->health()) {
    if (each.name == "sound") CHECK(each.readiness == Readiness::ready);
    if (each.name == "damaged") CHECK(each.readiness == Readiness::failed);
  }
  CHECK(metric(*gateway, "model_weights_failures", "damaged") == 2);
  CHECK(metric(*gateway, "model_ready", "damaged") == 0);
  CHECK(gateway->is_making_progress());
  CHECK_THAT(check(*gateway, {"damaged"}).front().problem, Catch::Contains("may be faulty"));
}

TEST_CASE("damaged models: a server with no name for its model loads it again, too, and ends while checks wait") {
  const TempFolder folder;
  const auto memory = std::make_shared<DamagingMemory>();
  GatewayOptions options = checked_model(folder);
  options.model().load.memory_policy = memory;
  const auto gateway = start(std::move(options));
  const std::vector<std::string> names = gateway->model_names();
  memory->flip();
  CHECK_FALSE(check(*gateway).front().problem.empty());
  while (gateway->readiness() != Readiness::ready) {
  }
  CHECK(gateway->model_names() == names);
  CHECK(check(*gateway).front().problem.empty());
  auto sink = std::make_shared<Recorder>();
  gateway->submit(greedy("Once upon a time", 5), sink);
  CHECK(sink->wait_for_end().outcome == Outcome::length);
  for (int i = 0; i < 40; ++i) gateway->check_models({}, [](const ModelChecks&) {});
}

TEST_CASE(
    "damaged models: one whose canary differs from the record is loaded again without the cache, and then not served") {
  const TempFolder folder;
  GatewayOptions options = checked_model(folder);
  const std::string record = options.canary_file;
  const std::string cache = folder.path("cache");
  options.model().load.weights_cache.directory = cache;
  std::string id;
  {
    const auto gateway = start(options);
    id = gateway->model()->numerics_id();
    CHECK(metric(*gateway, "model_canary_runs", gateway->model_names().front()) == 1);
  }
  const auto kept = engine::find_canary(record, id);
  REQUIRE((kept && *kept));
  REQUIRE(engine::keep_canary(record, id, {(*kept)->value ^ 1, (*kept)->since}));
  const auto cached_file = [&] {  // its number: another one, once it is written again
    struct stat info {};
    for (const auto& entry : fs::directory_iterator(cache)) (void)::stat(entry.path().c_str(), &info);
    return info.st_ino;
  };
  const auto before = cached_file();
  auto gateway = Gateway::start(options);
  REQUIRE(gateway);
  std::promise<Status> ended;
  (*gateway)->on_loaded([&](Status status) { ended.set_value(std::move(status)); });
  const Status status = ended.get_future().get();
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains("its canary is ") &&
                                         Catch::Contains("loading it from its files did not help") &&
                                         Catch::Contains("move " + record + " away"));
  CHECK((*gateway)->readiness() == Readiness::failed);
  CHECK(cached_file() == before);  // packed again to the same weights, so that it is not the cache's fault
  CHECK(metric(**gateway, "model_canary_failures", (*gateway)->model_names().front()) == 2);
  auto sink = std::make_shared<Recorder>();
  (*gateway)->submit(greedy("Once upon a time", 5), sink);
  CHECK(sink->wait_for_end().outcome == Outcome::model_unloaded);
}

TEST_CASE(
    "damaged models: a cache of other ternary weights with right checksums is found by the canary, and replaced") {
  const TempFolder folder;
  GatewayOptions options = checked_model(folder);
  options.model().load.weights_cache.directory = folder.path("cache");
  (void)start(options);
  std::string path;
  for (const auto& entry : fs::directory_iterator(folder.path("cache"))) path = entry.path();
  REQUIRE_FALSE(path.empty());
  // As if it had been packed on a machine with bad memory: a header whose checksums are those of the wrong bytes.
  // (Ternary weights, whose numerics id hashes the file's rows; others would have another id.)
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto count = engine::parse_weights_count(std::as_bytes(std::span(bytes)).first(engine::kWeightsFixedBytes));
  REQUIRE(count);
  const std::size_t header_bytes = engine::weights_header_bytes(*count);
  auto header = engine::parse_weights_header(std::as_bytes(std::span(bytes)).first(header_bytes), bytes.size());
  REQUIRE(header);
  engine::WeightsEntry& entry = header->entries[header->entries.size() / 2];
  bytes[entry.offset + entry.header.body_bytes / 2] ^= 0x10;
  engine::Team team(1);
  entry.header.checksum =
      engine::checksum(team, std::as_bytes(std::span(bytes)).subspan(entry.offset, entry.header.body_bytes));
  const std::vector<std::byte> fixed = engine::write_weights_header(*header);
  std::copy(fixed.begin(), fixed.end(), reinterpret_cast<std::byte*>(bytes.data()));
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const auto gateway = start(options);
  const std::string name = gateway->model_names().front();
  CHECK(metric(*gateway, "model_canary_failures", name) == 1);
  CHECK(metric(*gateway, "model_canary_runs", name) == 2);
  CHECK(check(*gateway).front().problem.empty());
  const auto again = start(options);  // the cache is right again
  CHECK(metric(*again, "model_canary_failures", name) == 0);
}

}  // namespace
}  // namespace troupe::actors
