#include "scheduler/step_planner.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "config/assert.h"

namespace troupe::scheduler {

StepPlanner::StepPlanner(PlannerOptions options, FairShares& shares) : options_(options), shares_(&shares) {
  TROUPE_ASSERT(options.max_step_tokens >= 1 && options.max_sequences >= 1 && options.max_open >= 1);
  entries_.reserve(2 * std::size_t{options.max_sequences});
}

std::uint32_t StepPlanner::initial_blocks(std::uint32_t known) const {
  return std::min(blocks_for(std::min(known, options_.max_step_tokens)), options_.max_initial_blocks);
}

// --- adding and removing ---

void StepPlanner::add(const SequenceStart& start) {
  TROUPE_ASSERT(!contains(start.sequence));
  TROUPE_ASSERT(!is_full());
  TROUPE_ASSERT(start.computed < start.known && start.known < start.max_known);
  TROUPE_ASSERT(blocks_for(start.computed) <= start.num_blocks);
  Entry& entry = entries_.emplace_back();
  entry.sequence = start.sequence;
  entry.tenant = start.tenant;
  entry.own_rank = entry.rank = start.rank;
  entry.num_prompt = entry.known = start.known;
  entry.computed = start.computed;
  entry.num_blocks = start.num_blocks;
  entry.max_known = start.max_known;
  entry.num_reported = start.computed / kBlockSize;
  entry.alone_until = start.alone_until;
  sort_entries();
}

void StepPlanner::remove(SequenceId sequence) {
  if (std::erase_if(entries_, [&](const Entry& entry) { return entry.sequence == sequence; }) == 0) return;
  sort_entries();
  retry_denied();
}

const StepPlanner::Entry* StepPlanner::find(SequenceId sequence) const {
  const auto found = std::ranges::find(entries_, sequence, &Entry::sequence);
  return found == entries_.end() ? nullptr : &*found;
}

const StepPlanner::Entry& StepPlanner::at(SequenceId sequence) const {
  const Entry* entry = find(sequence);
  TROUPE_ASSERT(entry != nullptr);
  return *entry;
}

// Counts the places of each tenant on the way.
void StepPlanner::sort_entries() {
  std::ranges::sort(entries_, {}, [](const Entry& entry) { return std::tuple(entry.rank, entry.sequence); });
  shares_->clear_places();
  for (Entry& entry : entries_) entry.level = entry.parked ? 0 : shares_->take_place(entry.tenant);
  std::ranges::sort(entries_, {},
                    [](const Entry& entry) { return std::tuple(entry.level, entry.rank.arrival, entry.sequence); });
}

// The level that the request would have if it ran.
std::uint32_t StepPlanner::level_of(const Demand& waiting) const {
  const Rank rank{waiting.priority, waiting.arrival};
  return static_cast<std::uint32_t>(std::ranges::count_if(entries_, [&](const Entry& entry) {
    return entry.tenant == waiting.tenant && !entry.parked && entry.rank < rank;
  }));
}

bool StepPlanner::outranks(const Demand& a, const Demand& b) const {
  return a.tenant == b.tenant ? a.priority < b.priority : level_of(a) < level_of(b);
}

bool StepPlanner::is_older(const Demand& a, const Demand& b) const {
  if (a.tenant == b.tenant) return Rank{a.priority, a.arrival} < Rank{b.priority, b.arrival};
  return std::tuple(level_of(a), a.arrival) < std::tuple(level_of(b), b.arrival);
}

// --- steps ---

void StepPlanner::plan(std::uint64_t step, std::uint64_t epoch, StepPlan& out) {
  out.step = step;
  out.epoch = epoch;
  out.items.clear();
  out.load = {};
  std::uint32_t tokens_left = options_.max_step_tokens;
  std::uint32_t rows_left = options_.max_sequences;
  const cache::SnapshotRule& rule = options_.snapshot_rule;
  const auto give_row = [&](Entry& entry, std::uint32_t most) {
    const std::uint32_t with_blocks = entry.num_blocks * kBlockSize - entry.computed;
    const std::uint32_t boundary =
        rule.every == 0 ? std::numeric_limits<std::uint32_t>::max() : rule.next_after(entry.computed, entry.num_prompt);
    entry.planned = std::min({entry.known - entry.computed, with_blocks, most, boundary - entry.computed});
    const std::uint32_t end = entry.computed + entry.planned;
    entry.wants_logits = end == entry.known;
    out.load.add_row(entry.computed, entry.planned, entry.wants_logits);
    tokens_left -= entry.planned;
    --rows_left;
    out.items.push_back({entry.sequence, entry.planned, 0, entry.wants_logits, end == boundary, entry.tenant});
  };

  const auto suspect =
      std::ranges::find_if(entries_, [](const Entry& entry) { return entry.runnable() && entry.suspected(); });
  if (suspect != entries_.end()) return give_row(*suspect, tokens_left);

  double least_served = std::numeric_limits<double>::infinity();
  for (const Entry& entry : entries_)
    if (entry.runnable()) least_served = std::min(least_served, shares_->served(entry.tenant));
  const double most_served = least_served + shares_->allowance();
  const auto has_turn = [&](const Entry& entry) {
    return entry.runnable() && shares_->served(entry.tenant) <= most_served;
  };
  // The oldest gets a row even where decodes alone would fill the step.
  const auto oldest = std::ranges::find_if(entries_, has_turn);
  const std::uint32_t kept = oldest != entries_.end() && !oldest->decoding() ? 1 : 0;
  for (Entry& entry : entries_)
    if (has_turn(entry) && entry.decoding() && tokens_left > kept && rows_left > kept) give_row(entry, 1);
  const bool streams_wait =
      std::ranges::any_of(entries_, [](const Entry& entry) { return !entry.parked && entry.decoding(); });
  bool is_first = true;
  for (Entry& entry : entries_) {
    if (!has_turn(entry) || entry.decoding() || tokens_left == 0 || rows_left == 0) continue;
    std::uint32_t most = tokens_left;
    if (streams_wait) {
      most = chunk_within_stall(out.load, entry, most);
      if (is_first) most = std::max(most, std::min(kBlockSize, tokens_left));
      if (most == 0) break;
    }
    give_row(entry, most);
    is_first = false;
  }
}

// The tokens of a chunk, in whole blocks but for the last of them, with which a step of `before` is predicted to take
// no more than max_stall_seconds; 0 if not even a block's.
std::uint32_t StepPlanner::chunk_within_stall(const StepLoad& before, const Entry& entry, std::uint32_t most) const {
  most = std::min(most, entry.known - entry.computed);
  const auto fits = [&](std::uint32_t count) {
    StepLoad load = before;
    load.add_row(entry.computed, count, entry.computed + count == entry.known);
    return costs_.predict(load) <= options_.max_stall_seconds;
  };
  if (fits(most)) return most;
  std::uint32_t low = 0, high = most / kBlockSize + 1;  // blocks: `low` fit, `high` are too many
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (fits(std::min(middle * kBlockSize, most)) ? low : high) = middle;
  }
  return std::min(low * kBlockSize, most);
}

