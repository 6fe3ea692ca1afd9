#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>

#include "cache/group.h"
#include "config/assert.h"
#include "engine/drafting/speculation.h"
#include "engine/engine.h"
#include "engine/memory/workspace.h"
#include "engine/tokenizers/answer_beginning.h"
#include "engine/tokenizers/reasoning_limit.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// Rows per pass over the layers. The activations of more rows do not stay in the caches between two products: 8,192 at
// once cost up to 1.2 times as much per row. This many rows are enough to amortise reading each weight once per pass.
constexpr std::uint32_t kMaxRowsPerPass = 512;
// Rows whose logits exist at once, or as many as there are sequences and drafts of the usual length, if those are more.
constexpr std::size_t kLogitRows = 64;

// The executor's state of one sequence; holds the only copy of its tokens while it runs.
struct Sequence {
  std::vector<TokenId> tokens;  // known
  BlockTables tables;           // by group
  AlignedMemory state;          // float32; empty without recurrent layers
  AlignedMemory kept_state;     // during a step with a draft: the state before the draft
  std::uint32_t num_prompt = 0;
  std::uint32_t num_computed = 0;
  Sampler sampler;
  std::optional<ReasoningLimit> reasoning;
  std::optional<AnswerBeginning> beginning;
  std::unique_ptr<AnswerReader> reader;  // of an answer that has to be of a form
  std::vector<TokenId> forced;           // ItemResult::forced of its last draw

  // Whether forced_token() depends on the answer so far.
  bool forces_tokens() const { return reasoning || beginning || reader; }
  // The token that has to come next; nothing: any.
  std::optional<TokenId> forced_token() const {
    const auto answer = std::span(tokens).subspan(num_prompt);
    if (reasoning)
      if (const auto token = reasoning->next(answer)) return token;
    return beginning ? beginning->next(answer) : std::nullopt;
  }
  // What the form of the answer allows next.
  NextTokens next_tokens(std::size_t context) {
    if (!reader) return {};
    const auto answer = std::span(tokens).subspan(num_prompt);
    const std::size_t most = std::min<std::size_t>(sampler.params().max_tokens, context - num_prompt);
    return reader->next(answer, most - std::min(most, answer.size()));
  }
  std::uint32_t num_known() const { return static_cast<std::uint32_t>(tokens.size()); }
  // How many of its next `count` tokens have a token of the prompt behind them whose logprob is wanted.
  std::uint32_t num_scored(std::uint32_t count) const {
    if (!sampler.params().prompt_logprobs || num_computed + 1 >= num_prompt) return 0;
    return std::min(count, num_prompt - 1 - num_computed);
  }
  float* live_state() const { return reinterpret_cast<float*>(state.data()); }
};

}  // namespace

struct Executor::State {
  State(const LoadedModel& loaded, Team& compute_team)
      : model(loaded), team(compute_team), workspace(loaded.memory_policy()) {
    state_shape = model.cache_spec().state;
  }

  Sequence& find(SequenceId id) {
    const auto it = sequences.find(id);
    TROUPE_ASSERT(it != sequences.end());
    return it->second;
  }
  const Sequence& find(SequenceId id) const { return const_cast<State*>(this)->find(id); }

  AlignedMemory take_state();
  void begin_state(Sequence& sequence, const SequenceSpec& spec);
  void assert_windows(const Sequence& sequence, std::uint32_t num_tokens) const;
  void append_blocks(Sequence& sequence, const StepItem& item) const;
  std::size_t gather_rows(const StepBatch& batch);
  void add_draft(Sequence& sequence, const StepItem& item);
  PassCounts forward(float* hidden);
  void save_states(const StepBatch& batch);
  const float* gather_outputs(const StepBatch& batch, const float* hidden, StepResult& result);
  void score(const Sequence& sequence, std::uint32_t first, std::uint32_t count, const float* hidden, ItemResult& out);
  void draw_all(const StepBatch& batch, const float* sampled, StepResult& result);
  void draw_by_logits(const StepBatch& batch, const float* sampled, StepResult& result);
  Finish take(Sequence& sequence, SampledToken token, std::vector<SampledToken>& out) const;
  Finish at_limit(Sequence& sequence) const;

