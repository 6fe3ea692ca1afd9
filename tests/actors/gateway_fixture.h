// A real gateway on the embedded model, and a sink that records.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway.h"

namespace troupe::actors::test {

inline constexpr std::uint64_t kAllCredit = ~std::uint64_t{0};

// Thread-safe. The wait functions return when their condition holds, or fail the test after a minute.
class Recorder : public StreamSink {
 public:
  void tokens(TokenRun run) override {
    std::unique_lock lock(mutex_);
    in_order_ = in_order_ && run.first_index == ids_.size() && ends_ == 0;
    ids_.insert(ids_.end(), run.ids.begin(), run.ids.end());
    text_ += run.text;
    logprobs_.insert(logprobs_.end(), run.logprobs.begin(), run.logprobs.end());
    const auto hook = on_tokens;
    const std::size_t so_far = ids_.size();
    lock.unlock();
    changed_.notify_all();
    if (hook) hook(so_far);
  }
  void end(End end) override {
    {
      const std::lock_guard lock(mutex_);
      ++ends_;
      end_ = std::move(end);
    }
    changed_.notify_all();
  }

  void wait_for_tokens(std::size_t count) {
    wait([&] { return ids_.size() >= count || ends_ > 0; });
  }
  End wait_for_end() {
    wait([&] { return ends_ > 0; });
    const std::lock_guard lock(mutex_);
    CHECK(in_order_);
    CHECK(ends_ == 1);
    return end_;
  }
  std::vector<TokenId> ids() const {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  std::vector<engine::SampledToken> logprobs() const {
    const std::lock_guard lock(mutex_);
    return logprobs_;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ends_ > 0;
  }

  std::function<void(std::size_t so_far)> on_tokens;  // set before submitting

 private:
  template <class Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), condition)) {
      lock.unlock();
      FAIL("nothing happened for a minute");
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> ids_;
  std::string text_;
  std::vector<engine::SampledToken> logprobs_;
  End end_;
  int ends_ = 0;
  bool in_order_ = true;
};

inline GatewayOptions embedded_model() {
  GatewayOptions options;
  options.model().path = std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf";
  options.num_threads = 2;
  options.model().load.num_blocks = 256;
  return options;
}

// Started and loaded.
inline std::unique_ptr<Gateway> start(GatewayOptions options = embedded_model()) {
  auto gateway = Gateway::start(std::move(options));
  if (!gateway) FAIL(gateway.error().message);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Status status = Ok{};
  (*gateway)->on_loaded([&](Status loaded) {
    const std::lock_guard lock(mutex);
    status = std::move(loaded);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  if (!status) FAIL(status.error().message);
  return std::move(*gateway);
}

// The user that runs the server.
inline const scheduler::Tenant kOwner{TenantId{1000}, true};

inline Request greedy(std::string text, std::uint32_t max_tokens) {
  Request request;
  request.tenant = kOwner;
  request.prompt = std::move(text);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.credit = kAllCredit;
  return request;
}

inline Request seeded(std::string text, std::uint32_t max_tokens, std::uint64_t seed) {
  Request request = greedy(std::move(text), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  request.has_seed = true;
  return request;
}

struct Answered {
  std::vector<TokenId> ids;
  std::string text;
  End end;
};

inline Answered answer(const std::shared_ptr<Recorder>& sink) {
  const End end = sink->wait_for_end();
  return {sink->ids(), sink->text(), end};
}

// A Recorder for each choice of one request.
class ChoiceRecorder : public StreamSink {
 public:
  explicit ChoiceRecorder(std::uint32_t num_choices) {
    for (std::uint32_t i = 0; i < num_choices; ++i) choices_.push_back(std::make_shared<Recorder>());
  }
  void tokens(TokenRun run) override { choices_.at(run.choice)->tokens(std::move(run)); }
  void end(End end) override { choices_.at(end.choice)->end(std::move(end)); }

  Recorder& choice(std::size_t i) { return *choices_.at(i); }
  std::vector<Answered> wait() {
    std::vector<Answered> answers;
    for (const auto& recorder : choices_) answers.push_back(answer(recorder));
    return answers;
  }

 private:
  std::vector<std::shared_ptr<Recorder>> choices_;
};

inline Answered run(Gateway& gateway, Request request) {
  auto sink = std::make_shared<Recorder>();
  gateway.submit(std::move(request), sink);
  return answer(sink);
}

// An answer that comes from another thread, or before the question returns.
template <class T>
class Answer {
 public:
  std::function<void(T)> callback() {
    return [state = state_](T value) {
      const std::lock_guard lock(state->mutex);
      state->value = std::move(value);
      ++state->count;
      state->changed.notify_all();
    };
  }
  bool is_there() const {
    const std::lock_guard lock(state_->mutex);
    return state_->count > 0;
  }
  T wait() const {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return state_->count > 0; })) {
      lock.unlock();
      FAIL("nothing happened for a minute");
    }
    REQUIRE(state_->count == 1);
    return *state_->value;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<T> value;
    int count = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline StatusSnapshot status(Gateway& gateway) {
  Answer<StatusSnapshot> snapshot;
  gateway.status(snapshot.callback());
  return snapshot.wait();
}

inline Tokenized tokenized(Gateway& gateway, std::string text, scheduler::Tenant tenant = kOwner) {
  Answer<Tokenized> ids;
  (void)gateway.tokenize({tenant, {}}, std::move(text), {}, ids.callback());
  return ids.wait();
}

inline Detokenized detokenized(Gateway& gateway, std::vector<TokenId> ids, scheduler::Tenant tenant = kOwner) {
  Answer<Detokenized> text;
  (void)gateway.detokenize({tenant, {}}, std::move(ids), text.callback());
  return text.wait();
}

}  // namespace troupe::actors::test
