// The state of one model: loading, loaded, or failed with an error. Outside of every actor, so that it outlives them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/requests/status_snapshot.h"
#include "actors/serving/served_model.h"
#include "config/result.h"

namespace troupe::actors {

// Thread-safe. Callbacks are called outside of the lock.
class ModelState {
 public:
  // name: what clients call the model. aliases: what else they may call it.
  explicit ModelState(std::string name, std::vector<std::string> aliases = {});

  void set_fraction(double fraction) { fraction_ = fraction; }
  void loaded(std::shared_ptr<const ServedModel> model);
  void failed(Error error);  // to load, or for good after too many restarts
  void set_draining() { draining_ = true; }
  void set_unloading() { unloading_ = true; }
  void set_retiring() { retiring_ = true; }
  void set_replacing(bool replacing) { replacing_ = replacing; }
  void set_awaits_request(bool awaits) { awaits_request_ = awaits; }  // its load begins when a request asks for it

  double fraction() const { return fraction_; }
  bool awaits_request() const { return awaits_request_; }
  bool draining() const { return draining_; }    // the server ends
  bool unloading() const { return unloading_; }  // this model is taken away
  bool retiring() const { return retiring_; }    // it was replaced, and ends the requests that it has
  bool replacing() const { return replacing_; }  // it is loaded to take the place of another of its name
  bool loading() const;                          // also while draining
  Readiness readiness() const;
  const std::string& name() const { return name_; }
  const std::vector<std::string>& aliases() const { return aliases_; }
  bool is_called(const std::string& name) const;                               // its name or an alias
  std::shared_ptr<const ServedModel> model() const { return locked(model_); }  // null while loading
  std::optional<Error> error() const { return locked(error_); }

  // Calls `done` once loading has ended; at once if it has.
  void on_loaded(std::function<void(Status)> done);

 private:
  template <class T>
  T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }
  void notify(const Status& status);

  const std::string name_;
  const std::vector<std::string> aliases_;
  std::atomic<double> fraction_{0};
  std::atomic<bool> draining_{false}, unloading_{false}, retiring_{false}, replacing_{false}, awaits_request_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
  std::optional<Error> error_;
  std::vector<std::function<void(Status)>> waiting_;
};

}  // namespace troupe::actors