  // The rows of one item to sample in the current step.
  struct Draw {
    Sequence* sequence = nullptr;
    std::size_t item = 0;
    std::size_t next_row = 0;  // among the rows to sample
    std::size_t num_drawn = 0;
    bool has_ended = false;  // no row after these is drawn
  };
  // Some of the rows to sample, and their logits; all_greedy: there are none, in `largest` are all.
  struct Logits {
    std::size_t first_row = 0;
    std::size_t num_rows = 0;
    std::span<float> values{};
  };
  bool draw_row(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out) const;
  void verify(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out) const;
  std::size_t rows_left(const Draw& draw, const StepItem& item, const Logits& logits) const;
  bool is_long(const Draw& draw, const StepItem& item, const Logits& logits) const;
  void verify_long(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out);
  void take_drawn(Draw& draw, const StepItem& item, SampledToken token, ItemResult& out) const;
  void keep_accepted(Sequence& sequence, std::span<const TokenId> draft, ItemResult& out);
  void look_ahead(Sequence& sequence, ItemResult& out) const;

  const LoadedModel& model;
  Team& team;
  Workspace workspace;
  StateShape state_shape;  // no floats without recurrent layers
  std::unordered_map<SequenceId, Sequence> sequences;
  std::vector<AlignedMemory> unused_states;  // of closed sequences
  std::uint64_t state_bytes = 0;             // of all states, in use or not
  // Members to avoid allocations in a step.
  std::vector<SequenceRows> rows;
  std::vector<SequenceRows> pass_rows;
  std::vector<TokenId> row_tokens;         // of items with a draft
  std::vector<std::uint32_t> scored_rows;  // of each item, Sequence::num_scored()
  std::vector<Draw> draws;
  std::size_t num_sampled_rows = 0;
  // Whether all draws of this step are greedy: then only `largest` is computed, no logits.
  bool all_greedy = false;
  std::vector<kernels::MaxAt> largest;
  // Of verify_long().
  std::vector<Sampler> samplers;
  std::vector<SampledToken> drawn;
};

Executor::Executor(const LoadedModel& model, Team& team) : state_(std::make_unique<State>(model, team)) {}
Executor::~Executor() = default;

const LoadedModel& Executor::model() const { return state_->model; }

void Executor::open(SequenceSpec spec) {
  const ModelInfo& info = state_->model.info();
  TROUPE_ASSERT(!spec.tokens.empty() && spec.tokens.size() <= info.context);
  TROUPE_ASSERT(spec.num_cached < spec.tokens.size());
  TROUPE_ASSERT(spec.num_prompt_tokens <= spec.tokens.size());
  Sequence sequence{.tokens = std::move(spec.tokens),
                    .tables = std::move(spec.tables),
                    .state = {},
                    .kept_state = {},
                    .num_prompt = spec.num_prompt_tokens,
                    .num_computed = spec.num_cached,
                    .sampler = Sampler(state_->model.kernels(), std::move(spec.sampling), state_->model.end_ids()),
                    .reasoning = {},
                    .beginning = {},
                    .reader = {},
                    .forced = {}};
  TROUPE_ASSERT(sequence.tables.size() == state_->model.arenas().size());
  for (const BlockTable& table : sequence.tables) TROUPE_ASSERT(table.size() == sequence.tables[0].size());
  for (GroupId group = 0; group < spec.copy_from.size(); ++group) {
    TROUPE_ASSERT(spec.num_cached / kBlockSize < sequence.tables[group].size());
    KvArena& arena = *state_->model.arena(group);
    std::memcpy(arena.block(sequence.tables[group][spec.num_cached / kBlockSize]), arena.block(spec.copy_from[group]),
                arena.bytes_per_block());
  }
  state_->begin_state(sequence, spec);
  if (sequence.num_prompt == 0) sequence.num_prompt = sequence.num_known();
  const SamplingParams& params = sequence.sampler.params();
  if (params.reasoning_budget && state_->model.tokenizer())
    sequence.reasoning.emplace(state_->model.tokenizer(), *params.reasoning_budget,
                               std::span(sequence.tokens).first(sequence.num_prompt));
  if (params.beginning && state_->model.tokenizer())
    sequence.beginning.emplace(*state_->model.tokenizer(), *params.beginning,
                               std::span(sequence.tokens).first(sequence.num_prompt));
  if (params.ruled)
    sequence.reader =
        params.ruled->rule->read(std::span(sequence.tokens).first(sequence.num_prompt), params.ruled->markers);
  sequence.sampler.set_prompt(sequence.num_prompt);
  for (const TokenId token : sequence.tokens) {
    TROUPE_ASSERT(token >= 0 && static_cast<std::uint32_t>(token) < info.vocab_size);
    sequence.sampler.accept(token);
  }
  // Reserve for the whole answer, so that no step reallocates these.
  const std::uint64_t longest =
      std::min<std::uint64_t>(info.context, std::uint64_t{sequence.num_prompt} + sequence.sampler.params().max_tokens);
  sequence.tokens.reserve(std::max<std::size_t>(longest, sequence.tokens.size()));
  sequence.sampler.reserve(sequence.tokens.capacity());
  for (BlockTable& table : sequence.tables)
    table.reserve(blocks_for(static_cast<std::uint32_t>(sequence.tokens.capacity())));
  const bool is_new = state_->sequences.emplace(spec.id, std::move(sequence)).second;
  TROUPE_ASSERT(is_new);
}

