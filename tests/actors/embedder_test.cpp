// Requests for vectors without actors: each is answered exactly once, whatever happens to it.
#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/embedder.h"
#include "engine/model/hidden_states.h"

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
  std::size_t num_jobs() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }
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
    auto loaded = engine::Encoder::load(TROUPE_TEST_DATA "/tiny-bert.gguf", {});
    if (!loaded) FAIL(loaded.error().message);
    encoder = *loaded;
    texts = std::make_unique<TextThreads>(TextThreadsOptions{.max_large = 1, .max_texts = options.max_queued_texts});
    streams = std::make_unique<StreamTable>(StreamLimits{.max_requests_per_tenant = options.max_requests_per_tenant});
    embedder = std::make_unique<Embedder>(options, *streams, *texts, compute);
    embedder->loaded(encoder);
  }
  // The text threads have run dry.
  void settle() {
    std::promise<void> reached;
    texts->when_empty([&] { reached.set_value(); });
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
  std::unique_ptr<StreamTable> streams;
  std::unique_ptr<TextThreads> texts;
  std::unique_ptr<Embedder> embedder;
};

EmbedRequest of_texts(Texts texts, std::uint32_t uid = 1) {
  EmbedRequest request;
  request.tenant.id = TenantId{uid};
  request.inputs = std::move(texts);
  return request;
}
EmbedRequest of_ids(Ids ids, std::uint32_t uid = 1) {
  EmbedRequest request;
  request.tenant.id = TenantId{uid};
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
  options.max_requests_per_tenant = 2;
  Stage stage(options);
  Embedder loading(stage.options, *stage.streams, *stage.texts, stage.compute);
  Answer early;
  (void)loading.embed(of_texts({"cat"}), early.callback());
  REQUIRE(early.end().outcome == Outcome::loading);
  REQUIRE(early.end().retry_after);
  std::array<Answer, 5> answers;
  const auto ask = [&](std::uint32_t uid, int i) {
    EmbedRequest request = of_ids({{7}}, uid);
    request.tenant.is_owner = true;
    (void)stage.embedder->embed(request, answers[static_cast<std::size_t>(i)].callback());
  };
  for (int i = 0; i < 3; ++i) ask(1, i);
  REQUIRE(answers[2].end().outcome == Outcome::quota);
  REQUIRE(answers[2].end().field == "max_requests_per_user");
  for (int i = 3; i < 5; ++i) ask(2, i);
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

TEST_CASE("however many requests wait, the compute thread has one job of them, and users take turns") {
  Stage stage;
  std::array<Answer, 6> greedy;
  Answer modest;
  for (Answer& answer : greedy)
    (void)stage.embedder->embed(of_ids(Ids(4, std::vector<TokenId>(300, 7)), 1), answer.callback());
  (void)stage.embedder->embed(of_ids({{2, 9, 3}}, 2), modest.callback());
  REQUIRE(stage.compute.num_jobs() == 1);
  REQUIRE(stage.compute.run_one());  // three of four texts
  REQUIRE(stage.compute.num_jobs() == 1);
  REQUIRE(modest.count == 0);
  REQUIRE(stage.compute.run_one());
  REQUIRE(modest.count == 1);
  REQUIRE(stage.compute.num_jobs() == 1);
  stage.run_all();
  for (const Answer& answer : greedy) REQUIRE(answer.vectors().prompt_tokens == 1200);
}

TEST_CASE("a model that continues texts reads a long one in passes of at most a step's tokens") {
  const auto loaded =
      engine::LoadedModel::load(TROUPE_MODELS "/tales-5m-tq2_0.gguf", {.num_blocks = 8, .max_sequences = 1});
  if (!loaded) FAIL(loaded.error().message);
  const auto states = std::make_shared<const engine::HiddenStates>(*loaded);
  std::vector<float> expected;
  for (const std::uint32_t step : {512u, 100u}) {
    GatewayOptions options;
    options.max_step_tokens = step;
    Stage stage(options);
    stage.embedder->loaded(states);
    Answer answer, gone;
    (void)stage.embedder->embed(of_ids({std::vector<TokenId>(600, 7), {5, 6}}), answer.callback());
    REQUIRE(stage.run_all() == (step == 512 ? 2 : 7));
    if (expected.empty()) expected = answer.vectors().values;
    REQUIRE(answer.vectors().values == expected);
    const CancelFlag flag = stage.embedder->embed(of_ids({std::vector<TokenId>(600, 7)}), gone.callback());
    REQUIRE(stage.compute.run_one());
    KnownMemory known;
    stage.embedder->add_to(known);
    REQUIRE(known.step_buffers > 19 * (*loaded)->arena()->bytes_per_block());  // its blocks, meanwhile
    *flag = true;
    REQUIRE(stage.run_all() == 1);  // in the middle of the text
    REQUIRE(gone.end().outcome == Outcome::cancelled);
  }
}

TEST_CASE("work that waits while no pass ends is no progress, with an encoder too") {
  Stage stage;
  const auto later = [](int seconds) { return std::chrono::steady_clock::now() + std::chrono::seconds(seconds); };
  REQUIRE(stage.embedder->without_progress(later(100)).count() == 0);
  Answer answer;
  (void)stage.embedder->embed(of_ids(Ids(8, std::vector<TokenId>(300, 7))), answer.callback());
  REQUIRE(stage.embedder->without_progress(later(100)) > std::chrono::seconds(99));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const TimePoint before = std::chrono::steady_clock::now();
  REQUIRE(stage.compute.run_one());
  REQUIRE(stage.embedder->without_progress(before).count() == 0);
  stage.run_all();
  REQUIRE(stage.embedder->without_progress(later(100)).count() == 0);
}

TEST_CASE("texts and vectors of open requests take no more than max_embed_bytes, and what is done is given back") {
  GatewayOptions options;
  options.max_embed_bytes = 8192;
  Stage stage(options);
  const std::uint64_t vector_bytes = 64 * sizeof(float);
  Answer large, second, third;
  (void)stage.embedder->embed(of_ids(Ids(40, {2, 9})), large.callback());  // more than there is room for, but alone
  KnownMemory known;
  stage.embedder->add_to(known);
  REQUIRE(known.streams == 40 * 2 * sizeof(TokenId));
  REQUIRE(known.weights == stage.encoder->weight_bytes());
  REQUIRE(known.weights_on_heap == stage.encoder->weight_bytes() - stage.encoder->matrix_bytes());
  (void)stage.embedder->embed(of_texts({"cat"}), second.callback());
  REQUIRE(second.end().outcome == Outcome::queue_full);
  REQUIRE(second.end().field == "max_embed_bytes");
  REQUIRE(second.end().limit == 8192);
  REQUIRE(second.end().retry_after);
  stage.run_all();
  REQUIRE(large.vectors().values.size() == 40 * 64);
  (void)stage.embedder->embed(of_ids(Ids(4, std::vector<TokenId>(300, 7))), third.callback());
  REQUIRE(stage.compute.run_one());
  known = {};
  stage.embedder->add_to(known);
  REQUIRE(known.streams == 3 * vector_bytes + 300 * sizeof(TokenId));  // three vectors for three texts
  REQUIRE(known.step_buffers > 0);
  stage.run_all();
  known = {};
  stage.embedder->add_to(known);
  REQUIRE(known.streams == 0);
}

TEST_CASE("who is told an answer and throws is told why, and nobody else suffers") {
  Stage stage;
  int calls = 0;
  std::optional<End> told;
  (void)stage.embedder->embed(of_ids({{7}}), [&](EmbedAnswer answer) {
    ++calls;
    if (std::holds_alternative<Embeddings>(answer)) throw std::bad_alloc();
    told = std::get<End>(std::move(answer));
  });
  (void)stage.embedder->embed(of_ids({{7}}), [&](EmbedAnswer) {
    ++calls;
    throw std::runtime_error("always");
  });
  Answer next;
  (void)stage.embedder->embed(of_ids({{7}}), next.callback());
  stage.run_all();
  REQUIRE(calls == 4);
  REQUIRE(told);
  REQUIRE(told->outcome == Outcome::out_of_memory);
  REQUIRE(next.vectors().dim == 64);
  int empty = 0;
  stage.embedder->when_empty([&] { ++empty; });
  REQUIRE(empty == 1);
}

TEST_CASE("a user's requests for vectors and for answers count together, and an end makes room at once") {
  GatewayOptions options;
  options.max_requests_per_tenant = 2;
  Stage stage(options);
  REQUIRE_FALSE(stage.streams->take_quota_of(TenantId{1}));  // a stream's
  Answer first, refused, other, again;
  (void)stage.embedder->embed(of_ids({{7}}), [&](EmbedAnswer answer) {
    first.callback()(std::move(answer));
    if (first.count == 1) (void)stage.embedder->embed(of_ids({{7}}), again.callback());
  });
  (void)stage.embedder->embed(of_ids({{7}}), refused.callback());
  REQUIRE(refused.end().outcome == Outcome::quota);
  (void)stage.embedder->embed(of_ids({{7}}, 2), other.callback());
  stage.run_all();
  REQUIRE(first.vectors().dim == 64);
  REQUIRE(again.vectors().dim == 64);
  REQUIRE(other.vectors().dim == 64);
  stage.streams->give_back_quota_of(TenantId{1});
}

TEST_CASE("a few words need no text thread, and of long texts each user has a share of the places") {
  GatewayOptions options;
  options.max_queued_texts = 5;
  Stage stage(options);
  std::promise<void> busy;
  const std::shared_future<void> go(busy.get_future());
  std::array<std::promise<void>, 2> began;
  for (std::size_t i = 0; i < 2; ++i) {  // both threads
    TextJob job;
    job.tenant = {TenantId{0}, true};
    job.first_part = i == 0 ? scheduler::kMaxSmallTextBytes + 1 : 1;
    job.work = [&began, i, go] {
      began[i].set_value();
      go.wait();
      return std::uint64_t{0};
    };
    job.ended = [](const std::optional<End>&) {};
    REQUIRE_FALSE(stage.texts->post(std::move(job)));
  }
  for (std::promise<void>& each : began) each.get_future().wait();
  Answer small;
  (void)stage.embedder->embed(of_texts({"cat", "the sun"}), small.callback());
  REQUIRE(stage.compute.run_one());
  REQUIRE(small.vectors().dim == 64);

  std::string text;
  while (text.size() < 600) text += "cat and the sun ";
  Answer first, second, other, third, unread;
  (void)stage.embedder->embed(of_texts(Texts(100, text), 1), first.callback());
  (void)stage.embedder->embed(of_texts(Texts(10, text), 1), second.callback());
  REQUIRE(second.end().outcome == Outcome::quota);
  REQUIRE(second.end().field == "max_queued_texts");
  REQUIRE(second.end().limit == 1);
  REQUIRE(second.end().retry_after);
  (void)stage.embedder->embed(of_texts(Texts(10, text), 2), other.callback());
  (void)stage.embedder->embed(of_texts(Texts(10, text), 3), third.callback());  // the last place is the owner's
  REQUIRE(third.end().outcome == Outcome::queue_full);
  REQUIRE(third.end().limit == 5);
  EmbedRequest owners = of_texts(Texts(10, text), 0);
  owners.tenant.is_owner = true;
  const CancelFlag unwanted = stage.embedder->embed(owners, unread.callback());
  *unwanted = true;
  Answer wanted;
  (void)stage.embedder->embed(owners, wanted.callback());  // in the place of what nobody wants any more
  REQUIRE(unread.end().outcome == Outcome::cancelled);
  busy.set_value();
  for (int i = 0; i < 40; ++i) stage.run_all();
  for (const Answer* answer : {&first, &other}) REQUIRE(answer->vectors().prompt_tokens > 0);
  REQUIRE(wanted.vectors().prompt_tokens > 0);
}

}  // namespace troupe::actors
