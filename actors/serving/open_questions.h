// Questions that were sent to an actor and are not answered: kept outside of it, because it may die before it answers.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::actors {

// Each question is taken and answered exactly once, with a call: by the actor, or by the asker or supervisor that finds
// the actor dead. Thread-safe; no lock is held when a question is answered.
template <class Question>
class OpenQuestions {
 public:
  // The number by which it is taken; never 0, and never used again.
  [[nodiscard]] std::uint64_t add(Question question) {
    const std::lock_guard lock(mutex_);
    open_.emplace(++last_number_, std::move(question));
    return last_number_;
  }
  // nullopt: it has been taken.
  [[nodiscard]] std::optional<Question> take(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    auto taken = open_.extract(number);
    return taken.empty() ? std::nullopt : std::optional(std::move(taken.mapped()));
  }
  [[nodiscard]] std::vector<Question> take_all() {
    std::vector<Question> all;
    const std::lock_guard lock(mutex_);
    for (auto& [number, question] : std::exchange(open_, {})) all.push_back(std::move(question));
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Question> open_;
  std::uint64_t last_number_ = 0;
};

}  // namespace troupe::actors
