// Several models on real threads: units on one compute pool.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <random>
#include <thread>

#include "actors/requests/request_check.h"
#include "actors/unit/model_manager.h"
#include "tests/actors/gateway_fixture.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

const std::string kTales = std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf";

// As the gateway has them.
class Units {
 public:
  explicit Units(GatewayOptions wanted = embedded_model()) : options_(std::move(wanted)) {}
  ~Units() {
    stop();
    for (const auto& unit : models_.units()) unit->stop();
    system_->await_all_actors_done();
    End end;
    end.outcome = Outcome::cancelled;
    streams_.end_all(end, end, std::chrono::steady_clock::now());
    compute_.reset();
    models_.drop_units();
    later_.reset();
    system_.reset();
  }

  // Of all that computes.
  void stop() { compute_->stop(); }
  ModelUnit& add(const std::string& alias, std::shared_ptr<engine::MemoryPolicy> memory = engine::system_memory()) {
    engine::LoadOptions load;
    load.num_blocks = 64;
    load.memory_policy = std::move(memory);
    std::vector<CatalogEntry> entries;
    entries.push_back(describe({.path = kTales, .name = alias, .load = load}));
    models_.add(context(), std::move(entries));
    return *models_.find(alias);
  }
  // Waits until it is served.
  ModelUnit& serve(const std::string& alias) {
    ModelUnit& unit = add(alias);
    wait_for(unit);
    return unit;
  }
  static void wait_for(ModelUnit& unit) {
    Answer<Status> loaded;
    unit.state().on_loaded(loaded.callback());
    CHECK(loaded.wait());
  }
  std::shared_ptr<Recorder> submit(Request request) {
    auto sink = try_submit(std::move(request));
    REQUIRE(sink);
    return sink;
  }
  // Null: there is no such model.
  std::shared_ptr<Recorder> try_submit(Request request) {
    auto sink = std::make_shared<Recorder>();
    const TimePoint now = std::chrono::steady_clock::now();
    std::shared_ptr<ModelUnit> unit;
    const std::string name = request.model;
    const auto id = models_.route(name, [&](const std::shared_ptr<ModelUnit>& serving) -> std::optional<RequestId> {
      unit = serving;
      if (!unit) return std::nullopt;
      request.model = unit->name();
      return streams_.add(std::move(request), sink, now, unit->id());
    });
    if (!id) return nullptr;
    if (unit->state().unloading())
      streams_.end(*id, being_unloaded(unit->name()), now);
    else if (auto full = streams_.take_queue_room(*id, now))
      streams_.end(*id, refused(*std::move(full)), now);
    else
      unit->submit(*id);
    return sink;
  }
  void load(const std::string& name, OnModelChange done,
            std::shared_ptr<engine::MemoryPolicy> memory = engine::system_memory(), Replace replace = Replace::no,
            const std::string& path = kTales) {
    ModelSource source{.path = path, .name = name};
    source.load.num_blocks = 64;
    source.load.memory_policy = std::move(memory);
    models_.load(context(), {{std::move(source), std::move(done), replace}});
  }
  ModelManager& models() { return models_; }

 private:
  ServerContext context() {
    return {.options = options_,
            .streams = streams_,
            .memory = survey_,
            .texts = texts_,
            .compute = *compute_,
            .faults = {}};
  }

  GatewayOptions options_;
  StreamTable streams_{options_, {.num_threads = 2}};
  MemorySurvey survey_{[] { return MemoryReport{}; }};
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_ = std::make_unique<caf::actor_system>(config_);
  TextThreads texts_{{.max_large = 1}};
  std::unique_ptr<ComputePool> compute_ = std::make_unique<ComputePool>(2, std::vector<int>{});
  std::unique_ptr<ThreadPool> later_ = std::make_unique<ThreadPool>("models", 1, 1000);
  ModelManager models_{*system_, std::uint64_t{1} << 30,
                       [this](std::function<void()> work) { REQUIRE(later_->post(std::move(work))); }};
};

Request story(const std::string& model, std::uint32_t max_tokens) {
  Request request = greedy("Once upon a time", max_tokens);
  request.sampling.ignore_eos = true;
  request.model = model;
  return request;
}

