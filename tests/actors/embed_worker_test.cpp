// Requests for vectors on the deterministic scheduler: each ends exactly once, with the vectors that it would have
// alone.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/hidden_states.h"
#include "tests/actors/clients.h"
#include "tests/actors/stage.h"

namespace troupe::actors::test {
namespace {

using scheduler::Outcome;
using Texts = std::vector<std::string>;

std::shared_ptr<const engine::Encoder> tiny_encoder() {
  auto encoder = engine::Encoder::load(TROUPE_TEST_DATA "/tiny-bert.gguf", {});
  if (!encoder) FAIL(encoder.error().message);
  return *encoder;
}

std::vector<float> directly(const engine::TextVectors& vectors, const EmbedIds& ids,
                            engine::PoolingOptions pooling = {engine::Pooling::cls, true}) {
  std::vector<std::span<const TokenId>> spans(ids.begin(), ids.end());
  std::vector<float> rows(ids.size() * vectors.info().dim);
  engine::Workspace workspace;
  engine::Team team(1);
  vectors.encode(team, spans, pooling, workspace, rows.data());
  return rows;
}

template <class Inputs>
Request of(Inputs inputs, std::uint32_t uid = 1) {
  Request request;
  request.tenant.id = TenantId{uid};
  request.embed.emplace().texts = std::move(inputs);
  return request;
}

// A stage that serves an encoder. While compute.hold is set, run_one() computes one pass.
struct EncoderStage : Stage {
  explicit EncoderStage(GatewayOptions wanted = {}, FaultPoints fault_points = {})
      : Stage(std::move(wanted), std::move(fault_points)), encoder(tiny_encoder()) {
    serve(ServedModel(encoder));
    run();
    compute.hold = true;
  }
  struct Asked {
    RequestId id;
    std::shared_ptr<Listener> sink;
    const End& end() const {
      REQUIRE(sink->end_);
      return *sink->end_;
    }
    const std::vector<float>& values() const {
      INFO(end().message);
      REQUIRE(end().embeddings);
      return end().embeddings->values;
    }
  };
  Asked ask(Request request) {
    const auto sink = std::make_shared<Listener>();
    const RequestId id = submit(std::move(request), sink);
    run();
    return {id, sink};
  }
  bool run_one() {
    if (!compute.is_computing()) return false;
    compute.run_one();
    run();
    return true;
  }
  int run_all() {
    int passes = 0;
    while (run_one()) ++passes;
    return passes;
  }

