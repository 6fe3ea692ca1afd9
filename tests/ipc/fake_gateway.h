// A gateway without actors: it records what was asked, and the test decides what is answered and when.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway.h"
#include "actors/requests/request_check.h"
#include "tests/ipc/support.h"

namespace troupe::ipc::test {

class FakeGateway final : public actors::Gateway {
  template <class F>
  auto change(F f) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return f();
  }
  template <class Ready, class Get>
  auto wait(Ready ready, Get get) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, ready));
    return get();
  }

 public:
  struct Submitted {  // a choice
    actors::RequestId id;
    std::uint32_t choice;
    actors::Request request;
    std::shared_ptr<actors::StreamSink> sink;
  };

  static constexpr scheduler::RequestLoad kUnlimited{
      .live = ~0ull, .waiting = ~0ull, .prompt_bytes = ~0ull, .texts = ~0ull, .vector_bytes = ~0ull};
  static constexpr actors::RequestId kRefusedId = 1ull << 62;  // and those after it

  actors::RequestId submit(actors::Request request, std::shared_ptr<actors::StreamSink> sink) override {
    std::optional<actors::End> wrong;
    if (auto why = actors::check_shape(request)) wrong = actors::refused(*std::move(why));
    const bool is_alias = std::ranges::find(aliases, request.model) != aliases.end();
    if (!request.model.empty() && request.model != "fake" && !is_alias)
      wrong = actors::unknown_model(request.model, {"fake"});
    if (wrong) {
      for (wrong->choice = 0; wrong->choice < request.num_choices; ++wrong->choice) sink->end(*wrong);
      return kRefusedId;
    }
    return change([&] {
      const actors::RequestId first = submitted_.size() + 1;
      for (std::uint32_t choice = 0; choice < request.num_choices; ++choice)
        submitted_.push_back({.id = first + choice, .choice = choice, .request = request, .sink = sink});
      return first;
    });
  }
  // As the real gateway does: the stream ends, once.
  void cancel(actors::RequestId id) override {
    const auto choice = change([&] {
      cancelled_.push_back(id);
      const bool is_known = id >= 1 && id <= submitted_.size();
      return ends_on_cancel_ && is_known ? std::optional(submitted_[id - 1]) : std::nullopt;
    });
    if (!choice) return;
    actors::End end;
    end.choice = choice->choice;
    end.outcome = scheduler::Outcome::cancelled;
    choice->sink->end(std::move(end));
  }
  void credit(actors::RequestId id, std::uint64_t tokens) override {
    change([&] {
      ++num_credit_calls_;
      return credit_[id] += tokens;
    });
  }
  // Of a guest; set before the first client connects.
  scheduler::RequestLoad room = kUnlimited;
  scheduler::RequestLoad room_of(const scheduler::Tenant& tenant) override {
    return tenant.is_owner ? kUnlimited : room;
  }
  actors::Readiness readiness() const override { return actors::Readiness::ready; }
  double load_fraction() const override { return 1; }
  bool is_making_progress() const override {
    num_models_before_health_ = num_models_calls_.load();
    return !stands_still_;
  }
  std::vector<actors::ModelHealth> health() const override {
    std::vector<actors::ModelHealth> all{{.name = "fake",
                                          .aliases = aliases,
                                          .readiness = loads_ ? actors::Readiness::loading : actors::Readiness::ready,
                                          .load_fraction = loads_ ? 0.5 : 1,
                                          .stalled = stands_still_}};
    all.insert(all.end(), not_loaded.begin(), not_loaded.end());
    return all;
  }
  std::vector<std::string> aliases{};  // of the model that serves; set before the first client connects
  // Models beside the one that serves; set before the first client connects.
  std::vector<actors::ModelHealth> not_loaded{};
  void status(std::function<void(actors::StatusSnapshot)> done) override {
    const bool held = change([&] {
      ++num_status_calls_;
      if (holds_status_) held_status_ = done;
      return holds_status_;
    });
    if (!held) done(snapshot());
  }
  actors::StatusSnapshot snapshot() const {
    actors::StatusSnapshot snapshot;
    snapshot.readiness = actors::Readiness::ready;
    snapshot.model = "fake";
    snapshot.stalled = stands_still_;
    snapshot.requests = {{.request = 7,
                          .tenant = TenantId{::geteuid()},
                          .uid = ::geteuid(),
                          .state = actors::RequestState::running,
                          .generated_tokens = 3,
                          .age_seconds = 1}};
    actors::Latencies{}.append_metrics(snapshot.metrics, actors::Latency::time_to_first_token,
                                       actors::Latency::cancel_latency);
    return snapshot;
  }
  std::shared_ptr<const actors::ServedModel> model(const std::string&) const override { return nullptr; }
  std::vector<actors::ModelDescription> models() const override {
    ++num_models_calls_;
    if (first_models_) first_models_->get_future().wait();
    first_models_ = nullptr;
    actors::ModelDescription fake;
    fake.name = "fake";
    fake.eos = 2;
    fake.end_ids = {2, 7};
    return {fake};
  }
  // Keeps one session, "talk"; answers on the caller's thread.
  void session(actors::SessionQuestion question, std::function<void(actors::SessionAnswer)> done) override {
    if (question.kind != actors::SessionQuestion::Kind::list && question.name != "talk")
      return done(scheduler::Refusal{.outcome = scheduler::Outcome::invalid_argument,
                                     .message = "there is no such session",
                                     .field = "name",
                                     .limit = std::nullopt});
    std::vector<actors::SessionInfo> infos;
    if (question.kind != actors::SessionQuestion::Kind::remove) {
      actors::SessionInfo& info = infos.emplace_back();
      info.name = question.kind == actors::SessionQuestion::Kind::fork ? question.to : "talk";
      info.num_tokens = 40;
      info.anchors = {{{32, 0xfedcba9876543210}, true}};
      info.cache_known = true;
    }
    done(std::move(infos));
  }
  // Each byte is one token; answers on the caller's thread.
  actors::CancelFlag tokenize(actors::TextRequest request, std::string text, engine::EncodeOptions,
                              actors::OnTokenized done) override {
    auto end = change([&] { return text_end_; });
    if (!request.model.empty() && request.model != "fake") end = actors::unknown_model(request.model, {"fake"});
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    end ? done(*end) : done(std::move(ids));
    return text_flag_;
  }
  actors::CancelFlag detokenize(actors::TextRequest, std::vector<TokenId> ids, actors::OnDetokenized done) override {
    std::string text;
    for (const TokenId id : ids) text.push_back(static_cast<char>(id));
    done(std::move(text));
    return text_flag_;
  }
  // "role: content" on a line for each message, then "assistant:".
  static std::string rendered(const actors::ChatPrompt& chat) {
    std::string text;
    for (const actors::ChatMessage& message : chat.messages) text += message.role + ": " + message.content + "\n";
    return text + (chat.add_generation_prompt ? "assistant:" : "");
  }
  actors::CancelFlag apply_template(actors::TextRequest, actors::ChatPrompt chat, actors::OnRendered done) override {
    done(rendered(chat));
    return text_flag_;
  }
  actors::CancelFlag tokenize_chat(actors::TextRequest request, actors::ChatPrompt chat,
                                   actors::OnTokenized done) override {
    return tokenize(std::move(request), rendered(chat), {}, std::move(done));
  }
  // Names the model, and how it replaces another as if it were its state; unloads "here" alone.
  void load_models(std::vector<std::pair<actors::ModelRequest, actors::OnModelChange>> requests) override {
    for (const auto& [request, done] : requests) {
      change([&, &wanted = request] {
        asked_models_.push_back(wanted);
        return 0;
      });
      done(actors::ModelHealth{.name = request.keys.name,
                               .readiness = actors::Readiness::ready,
                               .load_fraction = 1,
                               .replacing = request.keys.replace == "beside",
                               .retiring = request.keys.replace == "unload-first"});
    }
  }
  std::vector<std::string> model_names() const override { return {"here"}; }
  void unload_model(const std::string& name, actors::OnModelChange done) override {
    if (name != "here") return done(actors::unknown_model(name, {"here"}));
    done(actors::ModelHealth{.name = name, .readiness = actors::Readiness::draining});
  }
  void remove_model(const std::string& name, actors::OnModelChange done) override {
    unload_model(name, std::move(done));
  }
  // Of all requests that were submitted; set before the first one is.
  std::optional<actors::LoadWait> load_wait{};
  std::optional<actors::LoadWait> wait_of(actors::RequestId) const override { return load_wait; }
  // "here" is sound; of all there are two, and one is damaged.
  void check_models(const std::vector<std::string>& names, actors::OnModelsChecked done) override {
    for (const std::string& name : names)
      if (name != "here") return done(actors::unknown_model(name, {"here"}));
    std::vector<actors::ModelCheck> checks{
        {.name = "here", .canary_ok = true, .weights_ok = true, .bytes = 1000, .seconds = 0.5}};
    if (names.empty())
      checks.push_back({.name = "other",
                        .canary_ok = true,
                        .bytes = 7,
                        .seconds = 0.25,
                        .file_change = "/models/a.gguf: was written to",
                        .problem = "vector 1"});
    done(std::move(checks));
  }
  std::vector<actors::ModelRequest> asked_models() {
    return wait([&] { return true; }, [&] { return asked_models_; });
  }
  void drain(std::function<void()> done) override {
    change([&] {
      drained_ = std::move(done);
      return 0;
    });
  }
  void on_loaded(std::function<void(Status)> done) override { done(Ok{}); }

  // For the test.
  Submitted wait_submitted(std::size_t index) {
    return wait([&] { return submitted_.size() > index; }, [&] { return submitted_[index]; });
  }
  std::vector<actors::RequestId> wait_cancelled(std::size_t count) {
    return wait([&] { return cancelled_.size() >= count; }, [&] { return cancelled_; });
  }
  std::uint64_t wait_credit(actors::RequestId id, std::uint64_t least) {
    return wait([&] { return credit_[id] >= least; }, [&] { return credit_[id]; });
  }
  std::function<void()> wait_draining() {
    return wait([&] { return static_cast<bool>(drained_); }, [&] { return drained_; });
  }
  std::size_t num_submitted() {
    const std::lock_guard lock(mutex_);
    return submitted_.size();
  }
  std::size_t num_cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_.size();
  }
  std::uint64_t credit_of(actors::RequestId id) {
    const std::lock_guard lock(mutex_);
    return credit_[id];
  }
  std::size_t num_credit_calls() {
    const std::lock_guard lock(mutex_);
    return num_credit_calls_;
  }
  void fail_texts(actors::End error) {
    change([&] { return text_end_ = std::move(error); });
  }
  void stand_still() { stands_still_ = true; }
  void set_loading(bool loads) { loads_ = loads; }
  // The next question for the status is answered by release_status() alone.
  void hold_status() {
    change([&] { return holds_status_ = true; });
  }
  void release_status() {
    const auto done = wait([&] { return static_cast<bool>(held_status_); },
                           [&] {
                             holds_status_ = false;
                             return std::exchange(held_status_, nullptr);
                           });
    done(snapshot());
  }
  void wait_status() {
    wait([&] { return num_status_calls_ > 0; }, [] { return 0; });
  }
  std::size_t num_status_calls() {
    const std::lock_guard lock(mutex_);
    return num_status_calls_;
  }
  // The first question for models stops the io thread until this is fulfilled. Before any question.
  void stop_at_models(std::promise<void>& go_on) { first_models_ = &go_on; }
  std::size_t num_models_before_health() const { return num_models_before_health_; }
  void keep_streams_on_cancel() { ends_on_cancel_ = false; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Submitted> submitted_;
  std::vector<actors::RequestId> cancelled_;
  std::vector<actors::ModelRequest> asked_models_;
  std::map<actors::RequestId, std::uint64_t> credit_;
  std::size_t num_credit_calls_ = 0;
  std::optional<actors::End> text_end_;
  const actors::CancelFlag text_flag_ = std::make_shared<std::atomic<bool>>(false);
  std::function<void()> drained_;
  bool ends_on_cancel_ = true;
  std::atomic<bool> stands_still_{false}, loads_{false};
  bool holds_status_ = false;
  std::function<void(actors::StatusSnapshot)> held_status_;
  std::size_t num_status_calls_ = 0;
  mutable std::atomic<std::size_t> num_models_calls_{0}, num_models_before_health_{0};
  mutable std::promise<void>* first_models_ = nullptr;
};

}  // namespace troupe::ipc::test