// The system's memory, of which the first piece is given once open() was called: a load waits in its middle.
class Gate final : public engine::MemoryPolicy {
 public:
  std::byte* allocate(engine::MemoryKind kind, std::size_t bytes) noexcept override {
    if (!reached_.exchange(true)) {
      entered_.set_value();
      in_time_ = opened_.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    }
    return engine::system_memory()->allocate(kind, bytes);
  }
  void release(engine::MemoryKind kind, std::byte* data, std::size_t bytes) noexcept override {
    engine::system_memory()->release(kind, data, bytes);
  }
  void wait_until_reached() {
    REQUIRE(entered_.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  }
  void open() { opened_.set_value(); }
  [[nodiscard]] bool was_opened_in_time() const { return in_time_; }

 private:
  std::atomic<bool> reached_{false}, in_time_{false};
  std::promise<void> entered_, opened_;
};

TEST_CASE("units: steps of a model go on while another one is loaded") {
  const auto gate = std::make_shared<Gate>();
  Units units;
  units.serve("first");
  const std::vector<TokenId> alone = answer(units.submit(story("first", 20))).ids;

  ModelUnit& second = units.add("second", gate);
  gate->wait_until_reached();
  const auto beside = units.submit(story("first", 20));
  CHECK(answer(beside).ids == alone);  // every step of it has ended in the middle of the load
  CHECK(second.state().loading());
  gate->open();
  Units::wait_for(second);
  CHECK(gate->was_opened_in_time());
  CHECK(answer(units.submit(story("second", 20))).ids == alone);
}

TEST_CASE("units: streams of two models at once, whose actors die meanwhile, have the answers that each has alone") {
  constexpr std::size_t kStreams = 6;
  const auto request = [](const std::string& model, std::size_t i) {
    const std::string prompt = (i % 2 == 0 ? "Once upon a time" : "The dog saw a") + std::string(i, '!');
    Request body = i % 3 == 0 ? greedy(prompt, 60) : seeded(prompt, 60, i);
    body.sampling.ignore_eos = true;
    body.model = model;
    body.tenant.id = TenantId{static_cast<std::uint32_t>(i % 3)};
    return body;
  };
  Units units;
  const std::vector<ModelUnit*> both = {&units.serve("first"), &units.serve("second")};
  std::vector<std::vector<TokenId>> alone;
  for (std::size_t i = 0; i < kStreams; ++i) alone.push_back(answer(units.submit(request("first", i))).ids);

  for (const Role role : {Role::worker, Role::batcher, Role::keeper}) {
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (std::size_t i = 0; i < kStreams; ++i)
      for (const char* model : {"first", "second"}) sinks.push_back(units.submit(request(model, i)));
    for (std::size_t kill = 0; kill < 4; ++kill) {
      sinks[kill]->wait_for_tokens(10 * (kill + 1));
      caf::anon_send(both[kill % 2]->supervisor(), msg::Crash{role});
    }
    for (std::size_t i = 0; i < sinks.size(); ++i) CHECK(answer(sinks[i]).ids == alone[i / 2]);
  }
  for (const ModelUnit* unit : both) {
    StatusSnapshot counted;
    unit->parts().counters.append_metrics(counted.metrics, std::chrono::steady_clock::now());
    CHECK(counted.count("worker_restarts") > 0);
  }
}

TEST_CASE("units: a loader that dies while its model is loaded beside steps loads nothing twice") {
  const auto gate = std::make_shared<Gate>();
  Units units;
  units.serve("first");
  ModelUnit& second = units.add("second", gate);
  gate->wait_until_reached();
  caf::anon_send(second.supervisor(), msg::Crash{Role::loader});
  CHECK(answer(units.submit(story("first", 5))).ids.size() == 5);
  gate->open();
  Units::wait_for(second);
  CHECK(answer(units.submit(story("second", 5))).ids.size() == 5);
}

TEST_CASE("units: a server that is stopped in the middle of a load ends it") {
  const auto gate = std::make_shared<Gate>();
  std::optional<Units> units(std::in_place);
  units->serve("first");
  ModelUnit& second = units->add("second", gate);
  Answer<Status> loaded;
  second.state().on_loaded(loaded.callback());
  gate->wait_until_reached();
  units->stop();
  gate->open();
  units.reset();
  CHECK_FALSE(loaded.is_there());
}

std::size_t num_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// TROUPE_CHURN: how many loads and unloads.
int num_changes() {
  const char* const text = std::getenv("TROUPE_CHURN");
  return text ? std::atoi(text) : 20;
}

TEST_CASE("units: a server that is stopped while a model is loaded at run time ends the load, and destroys it") {
  const auto gate = std::make_shared<Gate>();
  std::optional<Units> units(std::in_place);
  units->serve("first");
  Answer<ModelChange> change;
  units->load("second", change.callback(), gate);
  gate->wait_until_reached();
  units->stop();
  gate->open();
  units.reset();  // returns once each unit is destroyed
  CHECK_FALSE(change.is_there());
}

TEST_CASE("units: a server that is stopped while a model is being replaced destroys all of its units") {
  for (const Replace how : {Replace::beside, Replace::unload_first}) {
    const auto gate = std::make_shared<Gate>();
    std::optional<Units> units(std::in_place);
    units->serve("first");
    Answer<ModelChange> change;
    units->load("first", change.callback(), gate, how);
    gate->wait_until_reached();
    units->stop();
    gate->open();
    units.reset();
    CHECK_FALSE(change.is_there());
  }
}

TEST_CASE("units: a model is replaced again and again under the load of four tenants, and none of them notices") {
  GatewayOptions options = embedded_model();
  options.max_measuring = std::chrono::milliseconds(1);
  options.max_requests_per_user = 64;
  Units units(options);
  units.serve("m");
  const std::string other = std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf";
  const auto replace = [&](const std::string& path) {
    Answer<ModelChange> change;
    units.load("m", change.callback(), engine::system_memory(), Replace::beside, path);
    return std::holds_alternative<ModelHealth>(change.wait());
  };
  const std::vector<TokenId> of_tales = answer(units.submit(story("m", 40))).ids;
  REQUIRE(replace(other));
  const std::vector<TokenId> of_other = answer(units.submit(story("m", 40))).ids;
  REQUIRE(of_other != of_tales);

  std::atomic<bool> done{false};
  std::atomic<int> served{0}, wrong{0};
  std::vector<std::thread> tenants;
  for (std::uint32_t tenant = 0; tenant < 4; ++tenant) {
    tenants.emplace_back([&, tenant] {
      while (!done) {
        Request request = story("m", 40);
        request.tenant = scheduler::Tenant{TenantId{1000 + tenant}, false};
        const auto sink = units.try_submit(std::move(request));
        if (!sink) {
          ++wrong;
          continue;
        }
        const Answered got = answer(sink);
        const bool is_whole = got.end.outcome == Outcome::length && (got.ids == of_tales || got.ids == of_other);
        ++(is_whole ? served : wrong);
      }
    });
  }
  for (int i = 0; i < num_changes(); ++i) {
    CHECK(replace(i % 2 == 0 ? kTales : other));
    // Who asks after the switch gets the new one.
    CHECK(answer(units.submit(story("m", 40))).ids == (i % 2 == 0 ? of_tales : of_other));
  }
  done = true;
  for (std::thread& tenant : tenants) tenant.join();
  CHECK(wrong == 0);
  CHECK(served > 0);
  CHECK(units.models().names() == std::vector<std::string>{"m"});
}

TEST_CASE("units: models are loaded and unloaded at random under the load of four tenants") {
  GatewayOptions options = embedded_model();
  options.max_measuring = std::chrono::milliseconds(1);
  options.max_requests_per_user = 64;
  Units units(options);
  units.serve("m0");
  const std::vector<TokenId> alone = answer(units.submit(story("m0", 12))).ids;
  const std::uint64_t left = units.models().budget().left();
  const std::size_t descriptors = num_descriptors();
  constexpr int kNames = 4;

  std::atomic<bool> done{false};
  std::atomic<int> served{0}, turned_away{0}, wrong{0}, over_budget{0};
  std::vector<std::thread> tenants;
  for (std::uint32_t tenant = 0; tenant < 4; ++tenant) {
    tenants.emplace_back([&, tenant] {
      std::minstd_rand random(tenant + 1);
      while (!done) {
        Request request = story("m" + std::to_string(random() % kNames), 12);
        request.tenant = scheduler::Tenant{TenantId{1000 + tenant}, false};
        const auto sink = units.try_submit(std::move(request));
        if (!sink) continue;  // there is no such model now
        const Answered got = answer(sink);
        if (got.end.outcome == Outcome::length && got.ids == alone)
          ++served;
        else if (got.end.outcome == Outcome::model_unloaded && got.ids.empty())
          ++turned_away;
        else
          ++wrong;
      }
    });
  }
  std::minstd_rand random(36);
  int loads = 0, unloads = 0;
  for (int i = 0; i < num_changes() || loads == 0 || unloads == 0; ++i) {
    const std::string name = "m" + std::to_string(1 + random() % (kNames - 1));
    Answer<ModelChange> change;
    if (units.models().find(name)) {
      units.models().unload(name, std::chrono::minutes(1), change.callback());
      ++unloads;
    } else {
      units.load(name, change.callback());
      ++loads;
    }
    CHECK(std::holds_alternative<ModelHealth>(change.wait()));
    if (units.models().budget().left() > left) ++over_budget;
  }
  done = true;
  for (std::thread& tenant : tenants) tenant.join();
  CHECK(wrong == 0);
  CHECK(served > 0);
  CHECK(over_budget == 0);
  for (const std::string& name : units.models().names()) {
    if (name == "m0") continue;
    Answer<ModelChange> change;
    units.models().unload(name, std::chrono::minutes(1), change.callback());
    CHECK(std::holds_alternative<ModelHealth>(change.wait()));
  }
  CHECK(units.models().budget().left() == left);
  CHECK(num_descriptors() == descriptors);
  CHECK(answer(units.submit(story("m0", 12))).ids == alone);
}

}  // namespace
}  // namespace troupe::actors