void StepPlanner::charge(const StepPlan& plan, double seconds, bool learns) {
  std::uint64_t num_tokens = 0;
  for (const PlanItem& item : plan.items) num_tokens += item.num_tokens;
  for (const PlanItem& item : plan.items)
    shares_->charge(item.tenant, seconds * item.num_tokens / static_cast<double>(num_tokens));
  shares_->step_ended(seconds);
  if (learns) costs_.learn(plan.load, seconds);
}

void StepPlanner::advance(SequenceId sequence, std::uint32_t num_sampled) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  TROUPE_ASSERT(entry->planned > 0);
  TROUPE_ASSERT(num_sampled == 0 || entry->wants_logits);
  TROUPE_ASSERT(num_sampled <= 1 && num_sampled <= entry->max_known - entry->known);
  entry->computed += entry->planned;
  entry->known += num_sampled;
  entry->planned = 0;
}

void StepPlanner::abandon_step() {
  for (Entry& entry : entries_) entry.planned = 0;
}

void StepPlanner::suspect(SequenceId sequence, std::uint32_t until_computed) {
  if (Entry* entry = find(sequence)) entry->alone_until = std::max(entry->alone_until, until_computed);
}

BlockRange StepPlanner::newly_full(SequenceId sequence) {
  Entry& entry = at(sequence);
  const std::uint32_t num_full = entry.computed / kBlockSize;
  const BlockRange range{entry.num_reported, num_full - entry.num_reported};
  entry.num_reported = num_full;
  return range;
}

// --- blocks ---

// Two steps ahead: one may be running or about to be planned while the answer is on its way.
std::uint32_t StepPlanner::missing_blocks(const Entry& entry) const {
  const std::uint64_t reach = std::uint64_t{entry.next_computed()} + 2 * std::uint64_t{options_.max_step_tokens};
  // One more than will be known, for the token sampled meanwhile; but a sequence's last token is never computed.
  const std::uint64_t most = std::min(std::uint64_t{entry.next_known()} + 1, std::uint64_t{entry.max_known} - 1);
  const std::uint32_t target = blocks_for(static_cast<std::uint32_t>(std::min(reach, most)));
  return target > entry.num_blocks ? target - entry.num_blocks : 0;
}

