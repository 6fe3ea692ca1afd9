// How a Batch has steps verify drafts.
#include <algorithm>
#include <span>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"

namespace troupe::actors {

namespace {

// Tokens that are indexed before one step: a long prompt takes several, and has no drafts meanwhile.
constexpr std::size_t kMaxIndexedPerStep = 4096;
// One sequence's index may hold as many tokens as SuffixDrafter allows, the fifth and later ones of those that
// run together fewer: some 70 MB for 64 sequences, however long they are.
constexpr std::size_t kMaxIndexedTogether = 4 * engine::SuffixDrafter::kMaxTokens;
constexpr std::size_t kFewestIndexed = 1024;

std::unique_ptr<engine::Drafter> make_drafter(engine::DraftSource source, std::size_t num_sequences) {
  switch (source) {
    case engine::DraftSource::ngram:
      return std::make_unique<engine::NgramDrafter>();
    case engine::DraftSource::automatic:
    case engine::DraftSource::suffix:
      return std::make_unique<engine::SuffixDrafter>(
          std::clamp(kMaxIndexedTogether / std::max<std::size_t>(num_sequences, 1), kFewestIndexed,
                     engine::SuffixDrafter::kMaxTokens));
    case engine::DraftSource::off:
    case engine::DraftSource::draft:
      break;
  }
  return nullptr;
}

}  // namespace

void Batch::begin_drafts(Live& live) {
  live.speculation = live.task->body->speculation.over(options_.speculation);
  live.speculation.n_max = std::min(live.speculation.n_max, options_.planner.max_draft);
  if (live.speculation.n_max == 0) live.speculation.source = engine::DraftSource::off;
  if (!may_run_ahead(live)) {
    live.speculation.source = engine::DraftSource::off;
    return;
  }
  const std::vector<TokenId>&proposal = live.task->body->proposal, &emitted = live.task->emitted;
  live.keeps_to_proposal =
      proposal.size() > emitted.size() && std::equal(emitted.begin(), emitted.end(), proposal.begin());
}

// The state that a session's file keeps is the executor's, which may be past a stop string in a draft.
bool Batch::may_run_ahead(const Live& live) const { return !loop_.has_state() || !live.task->body->turn; }

bool Batch::may_draft(const Live& live) const {
  return live.speculation.source != engine::DraftSource::off && may_verify(live);
}

bool Batch::may_verify(const Live& live) const {
  return live.phase == Phase::running && !live.parked && !live.saving && live.emitted > 0 &&
         live.emitted + 1 < live.granted && live.fill_until == 0 && loop_.planner().decodes(live.sequence);
}

// Asks the draft worker for the next step's proposals; false: not for this step, or they are there.
bool Batch::ask_for_drafts() {
  if (!options_.has_draft_model || drafted_step_ == loop_.last_step() + 1) return false;
  drafted_step_ = loop_.last_step() + 1;
  std::vector<SequenceId> sequences;
  for (const auto& [sequence, request] : loop_.sequences()) {
    const Live& live = live_of(*request);
    const engine::DraftSource source = live.speculation.source;
    const bool by_model = source == engine::DraftSource::draft || source == engine::DraftSource::automatic;
    if (by_model && own_proposal(live).empty() && may_draft(live) && live.tokens.size() + 2 < live.max_known)
      sequences.push_back(sequence);
  }
  const std::uint32_t count = loop_.planner().wanted_drafts(sequences, pass_seconds_, kMaxDraftTokens);
  if (count == 0) return false;
  draft_work_ = std::make_shared<DraftWork>();
  draft_work_->number = ++draft_number_;
  draft_work_->closes = std::exchange(draft_closes_, {});
  drafting_.clear();
  for (const SequenceId sequence : sequences) {
    Live& live = *find_sequence(sequence);
    engine::DraftAsk& ask = draft_work_->asks.emplace_back();
    add_once(draft_work_->tenants, live.tenant());
    ask.request = live.request();
    ask.first = live.num_told;
    ask.tokens.assign(live.tokens.begin() + live.num_told, live.tokens.end());
    ask.num_draft = std::max(1u, std::min(count, live.speculation.n_max));
    ask.p_min = live.speculation.p_min;
    if (ask.first == 0) ask.sampling = live.task->body->sampling;
    live.num_told = live.known_tokens();
    drafting_.push_back(live.request());
  }
  drafts_pending_ = true;
  return true;
}

std::shared_ptr<const DraftWork> Batch::take_draft_work() { return std::exchange(draft_work_, nullptr); }

void Batch::proposed(std::uint64_t number, const engine::DraftReply& reply, TimePoint now) {
  if (!drafts_pending_ || number != draft_number_) return;  // asked before the draft worker died
  drafts_pending_ = false;
  for (const engine::DraftAnswer& answer : reply.answers) {
    Live* live = find(answer.request);
    if (!live) continue;
    if (answer.is_lost) {
      live->num_told = 0;
      continue;
    }
    live->proposal = answer.tokens;
    live->proposed_at = live->tokens.size();
  }
  if (reply.num_passes == 0) return;
  learn_pass(reply);
  charge_drafts(reply.seconds, now);
}

// The mean of all passes at first, later a decayed one: the very first pass may touch its memory for the first time.
void Batch::learn_pass(const engine::DraftReply& reply) {
  if (reply.num_draft_passes == 0) return;
  num_passes_ += reply.num_draft_passes;
  const double weight = std::max(0.1, static_cast<double>(reply.num_draft_passes) / static_cast<double>(num_passes_));
  pass_seconds_ += weight * (reply.draft_seconds / reply.num_draft_passes - pass_seconds_);
}

// Charges a pass of the draft model in equal parts to the requests that it drafted for.
void Batch::charge_drafts(double seconds, TimePoint now) {
  charges_.clear();
  for (const RequestId request : drafting_) {
    const Live* live = find(request);
    if (!live) continue;
    const TenantId tenant = live->tenant();
    const double part = seconds / static_cast<double>(drafting_.size());
    shares_.charge(tenant, part);
    charges_.push_back({.request = request,
                        .tenant = tenant,
                        .seconds = part,
                        .num_blocks = live->num_blocks(options_.capacity.groups)});
  }
  streams().charge(charges_, seconds, now, news_);
}

void Batch::drafter_died() {
  drafts_pending_ = false;
  for (const auto& [number, request] : loop_.requests()) live_of(*request).num_told = 0;
  draft_closes_.clear();
}

// Proposes what may follow each sequence that decodes, as far as its client's credit goes.
void Batch::offer_drafts() {
  std::size_t room = kMaxIndexedPerStep;
  options_.earlier_answers->index(room);
  for (const auto& [sequence, request] : loop_.sequences()) {
    Live& live = live_of(*request);
    if (!own_proposal(live).empty()) {
      offer_own_proposal(live);
      continue;
    }
    const bool by_model = live.proposed_at == live.tokens.size() && !live.proposal.empty();
    if (!by_model) live.proposal.clear();
    if (!may_draft(live)) {
      live.proposal.clear();
      continue;
    }
    if (!by_model) propose_from_text(live, room);
    if (live.proposal.size() < live.speculation.n_min) live.proposal.clear();
    const std::uint64_t credit = live.granted - live.emitted - 1;
    loop_.offer_draft(sequence, static_cast<std::uint32_t>(std::min<std::uint64_t>(live.proposal.size(), credit)));
  }
}

// What follows the longest match, in its own text or, with a suffix index, in the tenant's earlier answers.
void Batch::propose_from_text(Live& live, std::size_t& room) {
  if (!live.drafter) live.drafter = make_drafter(live.speculation.source, loop_.sequences().size());
  if (!live.drafter) return;
  std::size_t length = 0;
  if (live.drafter->extend(live.tokens, room))
    length = live.drafter->propose(live.tokens, live.speculation.n_max, live.proposal);
  if (live.speculation.source == engine::DraftSource::ngram) return;
  const std::size_t of_earlier = options_.earlier_answers->propose(live.tenant(), live.scopes.publish(), live.tokens,
                                                                   live.speculation.n_max, live.earlier, earlier_);
  if (of_earlier > length) live.proposal.swap(earlier_);
}

// For requests of the same tenant and scope to come.
void Batch::learn_answer(const Live& live) {
  const engine::DraftSource source = live.speculation.source;
  if (source != engine::DraftSource::suffix && source != engine::DraftSource::automatic) return;
  options_.earlier_answers->learn(live.tenant(), live.scopes.publish(), live.tokens, live.emitted);
}

// What its request proposes as the rest of the answer, or what its form leaves no choice about.
std::span<const TokenId> Batch::own_proposal(const Live& live) {
  if (live.keeps_to_proposal) return std::span(live.task->body->proposal).subspan(live.emitted);
  return live.forced;
}

// As much as a step can take.
void Batch::offer_own_proposal(Live& live) {
  live.proposal.clear();
  if (!may_verify(live)) return;
  const std::span<const TokenId> rest = own_proposal(live);
  const std::uint64_t credit = live.granted - live.emitted - 1;
  const auto count = std::min<std::uint64_t>({rest.size(), credit, options_.planner.max_step_tokens});
  live.proposal.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
  loop_.planner().offer_answer(live.sequence, static_cast<std::uint32_t>(count));
}

std::uint32_t Batch::proposal_left(const Live& live) const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(own_proposal(live).size(), options_.planner.max_step_tokens));
}

