#include "actors/serving/model_state.h"

#include <algorithm>
#include <utility>

namespace troupe::actors {

ModelState::ModelState(std::string name, std::vector<std::string> aliases)
    : name_(std::move(name)), aliases_(std::move(aliases)) {}

bool ModelState::is_called(const std::string& name) const {
  return name == name_ || std::ranges::find(aliases_, name) != aliases_.end();
}

void ModelState::loaded(std::shared_ptr<const ServedModel> model) {
  fraction_ = 1;
  {
    const std::lock_guard lock(mutex_);
    model_ = std::move(model);
  }
  notify(Ok{});
}

void ModelState::failed(Error error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  notify(std::move(error));
}

Readiness ModelState::readiness() const {
  const std::lock_guard lock(mutex_);
  if (error_) return Readiness::failed;
  if (draining_ || unloading_ || retiring_) return Readiness::draining;
  if (model_) return Readiness::ready;
  return awaits_request_ ? Readiness::on_request : Readiness::loading;
}

bool ModelState::loading() const {
  const std::lock_guard lock(mutex_);
  return !model_ && !error_;
}

void ModelState::on_loaded(std::function<void(Status)> done) {
  Status status = Ok{};
  {
    const std::lock_guard lock(mutex_);
    if (!model_ && !error_) {
      waiting_.push_back(std::move(done));
      return;
    }
    if (!model_) status = *error_;
  }
  done(std::move(status));
}

void ModelState::notify(const Status& status) {
  std::vector<std::function<void(Status)>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = std::exchange(waiting_, {});
  }
  for (const auto& done : waiting) done(status);
}

}  // namespace troupe::actors