// Memory of a state, with any contents: of a closed sequence, if there is any. Throws bad_alloc.
AlignedMemory Executor::State::take_state() {
  if (!unused_states.empty()) {
    AlignedMemory state = std::move(unused_states.back());
    unused_states.pop_back();
    return state;
  }
  TROUPE_ASSERT(state_bytes / state_shape.bytes() < model.num_states());
  AlignedMemory state = AlignedMemory::allocate(model.memory_policy(), MemoryKind::kv_cache, state_shape.bytes());
  if (!state.data()) throw std::bad_alloc();
  state_bytes += state_shape.bytes();
  return state;
}

// Sets the live state after spec.num_cached positions.
void Executor::State::begin_state(Sequence& sequence, const SequenceSpec& spec) {
  if (state_shape.num_floats() == 0) return;
  sequence.state = take_state();
  if (!spec.state.empty()) {
    TROUPE_ASSERT(spec.state.size() == state_shape.num_floats());
    std::copy(spec.state.begin(), spec.state.end(), sequence.live_state());
  } else if (spec.restore != kNoSnapshot) {
    model.snapshots()->restore(spec.restore, sequence.live_state());
  } else {
    TROUPE_ASSERT(spec.num_cached == 0);
    std::memset(sequence.state.data(), 0, state_shape.bytes());
  }
}

void Executor::truncate(SequenceId id, std::uint32_t num_tokens) {
  Sequence& sequence = state_->find(id);
  TROUPE_ASSERT(num_tokens >= 1 && num_tokens <= sequence.num_known());
  sequence.sampler.retract(sequence.num_known() - num_tokens);
  sequence.tokens.resize(num_tokens);
  if (sequence.reader) sequence.reader->truncate(num_tokens - std::min(num_tokens, sequence.num_prompt));
  sequence.forced.clear();
  if (sequence.num_computed < num_tokens) return;
  rewind(id, sequence.state.data() ? 0 : num_tokens - 1);
}

void Executor::append(SequenceId id, std::span<const TokenId> tokens) {
  Sequence& sequence = state_->find(id);
  TROUPE_ASSERT(sequence.num_known() + tokens.size() <= state_->model.info().context);
  sequence.forced.clear();
  for (const TokenId token : tokens) {
    TROUPE_ASSERT(token >= 0 && static_cast<std::uint32_t>(token) < state_->model.info().vocab_size);
    sequence.tokens.push_back(token);
    sequence.sampler.accept(token);
  }
}

void Executor::rewind(SequenceId id, std::uint32_t num_computed) {
  Sequence& sequence = state_->find(id);
  TROUPE_ASSERT(num_computed <= sequence.num_computed);
  if (sequence.state.data() && num_computed != sequence.num_computed) {
    TROUPE_ASSERT(num_computed == 0);
    std::memset(sequence.state.data(), 0, sequence.state.size());
  }
  sequence.num_computed = num_computed;
}

void Executor::swap_block(SequenceId id, GroupId group, std::uint32_t index, BlockId block) {
  Sequence& sequence = state_->find(id);
  TROUPE_ASSERT(index < sequence.tables.at(group).size());
  sequence.tables[group][index] = block;
}

void Executor::close(SequenceId id) {
  const auto found = state_->sequences.find(id);
  if (found == state_->sequences.end()) return;
  for (AlignedMemory* state : {&found->second.state, &found->second.kept_state})  // both: a step has failed
    if (state->data()) state_->unused_states.push_back(std::move(*state));
  state_->sequences.erase(found);
}

