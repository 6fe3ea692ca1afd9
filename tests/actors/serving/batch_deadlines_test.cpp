// Promises of deadlines: a Batch with a cost model that is data, a keeper that answers what the test says.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "actors/batching/batch.h"

using namespace troupe;
using namespace troupe::actors;
using namespace std::chrono_literals;
using scheduler::Outcome;

namespace {

struct Sink : StreamSink {
  void tokens(TokenRun) override {}
  void end(End end) override { ends.push_back(std::move(end)); }
  std::vector<End> ends;
};

// A machine on which a step takes 50 ms and 10 ms for each token.
class OneBatch {
 public:
  OneBatch() : experience(std::make_shared<scheduler::Experience>()) {
    for (int i = 0; i < 40; ++i)
      for (const std::uint32_t tokens : {1, 4, 16, 32, 128, 512}) {
        scheduler::StepLoad load;
        for (std::uint32_t row = 0; row < tokens; ++row) load.add_row(10, 1, false);
        experience->costs.learn(load, 0.05 + 0.01 * tokens);
      }
    restart();
  }
  ~OneBatch() {
    batch->forget_all();
    streams.end_all(End{}, End{}, now);
  }

  void restart() {
    if (batch) batch->forget_all();
    BatchOptions options;
    options.epoch = ++epoch;
    options.capacity = {.context = 4096, .groups = {{.num_blocks = 256}}};
    options.experience = experience;
    batch.emplace(options, streams, shares);
  }
  static Request request(std::optional<std::uint32_t> max_tokens, std::optional<std::chrono::milliseconds> deadline) {
    Request request;
    request.credit = 1000;
    if (max_tokens) request.sampling.max_tokens = *max_tokens;
    request.deadline = deadline;
    return request;
  }
  RequestId submit(Request request, std::size_t prompt_tokens = 100) {
    const RequestId id = streams.add(std::move(request), sink, now);
    CHECK_FALSE(streams.admit(id, now));
    for (const auto& task : streams.assign(id, std::vector<TokenId>(prompt_tokens, 5))) batch->enqueue(task, now);
    return id;
  }
  // Answers what the batch asks of caches; returns the requests that it asked about.
  std::vector<RequestId> answer(std::uint32_t num_cached = 0) {
    std::vector<RequestId> asked;
    LeaseReply reply;
    for (const scheduler::LeaseMessage& message : batch->take_leases()) {
      const auto* predict = std::get_if<scheduler::Predict>(&message);
      if (!predict) continue;
      asked.push_back(predict->request);
      reply.predictions.push_back({predict->request, num_cached});
    }
    batch->keeper_replied(reply, now);
    streams.tell(batch->take_news());
    return asked;
  }

  std::shared_ptr<scheduler::Experience> experience;
  StreamTable streams{{}};
  scheduler::FairShares shares;
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  std::optional<Batch> batch;
  std::uint64_t epoch = 0;
  TimePoint now{1000s};
};

}  // namespace

// Alone its prompt of 100 tokens takes about 1.05 s, and each further token 60 ms: 50 are there after about 4 s.
TEST_CASE("deadlines: what cannot be met is refused at once, with the prediction") {
  OneBatch test;
  const RequestId id = test.submit(OneBatch::request(50, 2000ms));
  CHECK(test.sink->ends.empty());
  CHECK(test.answer() == std::vector<RequestId>{id});
  REQUIRE(test.sink->ends.size() == 1);
  const End& end = test.sink->ends[0];
  CHECK(end.outcome == Outcome::deadline_unmeetable);
  CHECK(end.field == "deadline_ms");
  CHECK(end.limit == 2000u);
  CHECK_FALSE(end.retry_after);  // it cannot be met at any time
  REQUIRE(end.predicted_first);
  CHECK(std::abs((*end.predicted_first - 1050ms).count()) < 200);
  CHECK(std::abs((*end.predicted_last - 3990ms).count()) < 500);
  CHECK_THAT(end.message, Catch::Contains("the first token is expected in 1") && Catch::Contains("max_tokens"));
  CHECK(test.batch->num_requests() == 0);
  CHECK(test.experience->promised == 0);
}

TEST_CASE("deadlines: the last token counts with max_tokens, else the first; cached tokens take no time") {
  OneBatch test;
  test.submit(OneBatch::request(std::nullopt, 2000ms));
  test.answer();
  CHECK(test.sink->ends.empty());
  test.batch->forget_all();
  test.submit(OneBatch::request(std::nullopt, 700ms));
  test.answer();
  CHECK(test.sink->ends.size() == 1);
  test.submit(OneBatch::request(std::nullopt, 700ms));
  test.answer(96);
  CHECK(test.sink->ends.size() == 1);
  CHECK(test.experience->promised == 2);
}

