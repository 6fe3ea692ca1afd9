#include "scheduler/step_planner.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "config/assert.h"
#include "scheduler/step_bound.h"

namespace troupe::scheduler {

StepPlanner::StepPlanner(PlannerOptions options, FairShares& shares) : options_(std::move(options)), shares_(&shares) {
  TROUPE_ASSERT(options_.max_step_tokens >= 1 && options_.max_sequences >= 1 && options_.max_open >= 1);
  if (!options_.costs) options_.costs = std::make_shared<CostModel>();
  costs_ = options_.costs.get();
  entries_.reserve(2 * std::size_t{options_.max_sequences});
  prefills_.reserve(2 * std::size_t{options_.max_sequences});
  decodes_.reserve(2 * std::size_t{options_.max_sequences});
}

std::uint32_t StepPlanner::initial_blocks(std::uint32_t known) const {
  return std::min(blocks_for(std::min(known, options_.max_step_tokens)), options_.max_initial_blocks);
}

void StepPlan::skip(std::size_t item, std::uint32_t computed, std::uint32_t num_skipped) {
  PlanItem& skipped = items[item];
  TROUPE_ASSERT(num_skipped <= skipped.num_tokens && skipped.num_draft == 0);
  skipped.num_tokens -= num_skipped;
  skipped.num_skipped = num_skipped;
  loads[item] = {};
  if (skipped.num_tokens > 0) loads[item].add_row(computed + num_skipped, skipped.num_tokens, skipped.wants_logits);
  load = {};
  for (const StepLoad& each : loads) load += each;
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
  entry.floor = start.floor;
  entry.num_scored = start.num_scored;
  entry.num_reported = start.computed / kBlockSize;
  entry.reach = start.answer_tokens;
  entry.alone_until = start.alone_until;
  if (start.due_seconds) entry.due_seconds = *start.due_seconds;
  sort_entries();
}

void StepPlanner::remove(SequenceId sequence) {
  if (std::erase_if(entries_, [&](const Entry& entry) { return entry.sequence == sequence; }) == 0) return;
  sort_entries();
  retry_denied();
}

// Rows of a step are asked for in the order of the entries, each several times: so from the last one found on.
const StepPlanner::Entry* StepPlanner::find(SequenceId sequence) const {
  const auto last = entries_.begin() + static_cast<std::ptrdiff_t>(std::min(last_found_, entries_.size()));
  auto found = std::find_if(last, entries_.end(), [&](const Entry& entry) { return entry.sequence == sequence; });
  if (found == entries_.end()) {
    found = std::find_if(entries_.begin(), last, [&](const Entry& entry) { return entry.sequence == sequence; });
    if (found == last) return nullptr;
  }
  last_found_ = static_cast<std::size_t>(found - entries_.begin());
  return &*found;
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
  for (Entry& entry : entries_) {
    entry.level = entry.parked ? 0 : shares_->take_place(entry.tenant);
    entry.is_lent = is_lent(entry.tenant, entry.rank, entry.known, entry.floor);
  }
  std::ranges::sort(entries_, {}, [](const Entry& entry) {
    return std::tuple(entry.is_lent, entry.level, entry.rank.arrival, entry.sequence);
  });
}

// Whether a sequence with this many known tokens, and those of the tenant that rank before it, need more blocks than
// `floor`, with one for the token that is sampled next.
bool StepPlanner::is_lent(TenantId tenant, Rank rank, std::uint32_t known, std::uint32_t floor) const {
  if (floor == 0) return true;
  std::uint64_t num_blocks = blocks_for(known + 1);
  for (const Entry& entry : entries_)
    if (entry.tenant == tenant && entry.rank < rank) num_blocks += blocks_for(entry.known + 1);
  return num_blocks > floor;
}

bool StepPlanner::is_lent(const Demand& waiting) const {
  return is_lent(waiting.tenant, {waiting.priority, waiting.arrival}, waiting.prompt_tokens + waiting.generated,
                 waiting.limits.min_kv_blocks.value_or(0));
}

// The level that the request would have if it ran.
std::uint32_t StepPlanner::level_of(const Demand& waiting) const {
  const Rank rank{waiting.priority, waiting.arrival};
  return static_cast<std::uint32_t>(std::ranges::count_if(entries_, [&](const Entry& entry) {
    return entry.tenant == waiting.tenant && !entry.parked && entry.rank < rank;
  }));
}

bool StepPlanner::outranks(const Demand& a, const Demand& b) const {
  if (a.tenant == b.tenant) return a.priority < b.priority;
  return std::tuple(is_lent(a), level_of(a)) < std::tuple(is_lent(b), level_of(b));
}

bool StepPlanner::is_older(const Demand& a, const Demand& b) const {
  if (a.tenant == b.tenant) return Rank{a.priority, a.arrival} < Rank{b.priority, b.arrival};
  return std::tuple(is_lent(a), level_of(a), a.arrival) < std::tuple(is_lent(b), level_of(b), b.arrival);
}

// --- steps ---

void StepPlanner::plan(std::uint64_t step, std::uint64_t epoch, StepPlan& out) {
  out.step = step;
  out.epoch = epoch;
  out.items.clear();
  out.loads.clear();
  out.load = {};
  out.num_decodes = out.num_drafts = 0;
  plan_rows(out);
  for (Entry& entry : entries_) entry.offered = entry.offers_answer = 0;
}

void StepPlanner::plan_rows(StepPlan& out) {
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
    entry.num_draft = 0;
    const std::uint32_t num_outputs = entry.num_outputs(entry.planned);
    out.loads.emplace_back().add_row(entry.computed, entry.planned, num_outputs);
    out.load.add_row(entry.computed, entry.planned, num_outputs);
    tokens_left -= entry.planned;
    --rows_left;
    out.items.push_back({entry.sequence, entry.planned, 0, entry.wants_logits, end == boundary, entry.tenant});
  };

