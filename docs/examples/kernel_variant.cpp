// A kernel variant of one's own: this CPU's best one, with an attention that counts what it is called for.
//
//   example_kernel_variant MODEL.gguf
//
// What a variant may do is said in kernels/register_table.h and, function by function, in kernels/kernels.h. Ends with
// 1 if anything is not as it should be.
#include <atomic>
#include <cstdio>
#include <cstring>

#include <troupe/engine/engine.h>
#include <troupe/engine/evaluation/eval.h>
#include <troupe/kernels/register_table.h>

namespace {

using namespace troupe;

std::atomic<std::uint64_t> num_calls = 0, num_rows = 0;

// Runs on every thread of a step at once.
void counted_attend_split(const kernels::AttentionSplit& split) {
  num_calls.fetch_add(1, std::memory_order_relaxed);
  num_rows.fetch_add(split.rows.size(), std::memory_order_relaxed);
  kernels::best_table().attend_split(split);
}

// Lives as long as the program, as register_table asks for.
const kernels::KernelTable& counted_table() {
  static const kernels::KernelTable table = [] {
    kernels::KernelTable counted = kernels::best_table();  // which this CPU can run
    counted.name = "counted";
    counted.attend_split = counted_attend_split;
    return counted;
  }();
  return table;
}

bool all_well = true;
void check(bool good, const char* what) {
  if (!good) std::fprintf(stderr, "wrong: %s\n", what);
  all_well = all_well && good;
}

std::shared_ptr<engine::LoadedModel> load(const char* path, const char* kernels, engine::Team& team) {
  engine::LoadOptions options;
  options.kernels = kernels;
  options.context = 128;
  options.num_blocks = 4;
  options.team = &team;
  const auto model = engine::LoadedModel::load(path, options);
  if (!model) std::fprintf(stderr, "%s\n", model.error().message.c_str()), std::exit(1);
  return *model;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]), 2;
  const std::string best(kernels::best_table().name);
  if (const Status registered = kernels::register_table(counted_table()); !registered)
    return std::fprintf(stderr, "%s\n", registered.error().message.c_str()), 1;

  engine::Team team(2);
  const auto ours = load(argv[1], "counted", team);  // used only by models that ask for it by name
  const auto theirs = load(argv[1], best.c_str(), team);
  std::vector<TokenId> tokens(100);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(3 + 7 * i);
  const auto logits = engine::evaluate(*ours, team, tokens);
  const std::uint64_t rows_of_ours = num_rows;
  const auto expected = engine::evaluate(*theirs, team, tokens);
  if (!logits || !expected) return std::fprintf(stderr, "the model has too small a context or vocabulary\n"), 1;

  const engine::ModelInfo& info = ours->info();
  std::printf("%s: %llu calls, %llu rows of %u heads in %u layers\n", ours->numerics_id().c_str(),
              static_cast<unsigned long long>(num_calls), static_cast<unsigned long long>(num_rows), info.num_heads,
              info.num_layers);
  check(num_rows == std::uint64_t{info.num_layers} * info.num_heads * tokens.size(), "each head of each token, once");
  check(num_calls > 0 && num_rows == rows_of_ours, "only the model that asked for it runs it");
  check(*logits == *expected, "counting changes no bit");
  check(ours->numerics_id().find("-counted-") != std::string::npos, "the name is part of the id");
  check(kernels::best_table().name == best, "it is not chosen as the best");
  check(!kernels::register_table(counted_table()), "a name is taken once");
  return all_well ? 0 : 1;
}
