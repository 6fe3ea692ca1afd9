#include "actors/models/memory_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/model/load_choices.h"

namespace troupe::actors {

using engine::mebibytes;

struct MemoryBudget::State {
  explicit State(std::uint64_t bytes) : total(bytes) {}

  std::uint64_t left() const {
    std::uint64_t taken = 0;
    for (const Part* part : parts) taken += part->bytes_;
    return total - std::min(total, taken);
  }

  const std::uint64_t total;
  mutable std::mutex mutex;
  std::vector<Part*> parts;  // in the order in which they came
};

MemoryBudget::Part::Part(std::shared_ptr<State> state, MemoryDemand demand)
    : state_(std::move(state)), demand_(std::move(demand)) {
  const std::lock_guard lock(state_->mutex);
  state_->parts.push_back(this);
}

MemoryBudget::Part::~Part() {
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->parts, this);
}

Result<std::uint64_t> MemoryBudget::Part::reserve() {
  const std::lock_guard lock(state_->mutex);
  if (bytes_ > 0) return bytes_;
  waits_ = false;
  const std::uint64_t left = state_->left();
  const std::uint64_t least = demand_.least();
  const bool is_only = state_->parts.size() == 1;
  if (is_only && demand_.limit == 0) return bytes_ = left;  // where that is too little, the loader says of what
  if (least > left) {
    std::vector<std::string> others;
    for (const Part* part : state_->parts)
      if (part->bytes_ > 0) others.push_back(fmt::format("{} has {}", part->demand_.model, mebibytes(part->bytes_)));
    const std::string of_it =
        demand_.limit != 0
            ? fmt::format("is to have {}", mebibytes(demand_.limit))
            : fmt::format("needs {} (weights {}, vocabulary up to {}, cache of one sequence {})", mebibytes(least),
                          mebibytes(demand_.weights), mebibytes(demand_.vocabulary), mebibytes(demand_.cache));
    return Error{ErrorCode::out_of_memory,
                 fmt::format("model {} {}, and {} of the memory budget of {} are left{}{}; unload a model, give the "
                             "models a smaller context or `memory` of their own, or use a larger --memory",
                             demand_.model, of_it, mebibytes(left), mebibytes(state_->total),
                             others.empty() ? "" : ": ", fmt::join(others, ", "))};
  }
  if (demand_.limit != 0) return bytes_ = least;
  std::uint64_t spare = left - least;
  std::uint64_t sharers = 1;
  for (const Part* part : state_->parts) {
    if (!part->waits_ || part->demand_.least() > spare) continue;  // what does not fit is refused when its turn comes
    spare -= part->demand_.least();
    if (part->demand_.limit == 0) ++sharers;
  }
  return bytes_ = least + spare / sharers;
}

void MemoryBudget::Part::settle(std::uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  bytes_ = bytes;
}

std::uint64_t MemoryBudget::Part::bytes() const {
  const std::lock_guard lock(state_->mutex);
  return bytes_;
}

MemoryBudget::MemoryBudget(std::uint64_t bytes) : state_(std::make_shared<State>(bytes)) {}

std::shared_ptr<MemoryBudget::Part> MemoryBudget::expect(MemoryDemand demand) {
  return std::make_shared<Part>(state_, std::move(demand));
}

std::uint64_t MemoryBudget::total() const { return state_->total; }

std::uint64_t MemoryBudget::left() const {
  const std::lock_guard lock(state_->mutex);
  return state_->left();
}

}  // namespace troupe::actors
