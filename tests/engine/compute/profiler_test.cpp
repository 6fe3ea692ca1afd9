// The profiler hook: which spans are reported, and the profile that bench and serve make of them.
#include <chrono>
#include <stdexcept>

#include <catch2/catch.hpp>

#include "engine/compute/step_profile.h"
#include "tests/engine/model_harness.h"
#include "tests/support/count_allocations.h"

namespace troupe::test {
namespace {

using engine::Operation;
using engine::OperationSpan;
using engine::OperationTime;
using engine::PhaseTime;
using engine::StepProfile;
using engine::StepSpan;
using std::chrono::nanoseconds;

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
constexpr std::uint32_t kLayers = 6;

// Stores all spans.
struct Listener final : engine::Profiler {
  bool on_step_begin(const StepSpan& step) override {
    ++begun;
    CHECK(step.num_rows > 0);
    return wants;
  }
  void on_operation(const OperationSpan& span) override { operations.push_back(span); }
  void on_join(const engine::JoinSpan& join) override {
    ++joins;
    well_formed = well_formed && join.operation->begin <= join.begin && join.begin <= join.end;
    std::uint32_t chunks = 0;
    for (const engine::ThreadSpan& thread : join.threads) {
      chunks += thread.num_chunks;
      if (thread.num_chunks != 0)
        well_formed = well_formed && join.begin <= thread.begin && thread.begin <= thread.end && thread.end <= join.end;
    }
    last_chunks = chunks;
  }
  void on_step_end(const StepSpan& step) override { ended.push_back(step); }

  bool wants = true;
  bool well_formed = true;
  int begun = 0;
  int joins = 0;
  std::uint32_t last_chunks = 0;
  std::vector<OperationSpan> operations;
  std::vector<StepSpan> ended;
};

// Sequences of 40 known tokens that decode.
struct Decoding {
  explicit Decoding(std::uint32_t num_threads, std::uint32_t num_sequences = 1)
      : model(load_model(kModel, "", kernels::KvType::f16, 128)), team(num_threads), executor(*model, team) {
    for (SequenceId id = 1; id <= num_sequences; ++id) {
      engine::SequenceSpec spec;
      spec.id = id;
      spec.tokens = random_tokens(40, model->info().vocab_size, id);
      spec.tables.resize(1);
      for (BlockId block = 0; block < 16; ++block)
        spec.tables[0].push_back(static_cast<BlockId>(16 * (id - 1)) + block);
      spec.sampling.temperature = 0;
      spec.sampling.ignore_eos = true;
      spec.sampling.max_tokens = 400;
      executor.open(std::move(spec));
      batch.items.push_back({.sequence = id, .num_tokens = 40, .output = engine::Output::sample, .new_blocks = {}});
    }
  }
  void step() {
    executor.step(batch, result);
    for (engine::StepItem& item : batch.items) item.num_tokens = 1;
  }

