#include "scheduler/shares/request_line.h"

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

// Tells it that something has been given back, or that it is the first now.
void wake_first(const std::list<std::function<void()>>& waiting) {
  if (!waiting.empty()) waiting.front()();
}

}  // namespace

RequestLoad& RequestLoad::operator+=(const RequestLoad& more) {
  live += more.live;
  waiting += more.waiting;
  prompt_bytes += more.prompt_bytes;
  texts += more.texts;
  vector_bytes += more.vector_bytes;
  return *this;
}

RequestLoad& RequestLoad::operator-=(const RequestLoad& less) {
  TROUPE_ASSERT(live >= less.live && waiting >= less.waiting && prompt_bytes >= less.prompt_bytes &&
                texts >= less.texts && vector_bytes >= less.vector_bytes);
  live -= less.live;
  waiting -= less.waiting;
  prompt_bytes -= less.prompt_bytes;
  texts -= less.texts;
  vector_bytes -= less.vector_bytes;
  return *this;
}

RequestLine::Held& RequestLine::Held::operator=(Held&& other) noexcept {
  std::swap(line_, other.line_);
  std::swap(load_, other.load_);
  return *this;
}

void RequestLine::Held::give_back(RequestLoad less) {
  if (!line_ || less == RequestLoad{}) return;
  load_ -= less;
  line_->taken_ -= less;
  wake_first(line_->owners_);
  wake_first(line_->guests_);
}

RequestLine::Place::Place(RequestLine& line, bool is_owner, std::function<void()> wake)
    : waiting_(is_owner ? line.owners_ : line.guests_), self_(waiting_.insert(waiting_.end(), std::move(wake))) {}

RequestLine::Place::~Place() {
  const bool was_first = is_first();
  waiting_.erase(self_);
  if (was_first) wake_first(waiting_);
}

bool RequestLine::has_room(const RequestLoad& more, const RequestLoad& room) const {
  const auto fits = [&](std::uint64_t RequestLoad::*part) {
    return more.*part == 0 || taken_.*part == 0 || taken_.*part + more.*part <= room.*part;
  };
  return fits(&RequestLoad::live) && fits(&RequestLoad::waiting) && fits(&RequestLoad::prompt_bytes) &&
         fits(&RequestLoad::texts) && fits(&RequestLoad::vector_bytes);
}

RequestLine::Held RequestLine::take(const RequestLoad& load) {
  taken_ += load;
  return {this, load};
}

}  // namespace troupe::scheduler
