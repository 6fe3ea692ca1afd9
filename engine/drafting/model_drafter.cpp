#include "engine/drafting/model_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "config/assert.h"

namespace troupe::engine {

Status check_draft_model(const LoadedModel& draft, const LoadedModel& target) {
  const auto refuse = [](std::string why) { return Status(Error{ErrorCode::bad_model, std::move(why)}); };
  if (draft.cache_spec().has_state() || draft.cache_spec().groups.size() != 1 ||
      draft.cache_spec().groups[0].window != 0)
    return refuse(
        "a draft model must be a transformer whose layers all see the whole text; this one has recurrent "
        "layers or windows");
  const std::uint32_t size = target.info().vocab_size;
  if (draft.info().vocab_size != size)
    return refuse(
        fmt::format("the draft model's vocabulary has {} tokens, the model's {}: a draft model needs the same",
                    draft.info().vocab_size, size));
  if (!draft.tokenizer() || !target.tokenizer()) {
    if (draft.tokenizer() == target.tokenizer()) return Ok{};
    return refuse("one of model and draft model has no vocabulary: it cannot be the same");
  }
  for (std::uint32_t id = 0; id < size; ++id) {
    const std::string ours = draft.tokenizer()->piece(static_cast<TokenId>(id));
    if (ours == target.tokenizer()->piece(static_cast<TokenId>(id))) continue;
    return refuse(
        fmt::format("token {} is another one in the draft model's vocabulary: a draft model needs the same", id));
  }
  return Ok{};
}

ModelDrafter::ModelDrafter(const LoadedModel& model, Team& team) : model_(model), executor_(model, team) {
  for (BlockId block = model.arena()->num_blocks(); block-- > 0;) free_.push_back(block);
}

void ModelDrafter::close(std::uint64_t request) {
  const auto found = sequences_.find(request);
  if (found == sequences_.end()) return;
  executor_.close(request);
  free_.insert(free_.end(), found->second.blocks.begin(), found->second.blocks.end());
  sequences_.erase(found);
}

// Closes sequences that this call does not ask for, the least recently asked first.
bool ModelDrafter::free_blocks(std::size_t count) {
  while (free_.size() < count) {
    const auto oldest = std::min_element(sequences_.begin(), sequences_.end(), [](const auto& a, const auto& b) {
      return a.second.last_asked < b.second.last_asked;
    });
    if (oldest == sequences_.end() || oldest->second.last_asked == num_asked_) return false;
    close(oldest->first);
  }
  return true;
}

// Gives its sequence the tokens of the ask; false: it does not have those before.
bool ModelDrafter::update(const DraftAsk& ask) {
  TROUPE_ASSERT(!ask.tokens.empty() && ask.num_draft >= 1);
  if (ask.first + ask.tokens.size() >= model_.info().context) return false;
  const auto found = sequences_.find(ask.request);
  if (ask.first == 0 || found == sequences_.end()) {
    close(ask.request);
    if (ask.first > 0) return false;
    SequenceSpec spec{.id = ask.request, .tokens = ask.tokens, .tables = {{}}, .sampling = ask.sampling};
    spec.sampling.max_tokens = std::numeric_limits<std::uint32_t>::max();
    spec.sampling.num_logprobs = ask.p_min > 0 ? 0 : -1;
    spec.sampling.stop_ids.clear();
    executor_.open(std::move(spec));
    sequences_[ask.request].last_asked = num_asked_;
    return true;
  }
  found->second.last_asked = num_asked_;
  const std::span<const TokenId> known = executor_.tokens(ask.request);
  if (known.size() < ask.first) return false;
  std::size_t same = 0;  // of the new tokens: proposals that were accepted
  while (same < ask.tokens.size() && ask.first + same < known.size() && known[ask.first + same] == ask.tokens[same])
    ++same;
  if (ask.first + same < known.size()) executor_.truncate(ask.request, ask.first + static_cast<std::uint32_t>(same));
  executor_.append(ask.request, std::span(ask.tokens).subspan(same));
  return true;
}

// Its next row; false: there are no blocks for it, and its sequence is closed.
bool ModelDrafter::add_row(const DraftAsk& ask, StepBatch& batch) {
  Sequence& sequence = sequences_.at(ask.request);
  const std::uint32_t known = executor_.num_known(ask.request), computed = executor_.num_computed(ask.request);
  StepItem item{.sequence = ask.request, .num_tokens = std::min(known - computed, kMaxRows)};
  item.output = computed + item.num_tokens == known ? Output::sample : Output::none;
  const std::size_t needed = blocks_for(computed + item.num_tokens);
  if (needed > sequence.blocks.size()) {
    const std::size_t missing = needed - sequence.blocks.size();
    if (!free_blocks(missing)) {
      close(ask.request);
      return false;
    }
    item.new_blocks = {BlockTable(free_.end() - static_cast<std::ptrdiff_t>(missing), free_.end())};
    free_.resize(free_.size() - missing);
    sequence.blocks.insert(sequence.blocks.end(), item.new_blocks[0].begin(), item.new_blocks[0].end());
  }
  batch.items.push_back(std::move(item));
  return true;
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
    std::size_t row = 0;
    std::erase_if(open, [&](std::size_t i) {
      const ItemResult& drawn = result_.items[row++];
      if (drawn.tokens.empty() || drawn.finish != Finish::running) return true;
      if (asks[i].p_min > 0 && drawn.tokens[0].logprob < std::log(asks[i].p_min)) return true;
      reply.answers[i].tokens.push_back(drawn.tokens[0].id);
      return reply.answers[i].tokens.size() == asks[i].num_draft;
    });
  }
  reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace troupe::engine
