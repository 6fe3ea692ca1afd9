#include "actors/models/memory_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/model/load_choices.h"

namespace troupe::actors {

using engine::mebibytes;

namespace {

// Beside those of the models that wait: `serve` of one model, and one more that is loaded later, is the common case.
constexpr std::uint64_t kSharesOfLaterModels = 1;

}  // namespace

struct MemoryBudget::State {
  explicit State(std::uint64_t bytes) : total(bytes) {}

  std::uint64_t left() const {
    std::uint64_t taken = 0;
    for (const Part* part : parts) taken += part->bytes_;
    return total - std::min(total, taken);
  }

  // The refusal of a part for which so much is left.
  Error too_little(const Part& refused, std::uint64_t left_for_it) const {
    const MemoryDemand& demand = refused.demand_;
    std::vector<std::string> others;
    for (const Part* part : parts) {
      if (part == &refused) continue;
      if (part->bytes_ > 0)
        others.push_back(fmt::format("{} has {}", part->demand_.model, mebibytes(part->bytes_)));
      else if (part->stage_ == Part::Stage::waits)
        others.push_back(fmt::format("{} waits for {}", part->demand_.model, mebibytes(part->demand_.least())));
    }
    const std::string of_it = demand.limit != 0
                                  ? fmt::format("is to have {}", mebibytes(demand.limit))
                                  : fmt::format("needs {} (weights {}, vocabulary up to {}, cache of one sequence {})",
                                                mebibytes(demand.least()), mebibytes(demand.weights),
                                                mebibytes(demand.vocabulary), mebibytes(demand.cache));
    return {
        ErrorCode::out_of_memory,
        fmt::format("model {} {}, and {} of the memory budget of {} are left{}{}; unload a model, give the models a "
                    "smaller context or `memory` of their own, or use a larger --memory",
                    demand.model, of_it, mebibytes(left_for_it), mebibytes(total), others.empty() ? "" : ": ",
                    fmt::join(others, ", "))};
  }

  const std::uint64_t total;
  mutable std::mutex mutex;
  std::vector<Part*> parts;  // in the order in which they came
};

MemoryBudget::Part::Part(std::shared_ptr<State> state, MemoryDemand demand, bool may_come)
    : state_(std::move(state)),
      is_on_request_(may_come),
      demand_(std::move(demand)),
      stage_(may_come ? Stage::may_come : Stage::waits) {
  const std::lock_guard lock(state_->mutex);
  state_->parts.push_back(this);
}

MemoryBudget::Part::~Part() {
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->parts, this);
  for (Part* const other : state_->parts)
    if (other->heir_ == this) other->heir_ = nullptr;
  if (heir_ == nullptr) return;
  const std::uint64_t inherited = std::min(bytes_, heir_->lacks_);
  heir_->bytes_ += inherited;
  heir_->lacks_ -= inherited;
}

Status MemoryBudget::Part::claim() {
  const std::lock_guard lock(state_->mutex);
  return claim_locked();
}

Result<std::uint64_t> MemoryBudget::Part::reserve() {
  const std::lock_guard lock(state_->mutex);
  if (stage_ == Stage::reserved) return bytes_;
  const std::uint64_t left = state_->left();
  if (lacks_ > left) return state_->too_little(*this, bytes_ + left);
  bytes_ += std::exchange(lacks_, 0);  // came back in another way than it was waited for
  const bool is_only = std::ranges::none_of(
      state_->parts, [this](const Part* part) { return part != this && !(part->has_begun() && part->bytes_ == 0); });
  if (is_only && stage_ == Stage::waits && demand_.limit == 0 && demand_.least() > left) {
    bytes_ = left;  // the loader says of what that is too little
  } else {
    if (Status claimed = claim_locked(); !claimed) return claimed.error();
    if (demand_.limit == 0)
      bytes_ += is_on_request_ ? std::min(share_of_rest(), demand_.most_on_request()) : share_of_rest();
  }
  stage_ = Stage::reserved;
  return bytes_;
}

// In the order in which they came, whichever is loaded first: what one needs is its own before what a later one does.
Status MemoryBudget::Part::claim_locked() {
  if (!is_out()) return Ok{};
  const std::uint64_t rest = rest_for_it();
  if (demand_.least() > rest) return state_->too_little(*this, rest);
  stage_ = Stage::claimed;
  bytes_ = demand_.least();
  return Ok{};
}

