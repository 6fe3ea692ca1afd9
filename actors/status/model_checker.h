// Checks the models that are served, on a thread of its own: their canaries from time to time, and the checksums of
// their weights in the background.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/models/model_integrity.h"
#include "actors/requests/status_snapshot.h"
#include "actors/status/scrub_pace.h"
#include "actors/threads/compute_pool.h"
#include "config/options/server_limits.h"

namespace troupe::actors {

// A model of the server, as the checker sees it.
struct CheckedModel {
  std::string name;
  std::shared_ptr<const void> owner{};  // keeps the next
  ModelIntegrity* integrity = nullptr;  // null: it is not loaded, or is out
  std::string problem{};                // why that is so
  std::function<bool()> is_wanted{};    // false: it is being unloaded, so that its memory is waited for
  std::function<void(const std::string& what)> take_out{};  // called once something is found
};

// How often a pass over all weights begins. A pass of a model that takes longer is followed by the next.
inline constexpr std::chrono::minutes kWeightPassEvery{10};

// The canary runs as jobs between steps, one pass each. Weights are read in pieces of a megabyte on the checker's
// thread, which is as nice as a load is: what a step may wait for is the memory bandwidth of a piece.
class ModelChecker {
 public:
  using Clock = std::chrono::steady_clock;
  using Models = std::function<std::vector<CheckedModel>()>;
  using Warn = std::function<void(const std::string& model, const std::string& what)>;

  // models: those of now. Both are called on the checker's thread. cpus: as of ThreadPool.
  ModelChecker(const config::IntegrityOptions& options, Compute& compute, Models models, Warn warn,
               std::vector<int> cpus);
  ~ModelChecker() { stop(); }
  ModelChecker(const ModelChecker&) = delete;
  ModelChecker& operator=(const ModelChecker&) = delete;

  // A model that is asked about: called when its turn comes, so that what waits keeps no model.
  using Asked = std::function<CheckedModel()>;
  // Checks these models, one after the other, and takes out those that are damaged. `done` is called once, on the
  // checker's thread, unless it is stopped before. False: kMaxQueuedChecks wait already, or it was stopped.
  static constexpr std::size_t kMaxQueuedChecks = 64;
  [[nodiscard]] bool check(std::vector<Asked> models, std::function<void(std::vector<ModelCheck>)> done);
  // Runs a pass of a canary as a job, without a profile: it serves no request.
  static void run_pass(Compute& compute, const std::function<void()>& pass);
  // Ends the thread; a canary or a check that runs is given up. The compute pool must run jobs until it has returned.
  void stop();
  [[nodiscard]] bool is_stopping();  // stop() was called

 private:
  struct Question {
    std::vector<Asked> models;
    std::function<void(std::vector<ModelCheck>)> done;
  };
  void run();
  ModelCheck check_now(const CheckedModel& model);
  Clock::time_point work();
  void run_due_canary(const CheckedModel& model, Clock::time_point now);
  std::uint64_t check_some(const CheckedModel& model, std::uint64_t most);
  bool is_interrupted();  // it is stopping, or a question waits

  const config::IntegrityOptions options_;
  Compute& compute_;
  const Models models_;
  const Warn warn_;
  const std::vector<int> cpus_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;
  bool stopping_ = false;
  ScrubPace pace_;  // of the thread alone
  std::thread thread_;
};

}  // namespace troupe::actors
