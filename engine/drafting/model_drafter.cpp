#include "engine/drafting/model_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>

#include "cache/group.h"
#include "config/assert.h"
#include "engine/drafting/text_drafter.h"

namespace troupe::engine {

namespace {

// The first token of which one vocabulary has another one, or none; nothing: they are the same.
std::optional<std::uint32_t> first_difference(const Tokenizer& one, const Tokenizer& other) {
  const std::uint32_t size = std::min(one.size(), other.size());
  for (std::uint32_t i = 0; i < size; ++i)
    if (const auto id = static_cast<TokenId>(i); one.piece(id) != other.piece(id)) return i;
  if (one.size() != other.size()) return size;
  return std::nullopt;
}

bool has_plain_attention(const LoadedModel& model) {
  const auto& groups = model.cache_spec().groups;
  return model.num_states() == 0 && !groups.empty() &&
         std::ranges::all_of(groups, [](const auto& group) { return group.window == 0; });
}

}  // namespace

Result<Drafting> compare_vocabularies(const LoadedModel& draft, const LoadedModel& target) {
  const auto refuse = [](std::string why) { return Error{ErrorCode::bad_model, std::move(why)}; };
  const Tokenizer *own = draft.tokenizer().get(), *its = target.tokenizer().get();
  if (!own && !its) {
    if (draft.info().vocab_size == target.info().vocab_size) return Drafting::by_ids;
    return refuse(fmt::format("draft model and model have no vocabulary, and {} and {} ids: they cannot be the same",
                              draft.info().vocab_size, target.info().vocab_size));
  }
  if (!own || !its)
    return refuse("one of model and draft model has no vocabulary, so that they share neither ids nor text");
  const auto difference = first_difference(*own, *its);
  if (!difference && draft.info().vocab_size == target.info().vocab_size) return Drafting::by_ids;
  if (has_plain_attention(draft)) return Drafting::by_text;
  return refuse(
      fmt::format("its vocabulary is not the model's (token {} differs): then it drafts by text, for which a "
                  "draft model needs attention to the whole context, and no windows or recurrent state",
                  difference.value_or(own->size())));
}

std::unique_ptr<Proposer> make_proposer(const LoadedModel& draft, const LoadedModel& target, Team& team) {
  const Result<Drafting> how = compare_vocabularies(draft, target);
  TROUPE_ASSERT(how);
  if (*how == Drafting::by_text) return std::make_unique<TextDrafter>(draft, target, team);
  return std::make_unique<ModelDrafter>(draft, team);
}

ModelDrafter::ModelDrafter(const LoadedModel& model, Team& team) : model_(model), executor_(model, team) {
  for (const auto& arena : model.arenas()) {
    std::vector<BlockId>& free = free_.emplace_back();
    for (BlockId block = arena->num_blocks(); block-- > 0;) free.push_back(block);
  }
}

void ModelDrafter::close(std::uint64_t request) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return;
  executor_.close(request);
  for (GroupId group = 0; group < free_.size(); ++group)
    std::ranges::copy_if(found->second.blocks[group], std::back_inserter(free_[group]),
                         [](BlockId block) { return block != kNoBlock; });
  sequences_.erase(found);
}

// The least recently asked sequence, if this call does not ask for it.
bool ModelDrafter::close_oldest() {
  const auto oldest = std::min_element(sequences_.begin(), sequences_.end(), [](const auto& a, const auto& b) {
    return a.second.last_asked < b.second.last_asked;
  });
  if (oldest == sequences_.end() || oldest->second.last_asked == num_asked_) return false;
  close(oldest->first);
  return true;
}

bool ModelDrafter::open(const DraftAsk& ask) {
  if (const std::uint32_t states = model_.num_states(); states > 0)
    while (sequences_.size() >= std::max(states / 2, 1u))
      if (!close_oldest()) return false;
  Sequence& sequence = sequences_[ask.request];
  sequence.blocks.resize(free_.size());
  sequence.last_asked = num_asked_;
  sequence.sampling = ask.sampling;
  sequence.sampling.max_tokens = std::numeric_limits<std::uint32_t>::max();
  sequence.sampling.num_logprobs = ask.p_min > 0 ? 0 : -1;
  sequence.sampling.prompt_logprobs = false;
  sequence.sampling.stop_ids.clear();
  executor_.open({.id = ask.request, .tokens = ask.tokens, .tables = sequence.blocks, .sampling = sequence.sampling});
  return true;
}

// Forgets what was drafted after the first num_right proposals. A recurrent state is that from before the draft then.
void ModelDrafter::go_back(const DraftAsk& ask, std::uint32_t num_right) {
  Sequence& sequence = sequences_.at(ask.request);
  const std::uint32_t kept = ask.first + num_right;
  if (executor_.state(ask.request).empty() || executor_.num_computed(ask.request) < kept)
    return executor_.truncate(ask.request, kept);
  const std::span<const TokenId> known = executor_.tokens(ask.request).first(kept);
  SequenceSpec spec{.id = ask.request,
                    .tokens = {known.begin(), known.end()},
                    .num_cached = sequence.num_told,
                    .tables = sequence.blocks,
                    .state = sequence.state,
                    .sampling = sequence.sampling};
  spec.tokens.insert(spec.tokens.end(), ask.tokens.begin() + num_right, ask.tokens.end());
  executor_.close(ask.request);
  executor_.open(std::move(spec));
}

