// A memory policy of one's own: all large memory lies in files in memory, whose names /proc/PID/maps shows, and is
// counted.
//
//   example_memory_policy MODEL.gguf
//
// What a policy may do is said in engine/memory/memory_policy.h. Prints what each kind takes beside what the engine
// says that it takes; ends with 1 if they differ, or if the answer does.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <troupe/engine/engine.h>
#include <troupe/engine/evaluation/eval.h>
#include <troupe/engine/memory/memory_policy.h>

namespace {

using namespace troupe;

class NamedMemory final : public engine::MemoryPolicy {
 public:
  struct Use {
    std::uint64_t pieces = 0, bytes = 0;
  };

  std::byte* allocate(engine::MemoryKind kind, std::size_t bytes) noexcept override {
    constexpr const char* kNames[] = {"troupe-weights", "troupe-kv-cache", "troupe-step-buffers"};  // by kind
    const int file = ::memfd_create(kNames[static_cast<std::size_t>(kind)], MFD_CLOEXEC);
    if (file < 0) return nullptr;
    void* data = MAP_FAILED;
    if (::ftruncate(file, static_cast<off_t>(bytes)) == 0)
      data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);  // the mapping keeps it
    if (data == MAP_FAILED) return nullptr;
    const std::lock_guard lock(mutex_);
    Use& use = uses_[static_cast<std::size_t>(kind)];
    ++use.pieces;
    use.bytes += bytes;
    return static_cast<std::byte*>(data);
  }

  void release(engine::MemoryKind kind, std::byte* data, std::size_t bytes) noexcept override {
    ::munmap(data, bytes);
    const std::lock_guard lock(mutex_);
    Use& use = uses_[static_cast<std::size_t>(kind)];
    --use.pieces;
    use.bytes -= bytes;
  }

  Use use(engine::MemoryKind kind) const {
    const std::lock_guard lock(mutex_);
    return uses_[static_cast<std::size_t>(kind)];
  }

 private:
  mutable std::mutex mutex_;  // several models may load at once
  std::array<Use, engine::kMemoryKindNames.size()> uses_;
};

bool all_well = true;
void check(bool good, const char* what) {
  if (!good) std::fprintf(stderr, "wrong: %s\n", what);
  all_well = all_well && good;
}

std::shared_ptr<engine::LoadedModel> load(const char* path, std::shared_ptr<engine::MemoryPolicy> policy,
                                          engine::Team& team) {
  engine::LoadOptions options;
  options.context = 64;
  options.num_blocks = 2;
  options.team = &team;
  options.memory_policy = std::move(policy);
  const auto model = engine::LoadedModel::load(path, options);
  if (!model) std::fprintf(stderr, "%s\n", model.error().message.c_str()), std::exit(1);
  return *model;
}

// 40 positions through an executor; its buffers, and the table that is to be printed while they are there.
std::vector<TokenId> answer(const engine::LoadedModel& model, engine::Team& team, const NamedMemory* memory) {
  engine::Executor executor(model, team);
  engine::SequenceSpec spec;
  spec.id = 1;
  spec.tokens = {1, 20, 300, 44, 5, 67, 89, 10};
  spec.tables = {{0, 1}};
  spec.sampling.ignore_eos = true;
  executor.open(std::move(spec));
  engine::StepBatch batch;
  batch.items.push_back({.sequence = 1, .num_tokens = 8, .output = engine::Output::sample, .new_blocks = {}});
  engine::StepResult result;
  for (int i = 0; i < 33; ++i) {
    executor.step(batch, result);
    batch.items[0].num_tokens = 1;
  }
  if (memory) {
    const std::uint64_t said[] = {model.model().matrix_bytes(),
                                  model.arena()->num_blocks() * model.arena()->bytes_per_block(),
                                  executor.workspace_bytes()};
    std::printf("%-14s %7s %12s %12s\n", "kind", "pieces", "bytes", "engine says");
    for (std::size_t kind = 0; kind < engine::kMemoryKindNames.size(); ++kind) {
      const NamedMemory::Use use = memory->use(static_cast<engine::MemoryKind>(kind));
      std::printf("%-14s %7llu %12llu %12llu\n", engine::kMemoryKindNames[kind].data(),
                  static_cast<unsigned long long>(use.pieces), static_cast<unsigned long long>(use.bytes),
                  static_cast<unsigned long long>(said[kind]));
      check(use.bytes == said[kind] && use.bytes > 0, "what was given is what the engine knows of");
    }
  }
  const auto tokens = executor.tokens(1);
  return {tokens.begin(), tokens.end()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]), 2;
  engine::Team team(2);
  const auto memory = std::make_shared<NamedMemory>();
  auto model = load(argv[1], memory, team);
  const std::vector<TokenId> ours = answer(*model, team, memory.get());
  const std::vector<TokenId> expected = answer(*load(argv[1], engine::system_memory(), team), team, nullptr);
  check(ours.size() == 41 && ours == expected, "the same answer wherever memory lies");
  model.reset();
  for (std::size_t kind = 0; kind < engine::kMemoryKindNames.size(); ++kind)
    check(memory->use(static_cast<engine::MemoryKind>(kind)).pieces == 0, "everything came back");
  return all_well ? 0 : 1;
}
