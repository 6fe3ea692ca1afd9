// The part of StepPlanner that decides about drafts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "scheduler/step_planner.h"

namespace troupe::scheduler {
namespace {

// Steps without a model's drafts before a probe, a step with them: few at first, because a wrong estimate may rest on
// few drafts; twice as many after each probe that changes nothing.
constexpr std::uint32_t kFirstProbe = 4, kLastProbe = 64;
constexpr double kDraftMargin = 1.1;  // what drafting takes beside its passes
constexpr double kLeastGain = 1.1;    // in tokens per second: what is predicted is some percent wrong
constexpr double kLongerStep = 1.5;   // of a step that others wait for, at least, however short max_stall is
constexpr double kHopeful = 0.5;      // the acceptance of proposals of which none was seen

}  // namespace

// Adds rows of proposals to those of decodes_, at most so many: each one's first, then each one's second, while they
// are worth it.
void StepPlanner::add_drafts(std::uint32_t most, StepPlan& out) {
  const auto has_offer = [](const Entry* entry) {
    return entry->offered > 0 && !entry->offers_answer && entry->wants_logits;
  };
  if (std::ranges::none_of(decodes_, has_offer)) return;
  const double plain = costs_->predict(out.load);
  DraftRoom room(plain, out.load.num_outputs, longest_with_drafts(plain, decodes_.front()));
  // The cost of a row is only learned from steps of different sizes, and a wrong estimate may keep all steps the same.
  bool probes = std::exchange(probes_, false) || unverified_in_a_row_ >= kLastProbe;
  ++unverified_in_a_row_;
  std::uint32_t drafts_left = options_.max_open - static_cast<std::uint32_t>(entries_.size());
  bool added = true;
  for (std::uint32_t length = 1; added && length <= options_.max_draft; ++length) {
    added = false;
    for (std::size_t i = 0; i < decodes_.size() && most > 0; ++i) {
      Entry& entry = *decodes_[i];
      if (!has_offer(&entry) || entry.num_draft + 1 != length || (length == 1 && drafts_left == 0)) continue;
      if (!add_draft_row(entry, i, probes ? nullptr : &room, out)) continue;
      probes = false;
      added = true;
      unverified_in_a_row_ = 0;
      if (length == 1) --drafts_left;
      --most;
    }
  }
}

// What a step with drafts may take that takes `plain` without; `first` decodes in it. If no other sequence waits for a
// token, nothing but its own worth limits its draft.
double StepPlanner::longest_with_drafts(double plain, const Entry* first) const {
  if (options_.verify_all_drafts || !streams_wait(first)) return std::numeric_limits<double>::infinity();
  return std::max(max_stall_seconds(), kLongerStep * plain);
}

// One row more for item i of the plan, if there is one and, with a room, it is worth it.
bool StepPlanner::add_draft_row(Entry& entry, std::size_t i, DraftRoom* room, StepPlan& out) const {
  const std::uint32_t length = entry.num_draft + 1;
  if (length > draft_limit(entry)) return false;
  StepLoad load = out.load, row;
  row.add_row(entry.computed + entry.planned + entry.num_draft, 1, 1);
  load += row;
  const double before = costs_->predict(out.load);
  const auto learned = out.num_decodes > 0
                           ? draft_costs_.one_more(out.num_decodes, out.load.num_tokens - out.num_decodes)
                           : std::nullopt;
  const double seconds = learned ? *learned * before : costs_->predict(load) - before;
  const double tokens = std::pow(entry.acceptance.rate(acceptance_.rate(kHopeful)), length);
  if (!options_.verify_all_drafts && room && !room->add(tokens, seconds)) return false;
  entry.num_draft = out.items[i].num_draft = length;
  out.load = load;
  out.loads[i] += row;
  return true;
}

// How many of its proposals could be verified after its planned tokens.
std::uint32_t StepPlanner::draft_limit(const Entry& entry) const {
  const cache::SnapshotRule& rule = options_.snapshot_rule;
  // The last token of a sequence is never computed, and a snapshot is saved of no state that a proposal may take back.
  std::uint32_t end = std::min(entry.max_known - 1, entry.num_blocks * kBlockSize);
  if (rule.every > 0) end = std::min(end, rule.next_after(entry.computed, entry.num_prompt) - 1);
  const std::uint32_t begin = entry.computed + entry.planned;
  return std::min(entry.offered, end - std::min(end, begin));
}

// Adds rows of what requests propose as their answers to those of decodes_, oldest first, at most so many.
void StepPlanner::add_answers(std::uint32_t most, StepPlan& out) const {
  // Each with proposals takes a state more.
  auto states_left = static_cast<std::int64_t>(options_.max_open) - static_cast<std::int64_t>(entries_.size()) -
                     std::ranges::count_if(decodes_, [](const Entry* entry) { return entry->num_draft > 0; });
  for (std::size_t i = 0; i < decodes_.size() && most > 0 && states_left > 0; ++i) {
    Entry& entry = *decodes_[i];
    if (!entry.offers_answer || !entry.wants_logits) continue;
    std::uint32_t length = std::min(most, draft_limit(entry));
    if (streams_wait(&entry)) length = rows_within_stall(out.load, entry, length);
    if (length == 0) continue;
    StepLoad rows;
    rows.add_row(entry.computed + entry.planned, length, length);
    entry.num_draft = out.items[i].num_draft = length;
    out.load += rows;
    out.loads[i] += rows;
    most -= length;
    --states_left;
  }
}

// Whether some sequence but this one waits for its next token; also of other models.
bool StepPlanner::streams_wait(const Entry* but_for) const {
  return shares_->num_busy_models() > 1 ||
         std::ranges::any_of(entries_, [&](const Entry& entry) { return &entry != but_for && entry.streams(); });
}

// At most so many rows of its proposals, with which a step of `before` is predicted to take no more than
// max_stall_seconds().
std::uint32_t StepPlanner::rows_within_stall(const StepLoad& before, const Entry& entry, std::uint32_t most) const {
  const auto fits = [&](std::uint32_t count) {
    StepLoad load = before;
    load.add_row(entry.computed + entry.planned, count, count);
    return costs_->predict(load) <= max_stall_seconds();
  };
  if (fits(most)) return most;
  std::uint32_t low = 0, high = most;  // `low` fit, `high` are too many
  while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
  return low;
}

void StepPlanner::offer_answer(SequenceId sequence, std::uint32_t count) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  entry->offered = entry->reach = count;
  entry->offers_answer = count > 0;
}