  const auto suspect =
      std::ranges::find_if(entries_, [](const Entry& entry) { return entry.runnable() && entry.suspected(); });
  if (suspect != entries_.end()) return give_row(*suspect, tokens_left);

  // Neighbours mostly are of one tenant: its counter is looked up once for all of them.
  std::optional<TenantId> tenant;
  double served = 0;
  const auto served_of = [&](const Entry& entry) {
    if (tenant != entry.tenant) served = shares_->served(*(tenant = entry.tenant));
    return served;
  };
  double least_served = std::numeric_limits<double>::infinity();
  for (const Entry& entry : entries_)
    if (entry.runnable()) least_served = std::min(least_served, served_of(entry));
  const double most_served = least_served + shares_->allowance();
  const auto has_turn = [&](const Entry& entry) { return entry.runnable() && served_of(entry) <= most_served; };
  // The oldest gets a row even where decodes alone would fill the step.
  const auto oldest = std::ranges::find_if(entries_, has_turn);
  const std::uint32_t kept = oldest != entries_.end() && !oldest->decoding() ? 1 : 0;
  decodes_.clear();
  for (Entry& entry : entries_) {
    if (!has_turn(entry) || !entry.decoding() || tokens_left <= kept || rows_left <= kept) continue;
    give_row(entry, tokens_left - kept);
    decodes_.push_back(&entry);
  }
  prefills_.clear();
  for (Entry& entry : entries_)
    if (has_turn(entry) && !entry.decoding()) prefills_.push_back(&entry);
  put_deadlines_first();
  const std::uint32_t num_decoding = out.load.num_tokens;
  const std::uint32_t proposals = prefills_.empty() ? tokens_left : tokens_left / 2;
  if (prefills_.empty() && num_decoding == decodes_.size()) out.num_decodes = num_decoding;
  add_drafts(proposals, out);
  out.num_drafts = out.load.num_tokens - num_decoding;
  add_answers(proposals - out.num_drafts, out);
  tokens_left -= out.load.num_tokens - num_decoding;
  const StepBound bound = step_bound(max_stall_seconds(), streams_wait(nullptr));
  std::uint32_t least = bound.least_tokens;  // that are still to be given
  for (Entry* entry : prefills_) {
    if (tokens_left == 0 || rows_left == 0) break;
    const std::uint32_t fits = chunk_within(bound.seconds, out.load, *entry, tokens_left);
    const std::uint32_t most = std::max(fits, std::min(least, tokens_left));
    if (most == 0) break;
    give_row(*entry, most);
    least -= std::min(least, entry->planned);
  }
}

// Sorts those of each tenant and priority by due_seconds, in the places that they have together.
void StepPlanner::put_deadlines_first() {
  const bool any = std::ranges::any_of(prefills_, &Entry::has_deadline);
  bool changed = false;
  for (std::size_t i = 0; any && i < prefills_.size(); ++i) {
    const auto is_alike = [&, of = prefills_[i]](const Entry* entry) {
      return entry->tenant == of->tenant && entry->own_rank.priority == of->own_rank.priority;
    };
    std::size_t earliest = i;
    for (std::size_t j = i + 1; j < prefills_.size(); ++j)
      if (is_alike(prefills_[j]) && prefills_[j]->due_seconds < prefills_[earliest]->due_seconds) earliest = j;
    if (earliest == i) continue;
    if (!changed && deadlines_in_a_row_ >= kMaxOvertaken) {
      deadlines_in_a_row_ = 0;
      return;
    }
    changed = true;
    Entry* moved = prefills_[earliest];  // to i, and each one between them to the next place
    for (std::size_t j = i; j <= earliest; ++j)
      if (j == earliest || is_alike(prefills_[j])) std::swap(moved, prefills_[j]);
  }
  deadlines_in_a_row_ = changed ? deadlines_in_a_row_ + 1 : 0;
}