bool Executor::is_open(SequenceId id) const { return state_->sequences.contains(id); }
std::uint32_t Executor::num_known(SequenceId id) const { return state_->find(id).num_known(); }
std::uint32_t Executor::num_computed(SequenceId id) const { return state_->find(id).num_computed; }
std::uint32_t Executor::num_prompt_tokens(SequenceId id) const { return state_->find(id).num_prompt; }
std::span<const TokenId> Executor::tokens(SequenceId id) const { return state_->find(id).tokens; }
const BlockTable& Executor::block_table(SequenceId id, GroupId group) const { return state_->find(id).tables[group]; }
std::span<const float> Executor::state(SequenceId id) const {
  const Sequence& sequence = state_->find(id);
  return {reinterpret_cast<const float*>(sequence.state.data()), sequence.state.size() / sizeof(float)};
}
std::uint64_t Executor::workspace_bytes() const { return state_->workspace.total_bytes() + state_->state_bytes; }

void Executor::step(const StepBatch& batch, StepResult& result) {
  const auto begin = std::chrono::steady_clock::now();
  result.step = batch.step;
  result.epoch = batch.epoch;
  result.items.resize(batch.items.size());
  result.kv_bytes_read = 0;
  State& state = *state_;
  StepSpan span{.step = batch.step,
                .num_rows = 0,
                .num_sequences = static_cast<std::uint32_t>(batch.items.size()),
                .begin = begin,
                .end = {}};
  for (const StepItem& item : batch.items)
    span.num_rows += item.num_tokens + static_cast<std::uint32_t>(item.draft.size());
  StepScope scope(state.team, span);
  const std::size_t num_outputs = state.gather_rows(batch);
  if (!batch.items.empty()) {
    result.kernels_began = std::chrono::steady_clock::now();
    float* hidden = state.workspace.take<float>(Slot::hidden, num_outputs * state.model.info().dim).data();
    result.kv_bytes_read = state.forward(hidden).kv_bytes_read;
    for (const StepItem& item : batch.items) state.find(item.sequence).num_computed += item.num_tokens;
    state.save_states(batch);
    const float* const sampled = state.gather_outputs(batch, hidden, result);
    state.draw_all(batch, sampled, result);
  }
  result.workspace_bytes = workspace_bytes();
  const auto end = std::chrono::steady_clock::now();
  result.compute_seconds = std::chrono::duration<double>(end - begin).count();
  scope.end(end);
}

// Asserts that the tables of groups with a window have every block that the next tokens read or write.
void Executor::State::assert_windows(const Sequence& sequence, std::uint32_t num_tokens) const {
  const std::uint32_t end = blocks_for(sequence.num_computed + num_tokens);
  for (GroupId group = 0; group < sequence.tables.size(); ++group) {
    const std::uint32_t window = model.cache_spec().groups[group].window;
    if (window == 0) continue;
    const BlockTable& table = sequence.tables[group];
    TROUPE_ASSERT(end <= table.size());
    const auto first = table.begin() + cache::first_window_block(sequence.num_computed, window);
    TROUPE_ASSERT(std::find(first, table.begin() + end, kNoBlock) == table.begin() + end);
  }
}

void Executor::State::append_blocks(Sequence& sequence, const StepItem& item) const {
  TROUPE_ASSERT(item.new_blocks.empty() || item.new_blocks.size() == sequence.tables.size());
  for (GroupId group = 0; group < sequence.tables.size(); ++group) {
    BlockTable& table = sequence.tables[group];
    if (!item.new_blocks.empty())
      table.insert(table.end(), item.new_blocks[group].begin(), item.new_blocks[group].end());
    TROUPE_ASSERT(table.size() == sequence.tables[0].size());
    cache::leave_window_behind(table, item.rewind_floor, model.cache_spec().groups[group].window);
  }
}