void StepPlanner::offer_draft(SequenceId sequence, std::uint32_t count) {
  Entry* entry = find(sequence);
  if (entry == nullptr) return;
  entry->offered = std::min(count, options_.max_draft);
  entry->reach = entry->offered;
}

std::uint32_t StepPlanner::wanted_drafts(std::span<const SequenceId> sequences, double pass_seconds,
                                         std::uint32_t most) {
  most = std::min(most, options_.max_draft);
  if (options_.verify_all_drafts || sequences.empty()) return sequences.empty() ? 0 : most;
  StepLoad load;
  for (const Entry& entry : entries_)
    if (entry.runnable() && entry.decoding()) load.add_row(entry.computed, entry.known - entry.computed, 1);
  const double plain = costs_->predict(load);
  DraftRoom room(plain, load.num_outputs, longest_with_drafts(plain, find(sequences.front())));
  double drafting = 0, best = kLeastGain * room.tokens() / room.seconds();
  std::uint32_t best_length = 0;
  for (std::uint32_t length = 1; length <= most; ++length) {
    drafting += pass_seconds;
    bool added = false;  // what would not be verified is not drafted
    for (const SequenceId sequence : sequences) {
      StepLoad longer = load;
      longer.add_row(at(sequence).computed + length, 1, 1);
      const double seconds = costs_->predict(longer) - costs_->predict(load);
      if (!room.add(std::pow(draft_acceptance(sequence), length), seconds)) continue;
      load = longer;
      added = true;
    }
    if (!added) break;
    const double rate = room.tokens() / (kDraftMargin * drafting + room.seconds());
    if (!(rate > best)) continue;  // also where nothing is predicted
    best = rate;
    best_length = length;
  }
  if (best_length > 0) {
    undrafted_in_a_row_ = 0;
    probe_after_ = kFirstProbe;
  } else if (++undrafted_in_a_row_ >= std::max(probe_after_, kFirstProbe)) {
    undrafted_in_a_row_ = 0;
    probe_after_ = std::min(2 * std::max(probe_after_, kFirstProbe), kLastProbe);
    probes_ = true;
    return 1;
  }
  return best_length;
}

void StepPlanner::observe_draft(SequenceId sequence, std::uint32_t num_right, bool was_wrong) {
  acceptance_.observe(num_right, was_wrong);
  if (Entry* entry = find(sequence)) entry->acceptance.observe(num_right, was_wrong);
}

double StepPlanner::draft_acceptance(SequenceId sequence) const {
  const Entry* entry = find(sequence);
  const double all = acceptance_.rate(kHopeful);
  return entry == nullptr ? all : entry->acceptance.rate(all);
}

}  // namespace troupe::scheduler