  std::shared_ptr<const engine::Encoder> encoder;
};

const EmbedIds kSeveralTurns(20, std::vector<TokenId>(300, 7));  // three of them in a turn

}  // namespace

TEST_CASE("embed: texts and ids give the encoder's vectors, with the model's pooling unless another is asked for") {
  EncoderStage stage;
  const Texts texts = {"once upon a time", "cat", "the sun"};
  EmbedIds ids;
  for (const std::string& text : texts) ids.push_back(stage.encoder->tokenizer()->encode(text, {}));
  Request other = of(ids);
  other.embed->pooling = engine::Pooling::last;
  other.embed->normalise = false;
  const auto from_texts = stage.ask(of(texts));
  const auto from_ids = stage.ask(of(ids));
  const auto last = stage.ask(other);
  stage.run_all();
  CHECK(from_texts.values() == directly(*stage.encoder, ids));
  CHECK(from_texts.end().outcome == Outcome::eos);
  CHECK(from_texts.end().embeddings->dim == 64);
  CHECK(from_texts.end().embeddings->pooling == engine::Pooling::cls);
  CHECK(from_texts.end().usage.prompt_tokens == 6 + 3 + 4);
  CHECK(from_ids.values() == from_texts.values());
  CHECK(last.values() == directly(*stage.encoder, ids, {engine::Pooling::last, false}));
  CHECK(last.end().embeddings->pooling == engine::Pooling::last);
  CHECK(stage.streams.counts().prompt_tokens == 3 * 13);
}

TEST_CASE("embed: a large request takes turns with the others") {
  EncoderStage stage;
  const auto large = stage.ask(of(kSeveralTurns));
  const auto small = stage.ask(of(EmbedIds{{2, 9, 3}}));
  REQUIRE(stage.run_one());
  REQUIRE(stage.run_one());
  CHECK(small.sink->end_);
  CHECK_FALSE(large.sink->end_);
  CHECK(stage.streams.views(stage.now()).at(0).computed_tokens == 900);
  CHECK(stage.run_all() == 6);
  CHECK(large.values() == directly(*stage.encoder, kSeveralTurns));
  CHECK(large.end().usage.prompt_tokens == 6000);
}

TEST_CASE("embed: of many requests that wait one is computed at a time, and users take turns") {
  EncoderStage stage;
  std::vector<EncoderStage::Asked> greedy;
  for (int i = 0; i < 6; ++i) greedy.push_back(stage.ask(of(EmbedIds(4, std::vector<TokenId>(300, 7)), 1)));
  const auto modest = stage.ask(of(EmbedIds{{2, 9, 3}}, 2));
  REQUIRE(stage.run_one());  // three texts of four, begun before the others came
  REQUIRE(stage.run_one());  // a turn of the first user
  CHECK_FALSE(modest.sink->end_);
  REQUIRE(stage.run_one());
  CHECK(modest.sink->end_);
  CHECK_FALSE(greedy.back().sink->end_);
  stage.run_all();
  for (const auto& each : greedy) CHECK(each.end().usage.prompt_tokens == 1200);
}

TEST_CASE("embed: a cancelled request ends at once, and nothing more is computed for it") {
  EncoderStage stage;
  const auto first = stage.ask(of(kSeveralTurns));
  const auto second = stage.ask(of(EmbedIds{{2, 9, 3}}));
  REQUIRE(stage.run_one());
  stage.cancel(first.id);
  stage.run();
  CHECK(first.end().outcome == Outcome::cancelled);
  stage.cancel(second.id);  // its pass is posted
  stage.cancel(second.id);
  stage.run();
  CHECK(second.end().outcome == Outcome::cancelled);
  CHECK(stage.run_all() == 1);
  const auto next = stage.ask(of(Texts{"cat"}));
  stage.run_all();
  CHECK(next.values().size() == 64);
}

TEST_CASE("embed: a receipt has the time of each pass, and that of a failed or cancelled one is charged, too") {
  std::vector<UsageEntry> entries;
  GatewayOptions options;
  options.on_usage = [&](const UsageEntry& entry) { entries.push_back(entry); };
  int failures = 0;
  FaultPoints faults;
  faults.before_pass = [&](RequestId) {
    if (failures-- > 0) throw std::runtime_error("a test asked for it");
  };
  EncoderStage stage(options, faults);
  const auto served = [&] {
    const auto lock = stage.unit.parts().shares->lock();
    return stage.unit.parts().shares->shares().served(TenantId{1});
  };
  const auto other = stage.ask(of(EmbedIds{{2, 9, 3}}));  // keeps the tenant's counter
  failures = 1;
  REQUIRE(stage.run_one());
  const double failed = served();
  CHECK(failed > 0);
  const auto large = stage.ask(of(kSeveralTurns));
  REQUIRE(stage.run_one());
  REQUIRE(stage.run_one());
  REQUIRE(stage.compute.is_computing());
  stage.cancel(large.id);
  stage.cancel(other.id);
  stage.run();
  const std::size_t num_ended = entries.size();
  stage.run_all();
  REQUIRE(num_ended == 2);
  REQUIRE(entries.size() == 3);
  CHECK_FALSE(entries.back().outcome);
  CHECK(entries.back().usage.compute_seconds > 0);
  CHECK(other.end().usage.compute_seconds >= failed);
  CHECK(large.end().usage.computed_tokens == 900);
  CHECK(large.end().usage.tenant_share == Approx(1));
}

TEST_CASE("embed: inputs that cannot be embedded are refused by name") {
  EncoderStage stage;
  const auto refusal = [&](Request request) {
    const auto asked = stage.ask(std::move(request));
    CHECK(stage.run_all() == 0);
    return asked.end();
  };
  const End long_text = refusal(of(Texts{"cat", std::string(1000, '!'), "dog", std::string(321, '!')}));
  CHECK(long_text.outcome == Outcome::too_long);
  CHECK(long_text.field == "texts");
  CHECK(long_text.limit == 320);
  CHECK(long_text.message.find("texts[1] has 1002 tokens, texts[3] has 323 tokens; this model reads at most 320") == 0);
  const End longer = refusal(of(EmbedIds(20, std::vector<TokenId>(321, 7))));
  CHECK(longer.message.find("token_ids[15] has 321 tokens, and 4 more are too long; ") != std::string::npos);
  CHECK(refusal(of(EmbedIds{{2}, {}})).message.find("token_ids[1] has no tokens") != std::string::npos);
  CHECK(refusal(of(EmbedIds{{2, -1}})).message.find("token_ids[0][1] is -1") != std::string::npos);
  CHECK(refusal(of(EmbedIds{{228}})).outcome == Outcome::invalid_argument);
  CHECK(refusal(of(EmbedIds{std::vector<TokenId>(321, 7)})).outcome == Outcome::too_long);
  CHECK(refusal(of(EmbedIds{})).field == "texts");
  const End many = refusal(of(Texts(kMaxEmbedInputs + 1, "cat")));
  CHECK(many.outcome == Outcome::invalid_argument);
  CHECK(many.limit == kMaxEmbedInputs);
  Request bare = of(Texts{""});
  bare.add_special = false;
  CHECK(refusal(bare).message.find("texts[0] has no tokens") != std::string::npos);
  Request elsewhere = of(Texts{"cat"});
  elsewhere.model = "dog";
  CHECK(refusal(elsewhere).outcome == Outcome::unknown_model);
  const End generated = refusal(request_for({.id = 0, .sink = {}, .prompt = {1, 2}, .drawn = false, .max_tokens = 4}));
  CHECK(generated.outcome == Outcome::unsupported);
  CHECK(generated.message.find("encoder") != std::string::npos);
}

TEST_CASE("embed: an input that is too long is cut at its end where that is asked for, and usage says by how much") {
  EncoderStage stage;
  const auto ask = [&](Request request, std::uint32_t most = scheduler::kUnlimitedTokens) {
    request.embed->truncate = true;
    request.embed->most_tokens = most;
    auto asked = stage.ask(std::move(request));
    stage.run_all();
    return asked;
  };
  const auto cut_to = [](std::vector<TokenId> ids, std::size_t most, TokenId last) {
    ids.resize(most);
    ids.back() = last;
    return ids;
  };
  const std::string text(1000, '!');
  const std::vector<TokenId> ids = stage.encoder->tokenizer()->encode(text, {});
  REQUIRE(ids.size() == 1002);
  // A text keeps the token that ends it.
  const auto of_texts = ask(of(Texts{"cat", text}));
  const std::vector<TokenId> cat = stage.encoder->tokenizer()->encode("cat", {});
  CHECK(of_texts.values() == directly(*stage.encoder, {cat, cut_to(ids, 320, ids.back())}));
  CHECK(of_texts.end().usage.prompt_tokens == cat.size() + 320);
  CHECK(of_texts.end().usage.truncated_tokens == 682);
  const auto shorter = ask(of(Texts{text}), 10);
  CHECK(shorter.values() == directly(*stage.encoder, {cut_to(ids, 10, ids.back())}));
  CHECK(shorter.end().usage.truncated_tokens == 992);
  // Ids are the caller's own.
  const auto of_ids = ask(of(EmbedIds{ids}));
  CHECK(of_ids.values() == directly(*stage.encoder, {cut_to(ids, 320, ids[319])}));
  CHECK(of_ids.end().usage.truncated_tokens == 682);
  // A tenant's own limit counts, too.
  Request limited = of(Texts{text});
  limited.tenant.policy = std::make_shared<const scheduler::TenantPolicy>(
      scheduler::TenantPolicy{.name = {}, .limits = {.max_context = 100}});
  CHECK(ask(std::move(limited)).end().usage.prompt_tokens == 100);
  CHECK(ask(of(Texts{"cat"})).end().usage.truncated_tokens == 0);
  Request refused = of(Texts{text});
  refused.embed->truncate = false;
  auto asked = stage.ask(std::move(refused));
  stage.run_all();
  CHECK(asked.end().outcome == Outcome::too_long);
}

TEST_CASE("embed: a request waits until the model is loaded, and is computed then") {
  Stage stage;
  const auto sink = std::make_shared<Listener>();
  stage.submit(of(EmbedIds{{2, 9, 3}}), sink);
  stage.run();
  CHECK_FALSE(sink->end_);
  const auto encoder = tiny_encoder();
  stage.serve(ServedModel(encoder));
  stage.run();
  REQUIRE(sink->end_);
  CHECK(sink->end_->embeddings->values == directly(*encoder, {{2, 9, 3}}));
}

TEST_CASE("embed: requests for vectors and for answers share queue and quota, and an end makes room at once") {
  GatewayOptions options;
  options.max_queued_requests = 3;
  options.max_requests_per_user = 2;
  EncoderStage stage(options);
  const auto ask = [&](std::uint32_t uid) {
    Request request = of(EmbedIds{{7}}, uid);
    request.tenant.is_owner = true;
    return stage.ask(request);
  };
  const auto running = ask(1);
  const auto second = ask(1);
  const auto over = ask(1);
  CHECK(over.end().outcome == Outcome::quota);
  CHECK(over.end().field == "max_requests_per_user");
  Request answer = request_for({.id = 0, .sink = {}, .prompt = {1, 2}, .drawn = false, .max_tokens = 4});
  answer.tenant.id = TenantId{1};
  CHECK(stage.ask(answer).end().outcome == Outcome::unsupported);
  const auto third = ask(2);
  const auto fourth = ask(2);
  const auto full = ask(3);
  CHECK(full.end().outcome == Outcome::queue_full);
  CHECK(full.end().field == "max_queued_requests");
  REQUIRE(stage.run_one());
  CHECK(running.end().outcome == Outcome::eos);
  const auto again = ask(1);
  stage.run_all();
  for (const auto* each : {&second, &third, &fourth, &again}) CHECK(each->values().size() == 64);
}

TEST_CASE("embed: texts and vectors of open requests take no more than max_embed_bytes") {
  GatewayOptions options;
  options.max_embed_bytes = 8192;
  EncoderStage stage(options);
  const std::uint64_t idle = stage.streams.counts().bytes;
  const auto large = stage.ask(of(EmbedIds(40, {2, 9})));  // more than there is room for, but alone
  CHECK(stage.streams.counts().bytes - idle >= 40 * 2 * sizeof(TokenId));
  const auto second = stage.ask(of(Texts{"cat"}));
  CHECK(second.end().outcome == Outcome::quota);  // also the server's limit is reached, which is not told
  CHECK(second.end().field == "max_embed_bytes");
  CHECK(second.end().limit == 2048);
  CHECK(second.end().retry_after);
  stage.run_all();
  CHECK(large.values().size() == 40 * 64);
  const auto third = stage.ask(of(EmbedIds(4, std::vector<TokenId>(300, 7))));
  const std::uint64_t before = stage.streams.counts().bytes;
  REQUIRE(stage.run_one());
  CHECK(stage.streams.counts().bytes - before == 3 * 64 * sizeof(float));
  CHECK(stage.counters.step_buffer_bytes() > 0);
  stage.run_all();
  CHECK(third.values().size() == 4 * 64);
  CHECK(stage.streams.counts().bytes == idle);
}

TEST_CASE("embed: a drain lets requests finish, and ends those that are live at its timeout") {
  EncoderStage stage;
  const auto finishing = stage.ask(of(EmbedIds{{7}}));
  stage.unit.drain(std::chrono::hours(1));
  stage.run();
  CHECK(stage.ask(of(EmbedIds{{7}})).end().outcome == Outcome::draining);
  int empty = 0;
  stage.streams.when_empty([&] { ++empty; });
  CHECK(empty == 0);
  stage.run_all();
  CHECK(finishing.values().size() == 64);
  CHECK(empty == 1);

  EncoderStage other;
  const auto cut = other.ask(of(EmbedIds{{7}}));
  other.unit.drain(std::chrono::seconds(1));
  other.run_with_time();
  CHECK(cut.end().outcome == Outcome::cancelled);
}

TEST_CASE("embed: a language model reads a long text in passes of at most a step's tokens") {
  const auto model = load_model(8);
  const engine::HiddenStates states(model);
  const EmbedIds inputs = {std::vector<TokenId>(600, 7), {5, 6}};
  for (const std::uint32_t step : {512u, 100u}) {
    GatewayOptions options;
    options.max_step_tokens = step;
    Stage stage(options);
    stage.serve(model);
    stage.run();
    stage.compute.hold = true;
    const auto sink = std::make_shared<Listener>(), gone = std::make_shared<Listener>();
    stage.submit(of(inputs), sink);
    stage.run();
    int passes = 0;
    for (; stage.compute.is_computing(); ++passes) {
      stage.compute.run_one();
      stage.run();
    }
    CHECK(passes == (step == 512 ? 2 : 7));
    REQUIRE(sink->end_);
    CHECK(sink->end_->embeddings->values == directly(states, inputs, {engine::Pooling::last, true}));
    const RequestId id = stage.submit(of(EmbedIds{std::vector<TokenId>(600, 7)}), gone);
    stage.run();
    stage.compute.run_one();
    stage.run();
    CHECK(stage.counters.step_buffer_bytes() > 19 * model->arena()->bytes_per_block());  // its blocks, meanwhile
    stage.cancel(id);                                                                    // in the middle of the text
    stage.run();
    CHECK(gone->end_->outcome == Outcome::cancelled);
    stage.compute.run_one();
    stage.run();
    CHECK_FALSE(stage.compute.is_computing());
  }
}

TEST_CASE("embed: a request that waits while no pass ends counts as a stall") {
  EncoderStage stage;
  const auto later = [&](int seconds) { return stage.now() + std::chrono::seconds(seconds); };
  const auto still = [&](int seconds) { return stage.unit.parts().without_progress(later(seconds)); };
  CHECK(still(100).count() == 0);
  stage.ask(of(kSeveralTurns));
  CHECK(still(100) > std::chrono::seconds(99));
  stage.scheduler().clock().advance_time(std::chrono::seconds(50));
  CHECK(still(0) > std::chrono::seconds(49));
  REQUIRE(stage.run_one());
  CHECK(still(0).count() == 0);
  stage.run_all();
  CHECK(still(100).count() == 0);
}

TEST_CASE("embed: a worker that dies at any point costs no vector") {
  const EmbedIds inputs(7, std::vector<TokenId>(300, 7));  // three turns
  const std::vector<float> expected = directly(*tiny_encoder(), inputs);
  for (const Role role : {Role::embedder, Role::intake, Role::tokenizer}) {
    for (std::size_t when = 0; when < 24; when += kThinning) {
      INFO("role " << static_cast<int>(role) << " after " << when << " events");
      EncoderStage stage;
      stage.compute.hold = false;
      const Texts texts(10, "once upon a time the sun and the cat");
      const auto first = std::make_shared<Listener>(), second = std::make_shared<Listener>();
      stage.submit(of(texts), first);
      stage.submit(of(inputs, 2), second);
      stage.scheduler().run(when);
      caf::anon_send(stage.supervisor(), msg::Crash{role});
      stage.run_with_time();
      REQUIRE(first->end_);
      REQUIRE(second->end_);
      CHECK(first->end_->outcome == Outcome::eos);
      CHECK(second->end_->embeddings->values == expected);
      CHECK(stage.streams.live().empty());
    }
  }
}

TEST_CASE("embed: a pass that throws is repeated once; a request whose passes always throw is ended, alone") {
  int throws = 1;
  RequestId bad = 0;
  EncoderStage stage({}, {.before_step = {},
                          .before_pass =
                              [&](RequestId request) {
                                if (request == bad || (bad == 0 && throws-- > 0)) throw std::runtime_error("torn");
                              },
                          .before_encode = {},
                          .before_row = {}});
  const auto once = stage.ask(of(EmbedIds{{2, 9, 3}}));
  CHECK(stage.run_all() == 2);
  CHECK(once.values() == directly(*stage.encoder, {{2, 9, 3}}));
  bad = once.id + 1;
  const auto always = stage.ask(of(kSeveralTurns));
  const auto beside = stage.ask(of(EmbedIds{{7}}));
  stage.run_all();
  CHECK(always.end().outcome == Outcome::quarantined);
  CHECK(always.end().message.find("torn") != std::string::npos);
  CHECK(beside.values().size() == 64);
}

}  // namespace troupe::actors::test