TEST_CASE("deadlines: requests that wait before it make it late, and a time to retry is given") {
  OneBatch test;
  for (int i = 0; i < 64; ++i) test.submit(OneBatch::request(400, std::nullopt), 500);
  test.batch->decide(test.now);
  test.answer();
  CHECK(test.sink->ends.empty());
  test.submit(OneBatch::request(50, 6000ms));
  test.answer();
  REQUIRE(test.sink->ends.size() == 1);
  CHECK(test.sink->ends[0].outcome == Outcome::deadline_unmeetable);
  CHECK(test.sink->ends[0].retry_after > 1000ms);
}

// One answer of 50 tokens takes 4 s, and a second beside it takes both to about 5 s.
TEST_CASE("deadlines: a request that is refused after another is not told to come back before it") {
  OneBatch test;
  const auto ask = [&](TokenId prompt) {
    const std::size_t before = test.sink->ends.size();
    Request request = OneBatch::request(50, 5500ms);
    request.prompt = std::vector<TokenId>(100, prompt);
    const RequestId id = test.streams.add(std::move(request), test.sink, test.now);
    CHECK_FALSE(test.streams.admit(id, test.now));
    for (const auto& task : test.streams.assign(id, std::vector<TokenId>(100, prompt)))
      test.batch->enqueue(task, test.now);
    test.answer();
    return test.sink->ends.size() == before ? std::optional<std::chrono::milliseconds>()
                                            : test.sink->ends.back().retry_after;
  };
  CHECK_FALSE(ask(1));
  const auto first = ask(2), second = ask(3);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(test.experience->bookings.size() == 2);
  CHECK(*second >= *first);  // not before the one that was told before it
}

TEST_CASE("deadlines: a request is not promised what would break a promise") {
  OneBatch test;
  test.submit(OneBatch::request(100, 9500ms));  // alone it takes some 7 s
  test.answer();
  CHECK(test.experience->promised == 1);
  // On its own this one would be in time: its prompt alone takes 5 s of the other's.
  test.submit(OneBatch::request(2, 60'000ms), 500);
  test.answer();
  REQUIRE(test.sink->ends.size() == 1);
  CHECK(test.sink->ends[0].retry_after);
  CHECK_THAT(test.sink->ends[0].message, Catch::Contains("promised already"));
}

TEST_CASE("deadlines: what one tenant was promised beyond its share does not have another's request refused") {
  OneBatch test;
  test.submit(OneBatch::request(100, 9500ms));  // alone it takes some 7 s: more than half of the time until then
  test.answer();
  Request request = OneBatch::request(2, 60'000ms);
  request.tenant.id = TenantId{7};
  test.submit(std::move(request), 500);
  test.answer();
  CHECK(test.sink->ends.empty());
  CHECK(test.experience->promised == 2);
}

TEST_CASE("deadlines: all choices are refused together") {
  OneBatch test;
  Request request = OneBatch::request(50, 2000ms);
  request.num_choices = 3;
  test.submit(request);
  CHECK(test.answer().size() == 1);
  REQUIRE(test.sink->ends.size() == 3);
  for (const End& end : test.sink->ends) CHECK(end.outcome == Outcome::deadline_unmeetable);
  CHECK(test.batch->num_requests() == 0);
}

TEST_CASE("deadlines: what was promised is not refused by the next batch, what was not decided is decided by it") {
  OneBatch test;
  const RequestId promised = test.submit(OneBatch::request(50, 10'000ms));
  test.answer();
  CHECK(test.experience->promised == 1);
  const RequestId undecided = test.submit(OneBatch::request(50, 10'000ms));
  test.now += 9s;
  test.restart();
  for (const auto& task : test.streams.resume(0, WorkKind::generate)) test.batch->enqueue(task, test.now);
  CHECK(test.answer() == std::vector<RequestId>{undecided});
  CHECK(test.streams.state(promised) == RequestState::queued);
  CHECK(test.streams.state(undecided) == RequestState::ended);
}

TEST_CASE("deadlines: a promise that was missed raises the margin, a cancel does not count") {
  OneBatch test;
  const RequestId late = test.submit(OneBatch::request(50, 10'000ms));
  test.answer();
  const double before = test.experience->last_margins.factor(TenantId{}, 0);
  test.now += 10s;
  test.batch->forget(late, test.now);
  CHECK(test.experience->missed == 1);
  CHECK(test.experience->last_margins.factor(TenantId{}, 0) > before);
  const RequestId cancelled = test.submit(OneBatch::request(50, 10'000ms));
  test.answer();
  test.batch->forget(cancelled, test.now);
  CHECK(test.experience->missed == 1);
  CHECK(test.experience->promised == 2);
}

TEST_CASE("deadlines: nothing is refused before anything is known of steps") {
  OneBatch test;
  *test.experience = {};
  test.submit(OneBatch::request(4000, 1ms));
  CHECK(test.answer().empty());
  CHECK(test.sink->ends.empty());
}