// Appends the new blocks and fills `rows`. Returns the number of output rows.
std::size_t Executor::State::gather_rows(const StepBatch& batch) {
  const OperationScope scope(team, Operation::prepare);
  rows.clear();
  row_tokens.clear();
  scored_rows.clear();
  std::size_t num_outputs = 0, num_draft_rows = 0;
  for (const StepItem& item : batch.items)
    if (!item.draft.empty()) num_draft_rows += item.num_tokens + item.draft.size();
  row_tokens.reserve(num_draft_rows);  // `rows` refers to them
  for (const StepItem& item : batch.items) {
    Sequence& sequence = find(item.sequence);
    append_blocks(sequence, item);
    const auto num_draft = static_cast<std::uint32_t>(item.draft.size());
    TROUPE_ASSERT(item.num_tokens >= 1 && item.num_tokens <= sequence.num_known() - sequence.num_computed);
    assert_windows(sequence, item.num_tokens + num_draft);
    // A draw needs the last known token's logits.
    TROUPE_ASSERT(item.output != Output::sample || sequence.num_computed + item.num_tokens == sequence.num_known());
    std::uint32_t outputs = item.output == Output::none     ? 0
                            : item.output == Output::sample ? 1 + num_draft
                                                            : item.num_tokens;
    scored_rows.push_back(sequence.num_scored(item.num_tokens));
    if (scored_rows.back() > 0) outputs = item.num_tokens + num_draft;
    rows.push_back({.tokens = std::span(sequence.tokens).subspan(sequence.num_computed, item.num_tokens),
                    .first_position = sequence.num_computed,
                    .tables = sequence.tables,
                    .state = sequence.live_state(),
                    .num_outputs = outputs});
    if (num_draft != 0) add_draft(sequence, item);
    num_outputs += outputs;
  }
  return num_outputs;
}

// Adds the proposals to the last entry of `rows`.
void Executor::State::add_draft(Sequence& sequence, const StepItem& item) {
  TROUPE_ASSERT(item.output == Output::sample && item.save == kNoSnapshot);
  TROUPE_ASSERT(blocks_for(sequence.num_known() + static_cast<std::uint32_t>(item.draft.size())) <=
                sequence.tables[0].size());
  SequenceRows& last = rows.back();
  const std::size_t begin = row_tokens.size();
  row_tokens.insert(row_tokens.end(), last.tokens.begin(), last.tokens.end());
  row_tokens.insert(row_tokens.end(), item.draft.begin(), item.draft.end());
  last.tokens = std::span(row_tokens).subspan(begin);
  if (!sequence.state.data()) return;
  if (!sequence.kept_state.data()) sequence.kept_state = take_state();
  last.kept_state = reinterpret_cast<float*>(sequence.kept_state.data());
  last.kept_after = item.num_tokens;
}

// Computes all rows, in order, in passes of at most max_rows: a sequence that does not fit into one pass continues in
// the next, as it would in the next step. A mixture of experts takes all rows in one pass, so that each expert gets
// more rows per read of its weights.
PassCounts Executor::State::forward(float* hidden) {
  const std::uint32_t max_rows =
      model.info().num_experts == 0 ? kMaxRowsPerPass : std::numeric_limits<std::uint32_t>::max();
  PassCounts counts;
  std::uint32_t free_rows = max_rows, num_outputs = 0;
  pass_rows.clear();
  const auto run_pass = [&] {
    counts.kv_bytes_read += model.model().forward(team, pass_rows, model.arenas(), workspace, hidden).kv_bytes_read;
    hidden += std::size_t{num_outputs} * model.info().dim;
    pass_rows.clear();
    free_rows = max_rows;
    num_outputs = 0;
  };
  for (SequenceRows left : rows) {
    while (!left.tokens.empty()) {
      if (free_rows == 0) run_pass();
      SequenceRows now = left;
      now.tokens = left.tokens.first(std::min<std::size_t>(left.tokens.size(), free_rows));
      const auto taken = static_cast<std::uint32_t>(now.tokens.size());
      left.tokens = left.tokens.subspan(taken);
      left.first_position += taken;
      left.num_outputs = std::min(left.num_outputs, static_cast<std::uint32_t>(left.tokens.size()));
      now.num_outputs -= left.num_outputs;
      if (left.kept_after > taken) {
        now.kept_state = nullptr;
        left.kept_after -= taken;
      } else {
        left.kept_state = nullptr;
      }
      pass_rows.push_back(now);
      num_outputs += now.num_outputs;
      free_rows -= taken;
    }
  }
  run_pass();
  return counts;
}

void Executor::State::save_states(const StepBatch& batch) {
  team.parallel_for(batch.items.size(), [&](std::size_t i, std::uint32_t) {
    const StepItem& item = batch.items[i];
    if (item.save != kNoSnapshot) model.snapshots()->save(item.save, find(item.sequence).live_state());
  });
}

// Of the rows to sample of an item, the first ones: their tokens are known, and nothing of their logits is wanted.
std::size_t num_certain(const Sequence& sequence, const StepItem& item) {
  if (sequence.forced.empty() || sequence.sampler.params().num_logprobs >= 0) return 0;
  const std::size_t most = std::min(sequence.forced.size(), 1 + item.draft.size());
  std::size_t count = 1;
  while (count < most && item.draft[count - 1] == sequence.forced[count - 1]) ++count;
  return count;
}

