// A Batch whose requests continue sessions: what their copies and files take is charged to the tenant's share.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/sessions/sessions.h"
#include "tests/actors/serving/batch_machine.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

using test::BatchMachine;
using Tokens = std::vector<TokenId>;

const scheduler::Tenant kReader{.id = TenantId{1000}, .is_owner = true, .policy = {}};
constexpr std::size_t kPromptTokens = 100;

std::shared_ptr<const engine::LoadedModel> file_model() {
  engine::LoadOptions options;
  options.kernels = "scalar";
  options.num_blocks = 8;
  options.context = 128;
  auto loaded = engine::LoadedModel::load(std::string(TROUPE_TEST_DATA) + "/golden/llama.gguf", options);
  if (!loaded) FAIL(loaded.error().message);
  return *loaded;
}

// Where an end arrives that is told on a thread of Sessions.
struct LastSink : StreamSink {
  void tokens(TokenRun) override {}
  void end(End how) override { ended.set_value(std::move(how)); }
  std::promise<End> ended;
};

// One server with the session "talk": a Batch whose worker computes and copies nothing, and Sessions with threads.
class Server {
 public:
  explicit Server(const std::string& directory) : sessions_({directory, {}}, {}, {}) {
    BatchOptions options;
    options.on_session_written = [this](TenantId tenant, double seconds) { written_.set_value({tenant, seconds}); };
    options.on_session_read = [this](RequestId request) { read_.set_value(request); };
    // Two steps for a prompt, and for copies.
    machine.emplace(64, scheduler::PlannerOptions{.max_step_tokens = 64}, std::move(options));
  }

  RequestId ask(Tokens more) {
    const auto begun = sessions_.begin(kReader, "talk", false);
    REQUIRE(std::holds_alternative<std::shared_ptr<SessionTurn>>(begun));
    const auto turn = std::get<std::shared_ptr<SessionTurn>>(begun);
    std::promise<SessionTurn::Loaded> loaded;
    turn->load({.model = model_}, [&](SessionTurn::Loaded tokens) { loaded.set_value(std::move(tokens)); });
    const SessionTurn::Loaded known = loaded.get_future().get();
    REQUIRE(std::holds_alternative<Tokens>(known));
    Tokens prompt = std::get<Tokens>(known);
    prompt.insert(prompt.end(), more.begin(), more.end());
    turn->set_prompt(prompt);
    Request request;
    request.tenant = kReader;
    request.sampling.max_tokens = 2;
    request.credit = 1000;
    request.turn = turn;
    return machine->ask(std::move(request), std::move(prompt), sessions_.wrap(turn, sink_));
  }
  // Waits until the contents are read.
  void session_read() { machine->session_read(read_.get_future().get()); }
  End end() { return sink_->ended.get_future().get(); }
  // The tenant and seconds that writing was charged; waits for it.
  std::pair<TenantId, double> written() { return written_.get_future().get(); }

  std::optional<BatchMachine> machine;

 private:
  const std::shared_ptr<const engine::LoadedModel> model_ = file_model();
  const std::shared_ptr<LastSink> sink_ = std::make_shared<LastSink>();
  std::promise<std::pair<TenantId, double>> written_;
  std::promise<RequestId> read_;
  Sessions sessions_;
};

double told_of(const BatchMachine& machine) {
  double told = 0;
  for (const UsageEntry& entry : machine.entries()) told += entry.usage.compute_seconds;
  return told;
}

}  // namespace

TEST_CASE("sessions: a deadline may be asked for while an answer that had all its tokens is saved") {
  const troupe::test::TempFolder folder;
  Server server(folder.path("sessions"));
  server.ask(Tokens(kPromptTokens, 7));
  while (server.machine->num_saves() == 0) REQUIRE(server.machine->step(1));
  Request request;
  request.tenant = kReader;
  request.sampling.max_tokens = 2;
  request.credit = 1000;
  request.deadline = std::chrono::hours(1);
  const auto sink = std::make_shared<LastSink>();
  server.machine->ask(std::move(request), Tokens(10, 7), sink);
  while (server.machine->step(1)) continue;
  CHECK(sink->ended.get_future().get().outcome == scheduler::Outcome::length);
}

TEST_CASE("sessions: copies for a session's file and from one, and writing it, are charged to the tenant's share") {
  const troupe::test::TempFolder folder;
  constexpr double kCopy = 0.25;
  {
    Server server(folder.path("sessions"));
    server.ask(Tokens(kPromptTokens, 7));
    while (server.machine->step(1, kCopy)) continue;
    const double computed = server.machine->charged();
    REQUIRE(server.machine->num_saves() == 2);
    CHECK(server.machine->num_fills() == 0);
    CHECK(server.machine->served(kReader.id) == Approx(computed + 2 * kCopy));
    // The stream has ended: the copies are on no receipt, but among what is told of tenants.
    CHECK(server.end().usage.compute_seconds < computed + 2 * kCopy);
    CHECK(told_of(*server.machine) == Approx(computed + 2 * kCopy));
    const auto [tenant, seconds] = server.written();
    CHECK(tenant == kReader.id);
    CHECK(seconds > 0);
  }
  Server server(folder.path("sessions"));
  server.ask(Tokens(5, 8));
  CHECK_FALSE(server.machine->step(1, kCopy));
  server.session_read();
  while (server.machine->num_fills() < 2) REQUIRE(server.machine->step(1, kCopy));
  CHECK(server.machine->num_saves() == 0);
  CHECK(server.machine->served(kReader.id) == Approx(server.machine->charged() + 2 * kCopy));
  while (server.machine->step(1, 0)) continue;
  const double computed = server.machine->charged();
  CHECK(server.machine->served(kReader.id) == Approx(computed + 2 * kCopy));
  CHECK(server.end().usage.compute_seconds > 2 * kCopy);
  CHECK(server.written().second > 0);
}

}  // namespace troupe::actors
