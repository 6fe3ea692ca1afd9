// How a Batch fills blocks from a session's file, and copies them for one.
#include <algorithm>
#include <utility>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"
#include "config/assert.h"

namespace troupe::actors {

using scheduler::Outcome;

// Has the contents of the request's session read if they have more blocks than the cache. Then the request waits for
// them, holding nothing; it acquires blocks again afterwards.
bool Batch::read_session(Live& live, std::uint32_t num_cached) {
  const auto& turn = live.task->body->turn;
  if (!turn || turn->image() || turn->num_saved() < num_cached + kBlockSize) return false;
  release_blocks(live);
  move_to(live, Phase::reading);
  turn->read_image([done = options_.on_session_read, request = live.request()] { done(request); });
  return true;
}

void Batch::session_read(RequestId request) {
  Live* live = find(request);
  if (live && live->phase == Phase::reading) queue_again(*live);
}

std::shared_ptr<const engine::SequenceImage> Batch::image_of(const Live& live) const {
  const auto& turn = live.task->body->turn;
  return turn ? turn->image() : nullptr;
}

// Has the first tokens of a row copied instead of computed. Returns how many. With the last of the image's the worker
// opens the sequence, whose state is the image's then.
std::uint32_t Batch::fill(Live& live, std::uint32_t num_tokens) {
  if (live.fill_until == 0) return 0;
  const std::uint32_t from = planner_.computed(live.sequence);
  TROUPE_ASSERT(from < live.fill_until);
  const std::uint32_t to = std::min(from + num_tokens, live.fill_until);
  fills_.push_back({.image = image_of(live),
                    .tables = live.tables,
                    .from = from,
                    .to = to,
                    .request = live.request(),
                    .tenant = live.task->body->tenant.id});
  if (to == live.fill_until) {
    live.new_blocks.clear();  // they are in the tables
    open(live, to);
  }
  return to - from;
}

void Batch::end_fill(Live& live) {
  if (live.fill_until == 0 || planner_.computed(live.sequence) < live.fill_until) return;
  live.fill_until = 0;
  live.task->body->turn->forget_image();
}

// The rows of the step that has ended which were copied as a whole.
void Batch::fills_ended() {
  for (const SequenceId sequence : std::exchange(filled_, {})) {
    Live* live = find_sequence(sequence);
    if (!live) continue;  // its stream ended during the step
    planner_.advance(sequence, 0);
    const std::uint32_t computed = std::min(planner_.computed(sequence), live->prompt_tokens());
    streams().computed(live->request(), live->generation(), computed);
    end_fill(*live);
    commit_full_blocks(*live);
    clear_faults(*live);
  }
}

// Memory for the contents of a turn that ends by itself; null: they are not saved.
std::shared_ptr<SessionSaving> Batch::begin_saving(Live& live, Outcome outcome) {
  const auto& turn = live.task->body->turn;
  const bool is_normal = outcome == Outcome::eos || outcome == Outcome::stop_id || outcome == Outcome::stop_string ||
                         outcome == Outcome::length;
  if (!turn || !is_normal || live.phase != Phase::running) return nullptr;
  return turn->save(live.tokens, planner_.computed(live.sequence));
}

void Batch::keep_for_saving(Live& live, std::shared_ptr<SessionSaving> saving) {
  live.saving = std::move(saving);
  saving_.push_back(live.sequence);
  planner_.park(live.sequence);  // it still counts as one that wants computing: what it copies is charged
  leases_.push_back(cache::Yield{.key = next_key(live)});
  ++num_returns_;  // its headroom
}

// Has the next part of one sequence copied, as much as a step may compute.
void Batch::save_part() {
  while (!saving_.empty() && !find_sequence(saving_.front())) saving_.pop_front();  // preempted
  if (saving_.empty()) return;
  Live& live = *find_sequence(saving_.front());
  // Computing comes first: beside other rows a tenant copies no more than its share of the time.
  const TenantId tenant = live.task->body->tenant.id;
  if (!batch_.items.empty() && shares_.served(tenant) > shares_.least_served() + shares_.allowance()) return;
  const std::uint32_t total = live.saving->image().num_computed();
  const std::uint32_t from = live.num_copied;
  live.num_copied = std::min(total, from + options_.planner.max_step_tokens);
  live.last_step = step_ + 1;
  saves_.push_back({.saving = live.saving,
                    .tables = live.tables,
                    .from = from,
                    .to = live.num_copied,
                    .state_of = live.num_copied == total ? live.sequence : 0,
                    .tenant = tenant});
}

// What the ended step copied is charged as what it computed is; on a receipt only while there is a stream.
void Batch::charge_copies(TimePoint now) {
  const auto work = std::exchange(copying_, nullptr);
  if (!work) return;
  charges_.clear();
  double seconds = 0;
  const auto charge = [&](const Live* live, TenantId tenant, double part) {
    shares_.charge(tenant, part);
    seconds += part;
    charges_.push_back({.request = live ? live->request() : 0,
                        .tenant = tenant,
                        .seconds = part,
                        .num_blocks = live ? live->num_blocks(options_.capacity.groups) : 0});
  };
  for (const ImageSave& save : work->saves) charge(nullptr, save.tenant, save.seconds);
  for (const ImageFill& each : work->fills) charge(find(each.request), each.tenant, each.seconds);
  streams().charge(charges_, seconds, now, news_);
}

void Batch::part_saved() {
  if (saving_.empty()) return;
  Live* live = find_sequence(saving_.front());
  if (!live || live->num_copied < live->saving->image().num_computed()) return;
  saving_.pop_front();
  SessionSaving::commit(std::move(live->saving),
                        [tell = options_.on_session_written, tenant = live->task->body->tenant.id](double seconds) {
                          if (tell) tell(tenant, seconds);
                        });
  drop(*live);
}

void Batch::give_up_saving() {
  for (const SequenceId sequence : std::exchange(saving_, {}))
    if (Live* live = find_sequence(sequence)) drop(*live);
}

}  // namespace troupe::actors