// Gives its sequence the tokens of the ask; false: it does not have those before.
bool ModelDrafter::update(const DraftAsk& ask) {
  TROUPE_ASSERT(!ask.tokens.empty() && ask.num_draft >= 1);
  if (ask.first + ask.tokens.size() >= model_.info().context) return false;
  const auto found = sequences_.find(ask.request);
  if (ask.first == 0 || found == sequences_.end()) {
    close(ask.request);
    if (ask.first > 0 || !open(ask)) return false;
  } else {
    found->second.last_asked = num_asked_;
    const std::span<const TokenId> known = executor_.tokens(ask.request);
    if (known.size() < ask.first) return false;
    std::uint32_t same = 0;  // of the new tokens: proposals that were accepted
    while (same < ask.tokens.size() && ask.first + same < known.size() && known[ask.first + same] == ask.tokens[same])
      ++same;
    if (ask.first + same < known.size()) go_back(ask, same);
    const std::uint32_t has = executor_.num_known(ask.request) - ask.first;
    executor_.append(ask.request, std::span(ask.tokens).subspan(std::min<std::size_t>(has, ask.tokens.size())));
  }
  // Told nothing new after a draft without a token: the last row is computed again, to draw from it.
  const std::uint32_t known = executor_.num_known(ask.request);
  if (executor_.num_computed(ask.request) == known) executor_.rewind(ask.request, known - 1);
  Sequence& sequence = sequences_.at(ask.request);
  sequence.num_told = ask.first + static_cast<std::uint32_t>(ask.tokens.size());
  sequence.state.clear();
  return true;
}

// So that a row alone always finds blocks.
std::uint32_t ModelDrafter::most_rows() const {
  std::uint32_t most = kMaxRows;
  for (GroupId group = 0; group < free_.size(); ++group)
    if (const std::uint32_t window = model_.cache_spec().groups[group].window)
      most = std::min(most, cache::longest_window_chunk(window, model_.arena(group)->num_blocks()));
  return most;
}

// What was told is not taken back: no later row is before its last token.
void ModelDrafter::leave_windows_behind(Sequence& sequence, std::uint32_t position) {
  for (GroupId group = 0; group < free_.size(); ++group) {
    const BlockTable before = sequence.blocks[group];
    if (!cache::leave_window_behind(sequence.blocks[group], position, model_.cache_spec().groups[group].window))
      continue;
    for (std::size_t i = 0; i < before.size(); ++i)
      if (sequence.blocks[group][i] != before[i]) free_[group].push_back(before[i]);
  }
}

// Its next row; false: there are no blocks for it, and its sequence is closed.
bool ModelDrafter::add_row(const DraftAsk& ask, StepBatch& batch) {
  Sequence& sequence = sequences_.at(ask.request);
  const std::uint32_t known = executor_.num_known(ask.request), computed = executor_.num_computed(ask.request);
  StepItem item{.sequence = ask.request, .num_tokens = std::min(known - computed, most_rows())};
  item.output = computed + item.num_tokens == known ? Output::sample : Output::none;
  item.rewind_floor = std::min(computed, sequence.num_told - 1);
  leave_windows_behind(sequence, item.rewind_floor);
  const std::size_t needed = blocks_for(computed + item.num_tokens), held = sequence.blocks[0].size();
  if (needed > held) {
    const auto lacks = [&](const std::vector<BlockId>& free) { return free.size() < needed - held; };
    while (std::ranges::any_of(free_, lacks)) {
      if (close_oldest()) continue;
      close(ask.request);
      return false;
    }
    for (GroupId group = 0; group < free_.size(); ++group) {
      const auto first = free_[group].end() - static_cast<std::ptrdiff_t>(needed - held);
      item.new_blocks.emplace_back(first, free_[group].end());
      free_[group].erase(first, free_[group].end());
      sequence.blocks[group].insert(sequence.blocks[group].end(), item.new_blocks[group].begin(),
                                    item.new_blocks[group].end());
    }
  }
  batch.items.push_back(std::move(item));
  return true;
}

// Of the state after what was told, which the draft goes on from and a later ask may have to return to.
void ModelDrafter::keep_state(std::uint64_t request) {
  Sequence& sequence = sequences_.at(request);
  if (executor_.num_computed(request) != sequence.num_told) return;
  const std::span<const float> state = executor_.state(request);
  sequence.state.assign(state.begin(), state.end());
}

void ModelDrafter::propose(const std::vector<DraftAsk>& asks, DraftReply& reply) {
  const auto begin = std::chrono::steady_clock::now();
  reply = {};
  ++num_asked_;
  std::vector<std::size_t> open;  // asks that want more
  for (std::size_t i = 0; i < asks.size(); ++i) {
    reply.answers.push_back({.request = asks[i].request, .is_lost = !update(asks[i]), .tokens = {}});
    if (!reply.answers.back().is_lost) open.push_back(i);
  }
  while (!open.empty()) {
    batch_.items.clear();
    ++batch_.step;
    std::erase_if(open, [&](std::size_t i) {
      if (add_row(asks[i], batch_)) return false;
      reply.answers[i].is_lost = true;
      return true;
    });
    if (batch_.items.empty()) break;
    executor_.step(batch_, result_);
    ++reply.num_passes;
    if (std::ranges::all_of(batch_.items, [](const StepItem& item) { return item.num_tokens < kLongRow; })) {
      reply.draft_seconds += result_.compute_seconds;
      ++reply.num_draft_passes;
    }
    std::size_t row = 0;
    std::erase_if(open, [&](std::size_t i) {
      const ItemResult& drawn = result_.items[row++];
      keep_state(asks[i].request);
      if (drawn.tokens.empty() || drawn.finish != Finish::running) return true;
      if (asks[i].p_min > 0 && drawn.tokens[0].logprob < std::log(asks[i].p_min)) return true;
      reply.answers[i].tokens.push_back(drawn.tokens[0].id);
      return reply.answers[i].tokens.size() == asks[i].num_draft;
    });
  }
  reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace troupe::engine