// Whether the answer is still what its request proposes, with what this row has sampled.
void Batch::check_own_proposal(Live& live, const engine::ItemResult& row) {
  const auto rest = std::span(live.task->body->proposal).subspan(live.emitted);
  const auto is_same = [](const engine::SampledToken& token, TokenId id) { return token.id == id; };
  live.keeps_to_proposal =
      row.tokens.size() < rest.size() && std::equal(row.tokens.begin(), row.tokens.end(), rest.begin(), is_same);
  if (!live.keeps_to_proposal) loop_.planner().offer_answer(live.sequence, 0);  // asks for no more blocks ahead
}

// Compares the proposal with what followed, whether or not it was verified: so the acceptance of drafts that are not
// worth verifying is known, too.
void Batch::learn_from_draft(Live& live, const engine::ItemResult& row, std::uint32_t num_draft) {
  if (live.keeps_to_proposal) {
    count_draft(Drafter::request, row, num_draft);
    return check_own_proposal(live, row);
  }
  if (!live.forced.empty()) {
    if (row.tokens.empty()) return;
    count_draft(Drafter::form, row, num_draft);
    live.proposal.clear();
    return loop_.planner().offer_answer(live.sequence, 0);
  }
  const std::size_t count = std::min(live.proposal.size(), row.tokens.size());
  std::uint32_t num_right = 0;
  while (num_right < count && live.proposal[num_right] == row.tokens[num_right].id) ++num_right;
  if (count > 0) loop_.planner().observe_draft(live.sequence, num_right, num_right < count);
  live.proposal.clear();
  Drafter drafter = live.speculation.source == engine::DraftSource::ngram ? Drafter::ngram : Drafter::suffix;
  if (live.proposed_at == live.tokens.size()) drafter = Drafter::draft;
  count_draft(drafter, row, num_draft);
}

void Batch::count_draft(Drafter drafter, const engine::ItemResult& row, std::uint32_t num_draft) {
  if (num_draft == 0) return;
  DraftCounts& counts = draft_counts_[static_cast<std::size_t>(drafter)];
  ++counts.drafts;
  counts.tokens += num_draft;
  counts.accepted += row.num_accepted;
}

}  // namespace troupe::actors
