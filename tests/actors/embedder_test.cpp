// Requests for vectors without actors: each is answered exactly once, whatever happens to it.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/embedder.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using Ids = std::vector<std::vector<TokenId>>;
using Texts = std::vector<std::string>;

// A compute thread that runs a job when the test says so.
class SteppedCompute final : public Compute {
 public:
  void post(std::function<void()> job) override {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  engine::Team& team() override { return team_; }
  // Whether there was one.
  bool run_one() {
    std::function<void()> job;
    {
      const std::lock_guard lock(mutex_);
      if (jobs_.empty()) return false;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
    return true;
  }

 private:
  engine::Team team_{1};
  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
};

// What `done` was told, and how often.
struct Answer {
  std::optional<EmbedAnswer> value;
  int count = 0;
  CancelFlag cancel;

  OnEmbedded callback() {
    return [this](EmbedAnswer answer) {
      value = std::move(answer);
      ++count;
    };
  }
  const Embeddings& vectors() const {
    REQUIRE(count == 1);
    REQUIRE(std::holds_alternative<Embeddings>(*value));
    return std::get<Embeddings>(*value);
  }
  const End& end() const {
    REQUIRE(count == 1);
    REQUIRE(std::holds_alternative<End>(*value));
    return std::get<End>(*value);
  }
};

struct Stage {
  explicit Stage(GatewayOptions given = {}) : options(std::move(given)) {
    options.max_queued_texts = 4;
    auto loaded = engine::Encoder::load(TROUPE_TEST_DATA "/tiny-bert.gguf", {});
    if (!loaded) FAIL(loaded.error().message);
    encoder = *loaded;
    texts = std::make_unique<ThreadPool>("texts", 1, options.max_queued_texts);
    embedder = std::make_unique<Embedder>(options, *texts, compute);
    embedder->loaded(encoder);
  }
  // The text thread has run dry.
  void settle() {
    std::promise<void> reached;
    REQUIRE(texts->post([&] { reached.set_value(); }));
    reached.get_future().wait();
  }
  int run_all() {
    settle();
    int turns = 0;
    while (compute.run_one()) ++turns;
    return turns;
  }
  std::vector<float> directly(const Ids& ids, engine::PoolingOptions pooling = {engine::Pooling::cls, true}) {
    std::vector<std::span<const TokenId>> spans(ids.begin(), ids.end());
    std::vector<float> rows(ids.size() * encoder->info().dim);
    engine::Workspace workspace;
    encoder->encode(compute.team(), spans, pooling, workspace, rows.data());
    return rows;
  }

  GatewayOptions options;
  SteppedCompute compute;
  std::shared_ptr<const engine::Encoder> encoder;
  std::unique_ptr<ThreadPool> texts;
  std::unique_ptr<Embedder> embedder;
};

EmbedRequest of_texts(Texts texts, std::uint32_t uid = 1) {
  EmbedRequest request;
  request.uid = uid;
  request.inputs = std::move(texts);
  return request;
}
EmbedRequest of_ids(Ids ids, std::uint32_t uid = 1) {
  EmbedRequest request;
  request.uid = uid;
  request.inputs = std::move(ids);
  return request;
}

}  // namespace

TEST_CASE("texts and ids give the encoder's vectors, with the model's pooling unless another is asked for") {
  Stage stage;
  const Texts texts = {"once upon a time", "cat", "the sun"};
  Ids ids;
  for (const std::string& text : texts) ids.push_back(stage.encoder->tokenizer()->encode(text, {}));
  Answer from_texts, from_ids, last;
  (void)stage.embedder->embed(of_texts(texts), from_texts.callback());
  (void)stage.embedder->embed(of_ids(ids), from_ids.callback());
  EmbedRequest other = of_ids(ids);
  other.pooling = engine::Pooling::last;
  other.normalise = false;
  (void)stage.embedder->embed(other, last.callback());
  stage.run_all();
  REQUIRE(from_texts.vectors().values == stage.directly(ids));
  REQUIRE(from_texts.vectors().dim == 64);
  REQUIRE(from_texts.vectors().pooling == engine::Pooling::cls);
  REQUIRE(from_texts.vectors().prompt_tokens == 6 + 3 + 4);
  REQUIRE(from_ids.vectors().values == from_texts.vectors().values);
  REQUIRE(last.vectors().values == stage.directly(ids, {engine::Pooling::last, false}));
  REQUIRE(last.vectors().pooling == engine::Pooling::last);
}

TEST_CASE("a large request takes turns with the others") {
  Stage stage;
  const Ids many(20, std::vector<TokenId>(300, 7));  // three of them in a turn
  Answer large, small;
  (void)stage.embedder->embed(of_ids(many), large.callback());
  (void)stage.embedder->embed(of_ids({{2, 9, 3}}), small.callback());
  REQUIRE(stage.compute.run_one());
  REQUIRE(stage.compute.run_one());
  REQUIRE(small.count == 1);
  REQUIRE(large.count == 0);
  REQUIRE(stage.run_all() == 6);
  REQUIRE(large.vectors().values == stage.directly(many));
  REQUIRE(large.vectors().prompt_tokens == 6000);
}

TEST_CASE("a cancelled request ends before its next turn, as cancelled") {
  Stage stage;
  Answer answer, unread;
  const CancelFlag flag = stage.embedder->embed(of_ids(Ids(20, std::vector<TokenId>(300, 7))), answer.callback());
  REQUIRE(stage.compute.run_one());
  *flag = true;
  REQUIRE(stage.run_all() == 1);
  REQUIRE(answer.end().outcome == Outcome::cancelled);
  *stage.embedder->embed(of_texts({"cat"}), unread.callback()) = true;
  stage.run_all();
  REQUIRE(unread.end().outcome == Outcome::cancelled);
  *flag = true;  // twice, and too late
  Answer next;
  (void)stage.embedder->embed(of_texts({"cat"}), next.callback());
  stage.run_all();
  REQUIRE(next.vectors().values.size() == 64);
}

TEST_CASE("what cannot be embedded is refused by name") {
  Stage stage;
  const auto refusal = [&](EmbedRequest request) {
    Answer answer;
    (void)stage.embedder->embed(std::move(request), answer.callback());
    stage.run_all();
    return answer.end();
  };
  const End long_text = refusal(of_texts({"cat", std::string(1000, '!')}));
  REQUIRE(long_text.outcome == Outcome::too_long);
  REQUIRE(long_text.field == "texts");
  REQUIRE(long_text.limit == 320);
  REQUIRE(long_text.message.find("texts[1] has 1002 tokens") != std::string::npos);
  REQUIRE(refusal(of_ids({{2}, {}})).message.find("token_ids[1] has no tokens") != std::string::npos);
  REQUIRE(refusal(of_ids({{2, -1}})).message.find("the id -1") != std::string::npos);
  REQUIRE(refusal(of_ids({{228}})).outcome == Outcome::invalid_argument);
  REQUIRE(refusal(of_ids({std::vector<TokenId>(321, 7)})).outcome == Outcome::too_long);
  REQUIRE(refusal(of_ids({})).field == "texts");
  const End many = refusal(of_texts(Texts(kMaxEmbedInputs + 1, "cat")));
  REQUIRE(many.outcome == Outcome::invalid_argument);
  REQUIRE(many.limit == kMaxEmbedInputs);
  EmbedRequest bare = of_texts({""});
  bare.add_special = false;
  REQUIRE(refusal(bare).message.find("texts[0] has no tokens") != std::string::npos);
}

TEST_CASE("while the model loads, and beyond the limits of requests and users, it is said so") {
  GatewayOptions options;
  options.max_queued_requests = 3;
  options.max_requests_per_uid = 2;
  Stage stage(options);
  Embedder loading(stage.options, *stage.texts, stage.compute);
  Answer early;
  (void)loading.embed(of_texts({"cat"}), early.callback());
  REQUIRE(early.end().outcome == Outcome::loading);
  REQUIRE(early.end().retry_after);
  std::array<Answer, 5> answers;
  for (int i = 0; i < 3; ++i)
    (void)stage.embedder->embed(of_ids({{7}}, 1), answers[static_cast<std::size_t>(i)].callback());
  REQUIRE(answers[2].end().outcome == Outcome::quota);
  REQUIRE(answers[2].end().field == "max_requests_per_user");
  for (int i = 3; i < 5; ++i)
    (void)stage.embedder->embed(of_ids({{7}}, 2), answers[static_cast<std::size_t>(i)].callback());
  REQUIRE(answers[4].end().outcome == Outcome::queue_full);
  REQUIRE(answers[4].end().field == "max_queued_requests");
  stage.run_all();
  for (const int i : {0, 1, 3}) REQUIRE(answers[static_cast<std::size_t>(i)].vectors().dim == 64);
  StatusSnapshot snapshot;
  snapshot.requests_ended = {{"eos", 1}, {"quota", 0}, {"queue_full", 0}};
  stage.embedder->fill(snapshot);
  REQUIRE(snapshot.requests_received == 5);
  REQUIRE(snapshot.requests_running == 0);
  REQUIRE(snapshot.requests_ended == decltype(snapshot.requests_ended){{"eos", 4}, {"quota", 1}, {"queue_full", 1}});
  REQUIRE(snapshot.prompt_tokens == 3);
  REQUIRE(snapshot.numerics_id == stage.encoder->numerics_id());
}

TEST_CASE("draining lets what is under way finish until its deadline, and ends the rest") {
  Stage stage;
  Answer finishing, late;
  (void)stage.embedder->embed(of_ids({{7}}), finishing.callback());
  stage.embedder->drain(std::chrono::steady_clock::now() + std::chrono::hours(1));
  (void)stage.embedder->embed(of_ids({{7}}), late.callback());
  REQUIRE(late.end().outcome == Outcome::draining);
  int empty = 0;
  stage.embedder->when_empty([&] { ++empty; });
  REQUIRE(empty == 0);
  stage.run_all();
  REQUIRE(finishing.vectors().dim == 64);
  REQUIRE(empty == 1);
  stage.embedder->when_empty([&] { ++empty; });
  REQUIRE(empty == 2);

  Stage other;
  Answer cut;
  (void)other.embedder->embed(of_ids({{7}}), cut.callback());
  other.embedder->drain(std::chrono::steady_clock::now());
  other.run_all();
  REQUIRE(cut.end().outcome == Outcome::cancelled);
}

}  // namespace troupe::actors