double StepPlanner::max_stall_seconds() const {
  return options_.max_stall_seconds / std::max(1u, shares_->num_busy_models());
}

// The tokens of a chunk, in whole blocks but for the last of them, with which a step of `before` is predicted to take
// no longer than `limit`; 0 if not even a block's.
std::uint32_t StepPlanner::chunk_within(double limit, const StepLoad& before, const Entry& entry,
                                        std::uint32_t most) const {
  most = std::min(most, entry.known - entry.computed);
  const auto fits = [&](std::uint32_t count) {
    StepLoad load = before;
    load.add_row(entry.computed, count, entry.num_outputs(count));
    return costs_->predict(load) <= limit;
  };
  if (fits(most)) return most;
  std::uint32_t low = 0, high = most / kBlockSize + 1;  // blocks: `low` fit, `high` are too many
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (fits(std::min(middle * kBlockSize, most)) ? low : high) = middle;
  }
  return std::min(low * kBlockSize, most);
}

void StepPlanner::charge(StepPlan& plan, double seconds, StepEnd how) {
  const double predicted = plan.load.num_tokens > 0 ? costs_->predict(plan.load) : 0;
  double sum = 0;  // of neighbours of one tenant: they are charged together
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    PlanItem& item = plan.items[i];
    const double part = plan.loads[i].num_tokens == 0 ? 0
                        : predicted > 0               ? costs_->share(plan.loads[i], plan.load) / predicted
                                        : static_cast<double>(plan.loads[i].num_tokens) / plan.load.num_tokens;
    item.seconds = seconds * part;
    sum += item.seconds;
    if (i + 1 < plan.items.size() && plan.items[i + 1].tenant == item.tenant) continue;
    shares_->charge(item.tenant, std::exchange(sum, 0.0));
  }
  if (how != StepEnd::failed) shares_->step_ended(seconds);
  if (how != StepEnd::as_planned) return;
  costs_->learn(plan.load, seconds);
  if (plan.num_decodes > 0 && plan.load.num_tokens == plan.num_decodes + plan.num_drafts)
    draft_costs_.observe(plan.num_decodes, plan.num_drafts, seconds);
}

void StepPlanner::advance(SequenceId sequence, std::uint32_t num_sampled, std::optional<std::uint32_t> num_computed) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  TROUPE_ASSERT(entry->planned > 0);
  TROUPE_ASSERT(num_sampled <= (entry->wants_logits ? 1 + entry->num_draft : 0));
  TROUPE_ASSERT(num_sampled <= entry->max_known - entry->known);
  const std::uint32_t num_accepted = num_sampled > 1 ? num_sampled - 1 : 0;
  const std::uint32_t computed = num_computed.value_or(entry->computed + entry->planned + num_accepted);
  const bool has_grown = blocks_for(entry->known + num_sampled + 1) > blocks_for(entry->known + 1);
  entry->known += num_sampled;
  TROUPE_ASSERT(computed >= entry->computed && computed <= entry->known);
  entry->computed = computed;
  const std::uint32_t behind = entry->num_draft > 0 && entry->known > computed + 1 ? entry->known - computed - 1 : 0;
  entry->behind = behind <= kMaxDraftTokens ? behind : 0;
  entry->planned = entry->num_draft = 0;
  if (has_grown && entry->floor > 0) sort_entries();
}

void StepPlanner::abandon_step() {
  for (Entry& entry : entries_) entry.planned = entry.num_draft = 0;
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
  const std::uint64_t most =
      std::min(std::uint64_t{entry.next_known()} + 1 + entry.reach, std::uint64_t{entry.max_known} - 1);
  const std::uint32_t target = blocks_for(static_cast<std::uint32_t>(std::min(reach, most)));
  return target > entry.num_blocks ? target - entry.num_blocks : 0;
}

