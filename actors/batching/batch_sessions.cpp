// How a Batch fills blocks from a session's file, and copies them for one.
#include <algorithm>
#include <utility>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"
#include "config/assert.h"

namespace troupe::actors {

using scheduler::Outcome;

// Starts reading the contents of the request's session if they have more blocks than the cache.
bool Batch::reads_contents(scheduler::ServingRequest& request, std::uint32_t num_cached) {
  const auto& turn = live_of(request).task->body->turn;
  if (!turn || turn->image() || turn->num_saved() < num_cached + kBlockSize) return false;
  turn->read_image([done = options_.on_session_read, id = request.request()] { done(id); });
  return true;
}

void Batch::session_read(RequestId request) {
  Live* live = find(request);
  if (!live || live->phase != Phase::reading) return;
  if (const auto image = image_of(*live)) live->contents = image->num_computed();
  loop_.queue(*live);
}

std::shared_ptr<const engine::SequenceImage> Batch::image_of(const Live& live) const {
  const auto& turn = live.task->body->turn;
  return turn ? turn->image() : nullptr;
}

void Batch::contents_used(scheduler::ServingRequest& request) { live_of(request).task->body->turn->forget_image(); }

// Reports the rows of the ended step that were copied as a whole.
void Batch::fills_ended() {
  for (const SequenceId sequence : loop_.take_filled()) {
    Live* live = find_sequence(sequence);
    if (!live) continue;  // its stream ended during the step
    loop_.row_ended(*live, 0);
    const std::uint32_t computed = std::min(loop_.planner().computed(sequence), live->prompt_tokens());
    streams().computed(live->request(), live->generation(), computed);
    clear_faults(*live);
  }
}

// Memory for the contents of a turn that ends by itself; null: they are not saved.
std::shared_ptr<SessionSaving> Batch::begin_saving(Live& live, Outcome outcome) {
  const auto& turn = live.task->body->turn;
  const bool is_normal = outcome == Outcome::eos || outcome == Outcome::stop_id || outcome == Outcome::stop_string ||
                         outcome == Outcome::length;
  if (!turn || !is_normal || live.phase != Phase::running) return nullptr;
  return turn->save(live.tokens, loop_.planner().computed(live.sequence));
}

// Charges what the ended step copied as if it was computed; on a receipt only while there is a stream.
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

void Batch::saved(scheduler::ServingRequest& request) {
  SessionSaving::commit(std::move(live_of(request).saving),
                        [tell = options_.on_session_written, tenant = request.tenant()](double seconds) {
                          if (tell) tell(tenant, seconds);
                        });
}

}  // namespace troupe::actors