// Logits of all_logits items are written to their results. Returns the rows to be sampled, gathered.
const float* Executor::State::gather_outputs(const StepBatch& batch, const float* hidden, StepResult& result) {
  const ModelInfo& info = model.info();
  draws.clear();
  num_sampled_rows = 0;
  const auto num_sampled = [&](const StepItem& item) {
    return item.output == Output::sample ? 1 + item.draft.size() - num_certain(find(item.sequence), item) : 0;
  };
  for (const StepItem& item : batch.items) num_sampled_rows += num_sampled(item);
  float* sampled = workspace.take<float>(Slot::sampled_hidden, num_sampled_rows * info.dim).data();
  std::size_t row = 0;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const StepItem& item = batch.items[i];
    const std::size_t num_outputs = rows[i].num_outputs;
    ItemResult& out = result.items[i];
    out.sequence = item.sequence;
    out.tokens.clear();
    out.forced.clear();
    out.num_accepted = 0;
    out.num_computed = find(item.sequence).num_computed;
    out.logits.clear();
    out.scored.clear();
    out.finish = Finish::running;
    Sequence& sequence = find(item.sequence);
    const std::uint32_t first = sequence.num_computed - item.num_tokens;  // they count as computed by now
    if (const std::uint32_t count = scored_rows[i]) score(sequence, first, count, hidden, out);
    if (item.output == Output::sample) {
      const std::size_t count = num_sampled(item);
      if (count > 0)
        std::memcpy(sampled + row * info.dim, hidden + (num_outputs - count) * info.dim,
                    count * info.dim * sizeof(float));
      Draw& draw = draws.emplace_back(Draw{.sequence = &sequence, .item = i, .next_row = row});
      for (std::size_t left = num_certain(sequence, item); left > 0 && !draw.has_ended; --left)
        take_drawn(draw, item, {.id = sequence.forced[draw.num_drawn], .logprob = 0, .top = {}}, out);
      row += count;
    } else if (item.output == Output::all_logits) {
      out.logits.resize(std::size_t{item.num_tokens} * info.vocab_size);
      model.model().head(team, hidden, item.num_tokens, workspace, out.logits.data());
    }
    hidden += num_outputs * info.dim;
  }
  return sampled;
}

// The logprobs of the tokens behind `count` tokens from position `first` on. A few rows at a time: the logits of a
// whole chunk may take more memory than all else of a step.
void Executor::State::score(const Sequence& sequence, std::uint32_t first, std::uint32_t count, const float* hidden,
                            ItemResult& out) {
  const std::size_t vocab_size = model.info().vocab_size, dim = model.info().dim;
  out.scored.resize(count);
  for (std::size_t begin = 0; begin < count; begin += kLogitRows) {
    const std::size_t num_rows = std::min(count - begin, kLogitRows);
    const std::span<float> logits = workspace.take<float>(Slot::logits, num_rows * vocab_size);
    model.model().head(team, hidden + begin * dim, num_rows, workspace, logits.data());
    team.parallel_for(num_rows, [&](std::size_t i, std::uint32_t) {
      out.scored[begin + i] =
          sequence.sampler.score(logits.subspan(i * vocab_size, vocab_size), sequence.tokens[first + begin + i + 1]);
    });
  }
}

// Rows to be sampled are multiplied together. If all of them are greedy, their logits are never written.
void Executor::State::draw_all(const StepBatch& batch, const float* sampled, StepResult& result) {
  all_greedy = std::all_of(draws.begin(), draws.end(), [](const Draw& draw) {
    return draw.sequence->sampler.is_plain_greedy(draw.sequence->num_known());
  });
  if (!draws.empty() && all_greedy) {
    largest.resize(num_sampled_rows);
    model.model().head_greedy(team, sampled, num_sampled_rows, workspace, largest.data());
    const OperationScope scope(team, Operation::sample);
    for (Draw& draw : draws)
      verify(draw, batch.items[draw.item], {.num_rows = num_sampled_rows}, result.items[draw.item]);
  } else if (!draws.empty()) {
    draw_by_logits(batch, sampled, result);
  }
  if (std::ranges::any_of(draws, [](const Draw& draw) { return draw.sequence->reader != nullptr; })) {
    const OperationScope scope(team, Operation::sample);
    team.parallel_for(draws.size(), [&](std::size_t i, std::uint32_t) {
      look_ahead(*draws[i].sequence, result.items[draws[i].item]);
    });
  }
  result.kernels_ended = std::chrono::steady_clock::now();
  for (const Draw& draw : draws) keep_accepted(*draw.sequence, batch.items[draw.item].draft, result.items[draw.item]);
}