// What is left by those that have their parts, and by those that came before it.
std::uint64_t MemoryBudget::Part::rest_for_it() const {
  std::uint64_t rest = state_->left();
  for (const Part* part : state_->parts) {
    if (part == this) break;
    // One that does not fit is refused when its turn comes.
    if (part->stage_ == Stage::waits && part->demand_.least() <= rest) rest -= part->demand_.least();
  }
  return rest;
}

Status MemoryBudget::Part::claim_behind(const std::vector<std::shared_ptr<Part>>& others) {
  const std::lock_guard lock(state_->mutex);
  if (!is_out()) return Ok{};
  const std::uint64_t rest = rest_for_it();
  std::uint64_t with_theirs = rest;
  bool is_only = true;
  for (const Part* part : state_->parts) {
    const bool is_one = part->heir_ == nullptr &&
                        std::ranges::any_of(others, [part](const auto& other) { return other.get() == part; });
    if (is_one) with_theirs += part->bytes_;
    is_only = is_only && (is_one || part == this || (part->has_begun() && part->bytes_ == 0));
  }
  // The only model gets all if that is less than it needs, as in reserve().
  const bool takes_all = is_only && demand_.limit == 0 && demand_.least() > with_theirs;
  const std::uint64_t needed = takes_all ? with_theirs : demand_.least();
  if (needed > with_theirs) return state_->too_little(*this, with_theirs);
  stage_ = Stage::claimed;
  bytes_ = std::min(needed, rest);
  lacks_ = needed - bytes_;
  for (const auto& other : others)
    if (other->heir_ == nullptr) other->heir_ = this;
  return Ok{};
}

// Of a part that is claimed.
std::uint64_t MemoryBudget::Part::share_of_rest() const {
  std::uint64_t rest = state_->left();
  std::uint64_t sharers = kSharesOfLaterModels;
  for (const Part* part : state_->parts) {
    if (part->has_begun() || part->stage_ == Stage::may_come) continue;
    if (part->stage_ == Stage::waits) {
      if (part->demand_.least() > rest) continue;
      rest -= part->demand_.least();
    }
    if (part->demand_.limit == 0) ++sharers;
  }
  return rest / sharers;
}

void MemoryBudget::Part::settle(std::uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  stage_ = Stage::settled;
  bytes_ = bytes;
}

Status MemoryBudget::Part::change_demand(MemoryDemand demand) {
  const std::lock_guard lock(state_->mutex);
  if (stage_ == Stage::claimed && lacks_ == 0) {
    const std::uint64_t most = bytes_ + state_->left();
    if (demand.least() > most) {
      std::swap(demand_, demand);
      const Error why = state_->too_little(*this, most);
      std::swap(demand_, demand);
      return why;
    }
    bytes_ = demand.least();
  }
  demand_ = std::move(demand);
  return Ok{};
}

MemoryDemand MemoryBudget::Part::demand() const {
  const std::lock_guard lock(state_->mutex);
  return demand_;
}

std::uint64_t MemoryBudget::Part::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return bytes_;
}

MemoryBudget::MemoryBudget(std::uint64_t bytes) : state_(std::make_shared<State>(bytes)) {}

std::shared_ptr<MemoryBudget::Part> MemoryBudget::expect(MemoryDemand demand) {
  return std::make_shared<Part>(state_, std::move(demand));
}

std::shared_ptr<MemoryBudget::Part> MemoryBudget::may_come(MemoryDemand demand) {
  return std::make_shared<Part>(state_, std::move(demand), true);
}

std::uint64_t MemoryBudget::total() const { return state_->total; }

std::uint64_t MemoryBudget::left() const {
  const std::lock_guard lock(state_->mutex);
  return state_->left();
}

std::uint64_t MemoryBudget::for_requests() const {
  const std::lock_guard lock(state_->mutex);
  std::uint64_t rest = state_->total;
  for (const Part* part : state_->parts)
    if (!part->is_on_request_) rest -= std::min(rest, part->bytes_);
  // One that does not fit is refused when its turn comes.
  for (const Part* part : state_->parts)
    if (part->stage_ == Part::Stage::waits && part->demand_.least() <= rest) rest -= part->demand_.least();
  return rest;
}

bool MemoryBudget::is_settling() const {
  const std::lock_guard lock(state_->mutex);
  return std::ranges::any_of(state_->parts, [](const Part* part) {
    return !part->is_on_request_ && part->stage_ != Part::Stage::settled && part->stage_ != Part::Stage::may_come;
  });
}

std::uint64_t part_of_only_model(std::uint64_t least, std::uint64_t budget) {
  return least > budget ? budget : least + (budget - least) / (1 + kSharesOfLaterModels);
}

}  // namespace troupe::actors