void StepPlanner::needs(std::vector<BlockNeed>& out) {
  for (Entry& entry : entries_) {
    const std::uint32_t missing = missing_blocks(entry);
    if (entry.parked || missing == 0) continue;
    const bool is_retry = entry.asking == Asking::denied && (entry.may_retry || entry.num_available > 0);
    if (entry.asking == Asking::no || is_retry) {
      out.push_back({entry.sequence, is_retry ? std::min(missing, std::max(entry.num_available, 1u)) : missing});
      entry.asking = Asking::asked;
      entry.may_retry = false;
    }
    if (entry.starved()) break;
  }
}

void StepPlanner::grant(SequenceId sequence, std::uint32_t num_blocks) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  TROUPE_ASSERT(entry->asking == Asking::asked);
  entry->num_blocks += num_blocks;
  entry->asking = Asking::no;
  entry->was_denied = false;
}

void StepPlanner::deny(SequenceId sequence, std::uint32_t num_available) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  TROUPE_ASSERT(entry->asking == Asking::asked);
  entry->asking = Asking::denied;
  entry->was_denied = true;
  entry->num_available = num_available;
}

// Also entries with an unanswered request: the answer may be a denial from before the blocks were given back.
void StepPlanner::retry_denied() {
  for (Entry& entry : entries_) entry.may_retry = true;
}

bool StepPlanner::starved() const { return std::ranges::any_of(entries_, &Entry::starved); }

// The youngest entry for which may_go(entry) is true, among those not in a running step.
template <class MayGo>
std::optional<SequenceId> StepPlanner::youngest(MayGo&& may_go) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Entry& entry) { return entry.planned == 0 && may_go(entry); });
  if (found == entries_.rend()) return std::nullopt;
  return found->sequence;
}

template <class IsYounger>
std::optional<SequenceId> StepPlanner::victim_beyond(IsYounger&& is_younger) const {
  if (const auto parked = youngest([](const Entry& entry) { return entry.parked && entry.num_blocks > 0; }))
    return parked;
  return youngest([&](const Entry& entry) { return entry.num_blocks > 0 && is_younger(entry); });
}

std::optional<SequenceId> StepPlanner::victim() const {
  const auto needy = std::ranges::find_if(entries_, &Entry::starved);
  if (needy == entries_.end() || needy->asking != Asking::denied) return std::nullopt;
  return victim_beyond([&](const Entry& entry) { return &entry > &*needy; });
}

std::optional<SequenceId> StepPlanner::victim_for(const Demand& waiting) const {
  const Rank rank{waiting.priority, waiting.arrival};
  const std::tuple place(level_of(waiting), waiting.arrival);
  return victim_beyond([&](const Entry& entry) {
    if (entry.tenant == waiting.tenant) return entry.rank > rank;
    return std::tuple(entry.level, entry.rank.arrival) > place;
  });
}

std::optional<SequenceId> StepPlanner::place_for(const Demand& waiting) const {
  const std::uint32_t level = level_of(waiting);
  const auto above = youngest([&](const Entry& entry) {
    if (entry.parked) return false;
    return entry.tenant == waiting.tenant ? entry.rank.priority > waiting.priority : entry.level > level;
  });
  if (above) return above;
  double most = shares_->served(waiting.tenant) + kPlaceTurnSeconds;
  for (const Entry& entry : entries_)
    if (entry.level == level) most = std::max(most, shares_->served(entry.tenant));
  return youngest([&](const Entry& entry) {
    return !entry.parked && entry.level == level && entry.tenant != waiting.tenant &&
           shares_->served(entry.tenant) >= most;
  });
}

std::optional<SequenceId> StepPlanner::parked_victim() const {
  return youngest([](const Entry& entry) { return entry.parked; });
}

// --- parking and ranks ---

void StepPlanner::set_parked(SequenceId sequence, bool parked) {
  Entry& entry = at(sequence);
  if (std::exchange(entry.parked, parked) != parked) sort_entries();
}

void StepPlanner::inherit(SequenceId sequence, std::optional<Rank> rank) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  entry->rank = rank ? std::min(entry->own_rank, *rank) : entry->own_rank;
  sort_entries();
}

std::uint32_t StepPlanner::num_parked() const {
  return static_cast<std::uint32_t>(std::ranges::count(entries_, true, &Entry::parked));
}

}  // namespace troupe::scheduler