// Draws of different items are independent; those of one item go in order, each with the tokens before it. Of a long
// proposal not all logits exist at once, and none of those after a wrong token are computed.
void Executor::State::draw_by_logits(const StepBatch& batch, const float* sampled, StepResult& result) {
  const std::size_t vocab_size = model.info().vocab_size;
  const std::size_t most = std::max(kLogitRows, draws.size() * (1 + kMaxDraftTokens));
  for (std::size_t first = 0; first < num_sampled_rows; first += most) {
    const std::size_t count = std::min(most, num_sampled_rows - first);
    const auto has_rows = [&](const Draw& draw) {
      return !draw.has_ended && draw.next_row >= first && draw.next_row < first + count;
    };
    if (std::none_of(draws.begin(), draws.end(), has_rows)) continue;
    const std::span<float> logits = workspace.take<float>(Slot::logits, count * vocab_size);
    model.model().head(team, sampled + first * model.info().dim, count, workspace, logits.data());
    const OperationScope scope(team, Operation::sample);
    const Logits some{first, count, logits};
    const auto is_one_of_many = [&](const Draw& draw) {
      return has_rows(draw) && !is_long(draw, batch.items[draw.item], some);
    };
    if (std::any_of(draws.begin(), draws.end(), is_one_of_many)) {
      team.parallel_for(draws.size(), [&](std::size_t i, std::uint32_t) {
        Draw& draw = draws[i];
        if (is_one_of_many(draw)) verify(draw, batch.items[draw.item], some, result.items[draw.item]);
      });
    }
    for (Draw& draw : draws) {
      const StepItem& item = batch.items[draw.item];
      if (has_rows(draw) && is_long(draw, item, some)) verify_long(draw, item, some, result.items[draw.item]);
    }
  }
}

// Draws the token after the next output row of an item. False: the answer ends before it.
bool Executor::State::draw_row(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out) const {
  Sequence& sequence = *draw.sequence;
  const std::size_t row = draw.next_row++;
  std::optional<TokenId> forced = sequence.forced_token();
  const NextTokens next = forced ? NextTokens() : sequence.next_tokens(model.info().context);
  if (next.kind == NextTokens::Kind::complete || next.kind == NextTokens::Kind::failed) {
    out.finish = next.kind == NextTokens::Kind::complete ? Finish::eos : Finish::no_token;
    return false;
  }
  if (next.kind == NextTokens::Kind::forced) forced = next.forced;
  if (all_greedy) {
    take_drawn(draw, item, {.id = forced.value_or(static_cast<TokenId>(largest[row].index)), .logprob = 0, .top = {}},
               out);
    return true;
  }
  const std::size_t vocab_size = model.info().vocab_size;
  const std::span<float> own = logits.values.subspan((row - logits.first_row) * vocab_size, vocab_size);
  Sampler& sampler = sequence.sampler;
  sampler.force(forced);
  sampler.allow(next.allowed, next.may_end);
  take_drawn(draw, item, sampler.sample(own, sequence.num_known()), out);
  return true;
}

// Draws the tokens after the last known one and after each proposal, up to the first that is not the one proposed, or
// that ends the sequence; as far as their logits are there.
void Executor::State::verify(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out) const {
  while (!draw.has_ended && draw.next_row < logits.first_row + logits.num_rows)
    if (!draw_row(draw, item, logits, out)) draw.has_ended = true;
}

void Executor::State::take_drawn(Draw& draw, const StepItem& item, SampledToken token, ItemResult& out) const {
  const std::size_t i = draw.num_drawn++;
  const bool is_proposed = i < item.draft.size() && token.id == item.draft[i];
  out.finish = take(*draw.sequence, std::move(token), out.tokens);
  if (is_proposed && out.tokens.size() == i + 1) ++out.num_accepted;
  draw.has_ended = !is_proposed || out.finish != Finish::running;
}

// Rows of the item that have logits and are not drawn.
std::size_t Executor::State::rows_left(const Draw& draw, const StepItem& item, const Logits& logits) const {
  return std::min(logits.first_row + logits.num_rows - draw.next_row, 1 + item.draft.size() - draw.num_drawn);
}