void StepPlanner::needs(std::vector<BlockNeed>& out) {
  const auto waits_for_older = [&](const Entry& entry) {
    return std::any_of(std::as_const(entries_).data(), &entry,
                       [&](const Entry& older) { return older.tenant == entry.tenant && older.starved_at_ceiling(); });
  };
  for (Entry& entry : entries_) {
    const std::uint32_t missing = missing_blocks(entry);
    if (entry.parked || missing == 0 || waits_for_older(entry)) continue;
    const bool is_retry = entry.asking == Asking::denied && (entry.may_retry || entry.num_available > 0);
    if (entry.asking == Asking::no || is_retry) {
      out.push_back({entry.sequence, is_retry ? std::min(missing, std::max(entry.num_available, 1u)) : missing});
      entry.asking = Asking::asked;
      entry.may_retry = false;
    }
    if (entry.starved() && !entry.at_ceiling) break;
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

void StepPlanner::deny(SequenceId sequence, std::uint32_t num_available, bool at_ceiling) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  TROUPE_ASSERT(entry->asking == Asking::asked);
  entry->asking = Asking::denied;
  entry->was_denied = true;
  entry->num_available = num_available;
  entry->at_ceiling = at_ceiling;
}

// Also entries with an unanswered request: the answer may be a denial from before the blocks were given back.
void StepPlanner::retry_denied() {
  for (Entry& entry : entries_) entry.may_retry = true;
}

bool StepPlanner::starved() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.starved() && !entry.at_ceiling; });
}

bool StepPlanner::starved_at_ceiling(TenantId tenant) const {
  return std::ranges::any_of(entries_,
                             [&](const Entry& entry) { return entry.tenant == tenant && entry.starved_at_ceiling(); });
}

// The youngest entry for which may_go(entry) is true.
template <class MayGo>
std::optional<SequenceId> StepPlanner::youngest(MayGo&& may_go) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), may_go);
  if (found == entries_.rend()) return std::nullopt;
  return found->sequence;
}

// only: the tenant of which it must be.
template <class IsYounger>
std::optional<SequenceId> StepPlanner::victim_beyond(std::optional<TenantId> only, IsYounger&& is_younger) const {
  const auto may_go = [&](const Entry& entry) {
    return entry.planned == 0 && entry.num_blocks > 0 && (!only || entry.tenant == *only);
  };
  if (const auto parked = youngest([&](const Entry& entry) { return entry.parked && entry.is_lent && may_go(entry); }))
    return parked;
  if (const auto younger = youngest([&](const Entry& entry) { return may_go(entry) && is_younger(entry); }))
    return younger;
  return youngest([&](const Entry& entry) { return entry.parked && may_go(entry); });
}

std::optional<SequenceId> StepPlanner::victim() const {
  for (const Entry& needy : entries_) {
    if (!needy.starved()) continue;
    std::optional<SequenceId> found;
    if (needy.asking == Asking::denied) {
      const auto only = needy.at_ceiling ? std::optional(needy.tenant) : std::nullopt;
      found = victim_beyond(only, [&](const Entry& entry) { return &entry > &needy; });
    }
    if (found || !needy.at_ceiling) return found;
  }
  return std::nullopt;
}

std::optional<SequenceId> StepPlanner::victim_for(const Demand& waiting, bool at_ceiling) const {
  const Rank rank{waiting.priority, waiting.arrival};
  const std::tuple place(is_lent(waiting), level_of(waiting), waiting.arrival);
  const auto only = at_ceiling ? std::optional(waiting.tenant) : std::nullopt;
  return victim_beyond(only, [&](const Entry& entry) {
    if (entry.tenant == waiting.tenant) return entry.rank > rank;
    return std::tuple(entry.is_lent, entry.level, entry.rank.arrival) > place;
  });
}

std::optional<SequenceId> StepPlanner::place_for(const Demand& waiting) const {
  const std::uint32_t level = level_of(waiting);
  const auto above = youngest([&](const Entry& entry) {
    if (entry.parked) return false;
    return entry.tenant == waiting.tenant ? entry.rank.priority > waiting.priority : entry.level > level;
  });
  if (above) return without_deadline(*above);
  double most = shares_->served(waiting.tenant) + kPlaceTurnSeconds;
  for (const Entry& entry : entries_)
    if (entry.level == level) most = std::max(most, shares_->served(entry.tenant));
  const auto turn = youngest([&](const Entry& entry) {
    return !entry.parked && entry.level == level && entry.tenant != waiting.tenant &&
           shares_->served(entry.tenant) >= most;
  });
  return turn ? std::optional(without_deadline(*turn)) : std::nullopt;
}

// Instead of a sequence with a deadline, its tenant's youngest one of the same priority without.
SequenceId StepPlanner::without_deadline(SequenceId sequence) const {
  const Entry& chosen = at(sequence);
  if (!chosen.has_deadline()) return sequence;
  const auto other = youngest([&](const Entry& entry) {
    return !entry.parked && !entry.has_deadline() && entry.tenant == chosen.tenant &&
           entry.rank.priority == chosen.rank.priority;
  });
  return other.value_or(sequence);
}

std::optional<SequenceId> StepPlanner::parked_victim() const {
  return youngest([](const Entry& entry) { return entry.planned == 0 && entry.parked; });
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