  std::shared_ptr<engine::LoadedModel> model;
  engine::Team team;
  engine::Executor executor;
  engine::StepBatch batch;
  engine::StepResult result;
};

const PhaseTime& phase_of(const engine::ProfileSnapshot& snapshot, const std::string& name) {
  for (const PhaseTime& phase : snapshot.phases)
    if (phase.name == name) return phase;
  FAIL("no phase " << name);
  return snapshot.phases[0];
}

TEST_CASE("a profiler is told of every operation, in order, with its layer, each within the step") {
  Decoding decoding(1);
  decoding.step();
  Listener listener;
  decoding.team.set_profiler(&listener);
  decoding.step();
  decoding.team.set_profiler(nullptr);
  decoding.step();
  CHECK(listener.begun == 1);
  REQUIRE(listener.ended.size() == 1);
  const StepSpan& step = listener.ended[0];
  CHECK(step.num_rows == 1);
  CHECK(step.num_sequences == 1);

  // `prepare` is reported for the batch's rows, for the pass, and for a transformer's attention.
  std::vector<std::pair<Operation, std::uint32_t>> expected{{Operation::prepare, engine::kNoLayer},
                                                            {Operation::prepare, engine::kNoLayer},
                                                            {Operation::prepare, engine::kNoLayer},
                                                            {Operation::embed, engine::kNoLayer}};
  for (std::uint32_t layer = 0; layer < kLayers; ++layer)
    for (const Operation operation :
         {Operation::attn_norm, Operation::attn_qkv, Operation::rope_store, Operation::attention, Operation::attn_round,
          Operation::attn_output, Operation::ffn_norm, Operation::ffn_gate_up, Operation::ffn_round,
          Operation::ffn_down})
      expected.emplace_back(operation, layer);
  for (const Operation operation : {Operation::output_norm, Operation::head, Operation::sample})
    expected.emplace_back(operation, engine::kNoLayer);
  std::vector<std::pair<Operation, std::uint32_t>> heard;
  auto last = step.begin;
  for (const OperationSpan& span : listener.operations) {
    heard.emplace_back(span.operation, span.layer);
    CHECK(last <= span.begin);
    CHECK(span.begin <= span.end);
    last = span.end;
  }
  CHECK(last <= step.end);
  CHECK(heard == expected);
}

TEST_CASE(
    "a join is reported with the work of each thread, and a profiler that declines a step gets no operations of it") {
  engine::Team team(3);
  Listener listener;
  team.set_profiler(&listener);
  const auto region = [&] { team.parallel_for(16, [](std::size_t, std::uint32_t) {}); };
  region();  // outside of a step
  CHECK(listener.joins == 0);
  const StepSpan step{.step = 1, .num_rows = 1, .num_sequences = 1, .begin = {}, .end = {}};
  for (int round = 0; round < 500; ++round) {
    engine::StepScope scope(team, step);
    region();  // outside of an operation
    const engine::OperationScope operation(team, Operation::head);
    region();
    REQUIRE(listener.last_chunks == 16);
    listener.last_chunks = 0;
  }
  CHECK(listener.joins == 500);
  CHECK(listener.well_formed);
  CHECK(listener.operations.size() == 500);
  CHECK(listener.ended.empty());  // these steps threw
  listener.wants = false;
  engine::StepScope scope(team, step);
  {
    const engine::OperationScope operation(team, Operation::head);
    region();
  }
  scope.end(engine::ProfileClock::now());
  CHECK(listener.joins == 500);
  CHECK(listener.operations.size() == 500);
  CHECK(listener.ended.size() == 1);
}

TEST_CASE("an operation that throws is reported, and the team works on") {
  engine::Team team(2);
  Listener listener;
  team.set_profiler(&listener);
  const auto broken = [&] {
    engine::StepScope scope(team, {.step = 1, .num_rows = 1, .num_sequences = 1, .begin = {}, .end = {}});
    const engine::OperationScope operation(team, Operation::attention, 3);
    team.parallel_for(8, [](std::size_t chunk, std::uint32_t) {
      if (chunk == 5) throw std::runtime_error("a chunk");
    });
  };
  CHECK_THROWS_AS(broken(), std::runtime_error);
  CHECK(listener.operations.size() == 1);
  CHECK(listener.joins == 1);
  CHECK(listener.ended.empty());
  team.parallel_for(8, [](std::size_t, std::uint32_t) {});
  CHECK(listener.joins == 1);  // the step is over
}

TEST_CASE("the answer is the same whether a profile is made or not") {
  std::vector<std::vector<TokenId>> answers;
  for (const bool profiled : {false, true}) {
    Decoding decoding(2, 4);
    StepProfile profile(2);
    if (profiled) decoding.team.set_profiler(&profile);
    for (int i = 0; i < 24; ++i) decoding.step();
    std::vector<TokenId> all;
    for (SequenceId id = 1; id <= 4; ++id)
      all.insert(all.end(), decoding.executor.tokens(id).begin(), decoding.executor.tokens(id).end());
    answers.push_back(std::move(all));
  }
  CHECK(answers[0] == answers[1]);
}

TEST_CASE("the operations of a profile add up to the step within 5 %, and the threads' times to the joins'") {
  for (const std::uint32_t num_threads : {1u, 2u}) {
    Decoding decoding(num_threads, 8);
    double covered = 0;
    // On a busy machine the thread may lose its core between two operations: the best of some tries counts.
    for (int tries = 0; tries < 5 && covered < 0.95; ++tries) {
      StepProfile profile(num_threads);
      decoding.team.set_profiler(&profile);
      double seconds = 0;
      const std::uint64_t steps = tries == 0 ? 40 : 39;
      for (std::uint64_t i = 0; i < steps; ++i) {
        decoding.step();
        if (tries > 0 || i > 0) seconds += decoding.result.compute_seconds;
      }
      const auto snapshot = profile.snapshot();
      REQUIRE(snapshot);
      CHECK(snapshot->num_threads == num_threads);
      const PhaseTime& decode = phase_of(*snapshot, "decode");
      CHECK(decode.steps == 39);
      CHECK(decode.rows == 39 * 8);
      CHECK(decode.seconds == Approx(seconds).epsilon(1e-6));
      CHECK(decode.measured_steps >= 1);
      if (tries == 0) CHECK(phase_of(*snapshot, "prefill").rows == 320);
      double sum = 0;
      for (const OperationTime& operation : decode.operations) {
        INFO(operation.name);
        sum += operation.seconds;
        CHECK(operation.join_seconds <= operation.seconds);
        CHECK(operation.busy_seconds + operation.wake_up_seconds + operation.wait_seconds + operation.absent_seconds ==
              Approx(num_threads * operation.join_seconds).margin(1e-9));
        CHECK((num_threads > 1 || operation.joins == 0));
        double layers = 0;
        for (const double layer : operation.layer_seconds) layers += layer;
        if (!operation.layer_seconds.empty()) {
          CHECK(operation.layer_seconds.size() == kLayers);
          CHECK(layers == Approx(operation.seconds));
          CHECK(operation.calls == kLayers * decode.measured_steps);
        }
      }
      CHECK(sum <= decode.measured_seconds);
      covered = sum / decode.measured_seconds;
    }
    CHECK(covered >= 0.95);
  }
}

TEST_CASE("a warm step with a profile allocates nothing") {
  Decoding decoding(2, 4);
  StepProfile profile(2);
  decoding.team.set_profiler(&profile);
  for (int i = 0; i < 4; ++i) decoding.step();
  const std::size_t before = num_allocations();
  for (int i = 0; i < 60; ++i) decoding.step();
  CHECK(num_allocations() - before == 0);
}

// Reports one step of `length` with 60 operations, as an executor does. Returns whether the profiler measured it.
bool tell(StepProfile& profile, nanoseconds length, std::uint32_t num_rows = 1) {
  StepSpan step{.step = 1, .num_rows = num_rows, .num_sequences = 1, .begin = {}, .end = {}};
  const bool wanted = profile.on_step_begin(step);
  for (int i = 0; wanted && i < 60; ++i)
    profile.on_operation({.operation = Operation::attn_qkv,
                          .layer = 0,
                          .begin = step.begin + i * length / 60,
                          .end = step.begin + (i + 1) * length / 60});
  step.end = step.begin + length;
  profile.on_step_end(step);
  return wanted;
}

TEST_CASE("short steps are measured as often as half a percent of their time allows; long ones always") {
  StepProfile profile(1);
  int measured = 0;
  for (int i = 0; i < 1000; ++i) measured += tell(profile, nanoseconds(100'000));
  CHECK(measured == Approx(1000 / (60 * 120 / 500.0)).epsilon(0.1));  // a step pays 500 ns, measuring costs 7,200
  for (int i = 0; i < 10; ++i) CHECK(tell(profile, nanoseconds(40'000'000), 512));
  const auto snapshot = profile.snapshot();
  const PhaseTime& decode = phase_of(*snapshot, "decode");
  CHECK(decode.steps == 1000);
  CHECK(decode.seconds == Approx(0.1));
  CHECK(decode.measured_steps == static_cast<std::uint64_t>(measured));
  REQUIRE(decode.operations.size() == 1);
  CHECK(decode.operations[0].name == "attn_qkv");
  CHECK(decode.operations[0].seconds == Approx(decode.measured_seconds));
  const PhaseTime& prefill = phase_of(*snapshot, "prefill");
  CHECK(prefill.measured_steps == 10);
  CHECK(prefill.rows == 5120);
}

TEST_CASE("the times of a step that threw are not counted with the next") {
  StepProfile profile(1);
  StepSpan step{.step = 1, .num_rows = 1, .num_sequences = 1, .begin = {}, .end = {}};
  step.end = step.begin + nanoseconds(1'000'000'000);
  REQUIRE(profile.on_step_begin(step));
  profile.on_operation({.operation = Operation::head, .layer = 5, .begin = step.begin, .end = step.end});
  CHECK(profile.snapshot()->phases.empty());
  REQUIRE(tell(profile, nanoseconds(1'000'000'000)));
  const auto snapshot = profile.snapshot();
  REQUIRE(phase_of(*snapshot, "decode").operations.size() == 1);
  CHECK(phase_of(*snapshot, "decode").operations[0].layer_seconds.size() == 1);
}

}  // namespace
}  // namespace troupe::test