// Whether the draws of one item are worth dividing among threads.
bool Executor::State::is_long(const Draw& draw, const StepItem& item, const Logits& logits) const {
  return item.draft.size() > kMaxDraftTokens && rows_left(draw, item, logits) > kMaxDraftTokens &&
         !draw.sequence->forces_tokens();
}

// As verify(). Each thread draws some of the rows, as if the proposals before them were right; those after a wrong one
// are not taken.
void Executor::State::verify_long(Draw& draw, const StepItem& item, const Logits& logits, ItemResult& out) {
  const std::size_t count = rows_left(draw, item, logits), vocab_size = model.info().vocab_size;
  const std::span<const TokenId> draft = std::span(item.draft).subspan(draw.num_drawn);
  const std::size_t row = draw.next_row - logits.first_row;
  const Sequence& sequence = *draw.sequence;
  const std::size_t parts = team.num_threads();
  samplers.resize(parts, sequence.sampler);
  drawn.resize(std::max(drawn.size(), count));
  team.parallel_for(parts, [&](std::size_t part, std::uint32_t) {
    const std::size_t begin = count * part / parts, end = count * (part + 1) / parts;
    Sampler& sampler = samplers[part];
    sampler = sequence.sampler;
    for (const TokenId token : draft.first(std::min(begin, draft.size()))) sampler.accept(token);
    for (std::size_t i = begin; i < end; ++i) {
      drawn[i] = sampler.sample(logits.values.subspan((row + i) * vocab_size, vocab_size), sequence.num_known() + i);
      if (i == draft.size() || drawn[i].id != draft[i]) return;
      sampler.accept(draft[i]);
    }
  });
  for (std::size_t i = 0; i < count && !draw.has_ended; ++i, ++draw.next_row)
    take_drawn(draw, item, std::move(drawn[i]), out);
}

// Drops the rows of rejected proposals: their K and V are overwritten by later rows, a state is replaced by the one
// from before the draft.
void Executor::State::keep_accepted(Sequence& sequence, std::span<const TokenId> draft, ItemResult& out) {
  if (draft.empty()) return;
  const bool all_accepted = out.num_accepted == draft.size();
  if (!sequence.state.data() || all_accepted)
    sequence.num_computed += out.num_accepted;
  else
    std::swap(sequence.state, sequence.kept_state);
  if (sequence.kept_state.data()) unused_states.push_back(std::move(sequence.kept_state));
  out.num_computed = sequence.num_computed;
}

// Finds the tokens that have to follow. They are known for the moment, so that what follows them is asked for.
void Executor::State::look_ahead(Sequence& sequence, ItemResult& out) const {
  sequence.forced.clear();
  if (!sequence.reader || out.finish != Finish::running) return;
  const std::size_t num_known = sequence.num_known();
  while (sequence.forced.size() < kMaxForcedTokens && !sequence.forced_token()) {
    const NextTokens next = sequence.next_tokens(model.info().context);
    if (next.kind != NextTokens::Kind::forced) break;
    sequence.forced.push_back(next.forced);
    sequence.tokens.push_back(next.forced);
  }
  sequence.tokens.resize(num_known);
  out.forced = sequence.forced;
}

// Applies a sampled token: ends the sequence, or appends the token to it.
Finish Executor::State::take(Sequence& sequence, SampledToken token, std::vector<SampledToken>& out) const {
  const SamplingParams& params = sequence.sampler.params();
  const auto is_in = [&](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token.id) != ids.end();
  };
  if (is_in(params.stop_ids)) return Finish::stop_id;
  if (is_in(model.end_ids())) return Finish::eos;  // never drawn with ignore_eos, nor before min_tokens
  sequence.tokens.push_back(token.id);
  sequence.sampler.accept(token.id);
  out.push_back(std::move(token));
  const bool full =
      sequence.num_known() - sequence.num_prompt >= params.max_tokens || sequence.num_known() >= model.info().context;
  return full ? at_limit(sequence) : Finish::running;
}

// An answer that has the form that it has to have is whole, however few tokens it could have.
Finish Executor::State::at_limit(Sequence& sequence) const {
  const bool is_whole =
      sequence.reader && sequence.next_tokens(model.info().context).kind == NextTokens::Kind::complete;
  return is_whole ? Finish::eos : Finish::length;
}

}  // namespace troupe::engine
