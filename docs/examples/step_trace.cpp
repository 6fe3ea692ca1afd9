// A profiler of one's own: a timeline of the first steps of a model, for chrome://tracing or ui.perfetto.dev.
//
//   example_step_trace MODEL.gguf [THREADS] > trace.json
//
// Needs the engine alone: no server, no actors. What a profiler may do is said in engine/compute/profiler.h: it is
// called in the middle of a step, so this one writes into memory that it took before.
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <troupe/engine/compute/profiler.h>
#include <troupe/engine/engine.h>

namespace {

using namespace troupe;

class StepTrace final : public engine::Profiler {
 public:
  explicit StepTrace(std::size_t max_events) { events_.reserve(max_events); }

  void on_operation(const engine::OperationSpan& span) override {
    add({engine::kOperationNames[static_cast<std::size_t>(span.operation)], span.layer, 0, span.begin, span.end});
  }
  // Below the operation, what each thread did for it: the gaps are threads that wait.
  void on_join(const engine::JoinSpan& join) override {
    for (std::size_t i = 0; i < join.threads.size(); ++i)
      if (join.threads[i].num_chunks != 0)
        add({"chunks", engine::kNoLayer, static_cast<int>(i) + 1, join.threads[i].begin, join.threads[i].end});
  }
  void on_step_end(const engine::StepSpan& step) override {
    add({step.num_rows == step.num_sequences ? "decode" : "prefill", engine::kNoLayer, -1, step.begin, step.end});
  }

  void write() const {
    std::puts("[");
    for (const Event& event : events_) {
      const auto us = [](auto duration) { return std::chrono::duration<double, std::micro>(duration).count(); };
      std::printf("{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%.*s", event.row + 1,
                  us(event.begin - events_.front().begin), us(event.end - event.begin),
                  static_cast<int>(event.name.size()), event.name.data());
      if (event.layer != engine::kNoLayer) std::printf(" %u", event.layer);
      std::puts(&event == &events_.back() ? "\"}" : "\"},");
    }
    std::puts("]");
  }

 private:
  struct Event {
    std::string_view name;
    std::uint32_t layer;
    int row;  // -1: steps; 0: operations; then the threads
    engine::ProfileClock::time_point begin, end;
  };
  void add(const Event& event) {
    if (events_.size() < events_.capacity()) events_.push_back(event);
  }
  std::vector<Event> events_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: %s MODEL.gguf [THREADS] > trace.json\n", argv[0]), 2;
  engine::Team team(argc > 2 ? static_cast<std::uint32_t>(std::atoi(argv[2])) : engine::default_num_threads());
  engine::LoadOptions load;
  load.num_blocks = 4;
  load.context = 128;
  load.team = &team;
  const auto model = engine::LoadedModel::load(argv[1], load);
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 1;

  StepTrace trace(100'000);
  team.set_profiler(&trace);
  engine::Executor executor(**model, team);
  engine::SequenceSpec spec;
  spec.id = 1;
  spec.tokens.assign(32, 1);
  spec.tables = {{0, 1, 2, 3}};
  spec.sampling.ignore_eos = true;
  executor.open(std::move(spec));
  engine::StepBatch batch;
  batch.items.push_back({.sequence = 1, .num_tokens = 32, .output = engine::Output::sample, .new_blocks = {}});
  engine::StepResult result;
  for (int i = 0; i < 8; ++i) {
    executor.step(batch, result);
    batch.items[0].num_tokens = 1;
  }
  team.set_profiler(nullptr);
  trace.write();
}
