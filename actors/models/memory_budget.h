// The memory that the models of a server may take together, and each model's part of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/result.h"

namespace troupe::actors {

// What a model needs. Bytes.
struct MemoryDemand {
  std::string model;          // its name, for messages
  std::uint64_t weights = 0;  // of a draft model, too
  std::uint64_t vocabulary = 0;
  std::uint64_t cache = 0;  // the least that it can be served with: one sequence of the whole context
  std::uint64_t limit = 0;  // all that it may take; 0: what it needs, and a share of what is left

  std::uint64_t least() const { return limit != 0 ? limit : weights + vocabulary + cache; }
  // What a model that is loaded on request takes beyond that at most, as others are to come beside it: cache of three
  // more sequences, but no more than its weights.
  std::uint64_t most_on_request() const { return limit != 0 ? 0 : std::min(3 * cache, weights); }
};

// Thread-safe; so are its parts, which may outlive it.
class MemoryBudget {
  struct State;

 public:
  // One model's part. It waits until it is claimed or reserved, and is given back when it is destroyed.
  class Part {
   public:
    Part(std::shared_ptr<State> state, MemoryDemand demand, bool may_come = false);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // Takes what the model needs or its limit, before its load begins, so that no other load takes the same bytes.
    // Error: out_of_memory, with the numbers: nothing is taken, and it still waits.
    [[nodiscard]] Status claim();
    // As claim(), for a model whose load begins when these parts, of one that it replaces, are given back: takes what
    // is left now, and what lacks from them, in the moment in which they are destroyed. So no other load gets between.
    // One of them behind which another has claimed counts for nothing.
    [[nodiscard]] Status claim_behind(const std::vector<std::shared_ptr<Part>>& others);
    // The load begins. Claims, if that was not done, and returns how many bytes the model may have: its limit; else
    // what it needs, and of what no model has and none that waits needs an equal share: there is one for each model
    // without a limit whose load has not begun, and one more that stays for a model that is loaded later. One that is
    // loaded on request has no more of that share than MemoryDemand::most_on_request(). The only model (beside those
    // that have settled for nothing) gets all if that is less than it needs. Error: as claim().
    [[nodiscard]] Result<std::uint64_t> reserve();
    // The model is loaded and takes so many, or 0, as its load has failed: the rest is given back. May exceed what was
    // reserved, as estimates of vocabularies are approximate.
    void settle(std::uint64_t bytes);
    // It turns out to need something else, before it reserves. Error: as claim(), of one that has claimed what it
    // needed before; nothing changes then.
    [[nodiscard]] Status change_demand(MemoryDemand demand);
    [[nodiscard]] MemoryDemand demand() const;
    [[nodiscard]] std::uint64_t bytes() const;  // claimed, reserved, or taken

   private:
    friend class MemoryBudget;
    enum class Stage {
      may_come,  // counts nothing
      waits,
      claimed,   // has what it needs
      reserved,  // and its share
      settled,   // has what it takes
    };

    bool is_out() const { return stage_ == Stage::may_come || stage_ == Stage::waits; }  // has no bytes yet
    bool has_begun() const { return stage_ == Stage::reserved || stage_ == Stage::settled; }
    Status claim_locked();
    std::uint64_t rest_for_it() const;
    std::uint64_t share_of_rest() const;

    const std::shared_ptr<State> state_;
    const bool is_on_request_;
    MemoryDemand demand_;  // guarded by the state's lock, like the next
    Stage stage_;
    std::uint64_t bytes_ = 0;  // claimed, reserved, or taken
    std::uint64_t lacks_ = 0;  // of what it has claimed; comes from those whose heir it is
    Part* heir_ = nullptr;     // gets what it lacks of these bytes when they are given back
  };

  explicit MemoryBudget(std::uint64_t bytes);

  // A model that will be loaded. Models that reserve their parts before it leave it what it needs, where the budget
  // allows.
  [[nodiscard]] std::shared_ptr<Part> expect(MemoryDemand demand);
  // A model that may be loaded some time: nothing is left for it before it is claimed.
  [[nodiscard]] std::shared_ptr<Part> may_come(MemoryDemand demand);
  [[nodiscard]] std::uint64_t total() const;
  [[nodiscard]] std::uint64_t left() const;
  // What models that are loaded on request may take together: all that no other model has, or waits for.
  [[nodiscard]] std::uint64_t for_requests() const;
  // Whether another model is loaded or waits for its load: it may give back some of what it has or waits for.
  [[nodiscard]] bool is_settling() const;

 private:
  const std::shared_ptr<State> state_;
};

// What a budget of so many bytes reserves for its only model, which needs `least` and has no limit.
[[nodiscard]] std::uint64_t part_of_only_model(std::uint64_t least, std::uint64_t budget);

}  // namespace troupe::actors
