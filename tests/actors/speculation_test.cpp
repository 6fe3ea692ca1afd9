// Answers with drafts equal those without, token for token, whatever happens meanwhile.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <tuple>

#include "tests/actors/clients.h"
#include "tests/engine/drafting/other_vocabulary.h"

namespace troupe::actors {
namespace {

using namespace test;
using engine::DraftSource;
using scheduler::Outcome;

constexpr DraftSource kOwnText[] = {DraftSource::ngram, DraftSource::suffix, DraftSource::automatic};

// All proposals are verified, so many of them are wrong.
GatewayOptions with(DraftSource source) {
  GatewayOptions options;
  options.speculation.source = source;
  options.verify_all_drafts = true;
  return options;
}

void run_one(Stage& stage) {
  if (stage.scheduler().run(1) == 0) stage.scheduler().advance_time(std::chrono::milliseconds(100));
}

// Sees all choices of one request.
struct Choices : StreamSink {
  explicit Choices(std::size_t count) : each(count) {}
  void tokens(TokenRun run) override { each.at(run.choice).tokens(std::move(run)); }
  void end(End end) override { each.at(end.choice).end(std::move(end)); }
  std::vector<Listener> each;
};

Request story(double temperature, std::uint32_t max_tokens) {
  Request request;
  request.tenant.is_owner = true;
  request.prompt = std::string("Once upon a time there was a little dog. The little dog liked to play. The little");
  request.sampling.temperature = static_cast<float>(temperature);
  request.sampling.seed = 5;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.credit = ~std::uint64_t{0};
  return request;
}

TEST_CASE("speculation: drafts of the own text change no token, greedy or seeded, and are on the receipt") {
  const auto model = load_model(64);
  for (const double temperature : {0.0, 0.8}) {
    Stage plain;
    plain.serve(model);
    const auto expected = ask(plain, story(temperature, 200));
    CHECK(expected->end_->usage.drafted_tokens == 0);
    for (const DraftSource source : kOwnText) {
      INFO(name_of(source) << " at temperature " << temperature);
      Stage stage(with(source));
      stage.serve(model);
      const auto sink = ask(stage, story(temperature, 200));
      CHECK(sink->ids == expected->ids);
      CHECK(sink->text == expected->text);
      const Usage& usage = sink->end_->usage;
      CHECK(usage.completion_tokens == 200);
      CHECK(usage.drafted_tokens > 10);
      CHECK(usage.accepted_tokens > 0);
      CHECK(usage.accepted_tokens < usage.drafted_tokens);
      CHECK(stage.counters.num_ended() == plain.counters.num_ended() - usage.accepted_tokens);
      MetricList metrics;
      stage.counters.append_drafts(metrics, "tales");
      const std::string of(name_of(source == DraftSource::automatic ? DraftSource::suffix : source));
      CHECK(metrics.value("spec_decode_num_draft_tokens_" + of) == usage.drafted_tokens);
      CHECK(metrics.value("spec_decode_num_accepted_tokens_" + of) == usage.accepted_tokens);
      CHECK(metrics.value("spec_decode_num_drafts_" + of) > 1);
      check_all_came_back(stage);
    }
  }
}

TEST_CASE(
    "speculation: the same question again is drafted from the answer that its tenant had, and no other tenant's") {
  const auto model = load_model(64);
  const auto ask_as = [](Stage& stage, std::uint64_t tenant, std::string scope, std::string question) {
    Request request = story(0.8, 60);
    request.tenant.id = TenantId{tenant};
    request.cache_scope = std::move(scope);
    request.prompt = std::move(question);
    return ask(stage, std::move(request));
  };
  const std::string question = "The cat and the bird";
  Stage plain;
  plain.serve(model);
  const auto expected = ask_as(plain, 1, "", question);
  for (const DraftSource source : {DraftSource::suffix, DraftSource::automatic}) {
    Stage stage(with(source));
    stage.serve(model);
    const auto drafted = [&](std::uint64_t tenant, const std::string& scope) {
      const auto answer = ask_as(stage, tenant, scope, question);
      CHECK(answer->ids == expected->ids);
      return answer->end_->usage;
    };
    const Usage first = drafted(1, ""), other = drafted(2, ""), in_scope = drafted(1, "notes"), again = drafted(1, "");
    CHECK(other.accepted_tokens == first.accepted_tokens);
    CHECK(in_scope.accepted_tokens == first.accepted_tokens);
    CHECK(again.accepted_tokens > 40);
    CHECK(again.accepted_tokens > first.accepted_tokens + 20);
  }
  // A sequence's own text only.
  Stage stage(with(DraftSource::ngram));
  stage.serve(model);
  const auto first = ask_as(stage, 1, "", question), again = ask_as(stage, 1, "", question);
  CHECK(again->end_->usage.accepted_tokens == first->end_->usage.accepted_tokens);
}

TEST_CASE("speculation: a request chooses for itself, within the server's longest draft") {
  const auto model = load_model(64);
  Stage stage(with(DraftSource::ngram));
  stage.serve(model);
  Request off = story(0, 60);
  off.speculation.source = DraftSource::off;
  CHECK(ask(stage, off)->end_->usage.drafted_tokens == 0);
  Request none = story(0, 60);
  none.speculation.n_max = 0;
  CHECK(ask(stage, none)->end_->usage.drafted_tokens == 0);
  CHECK(ask(stage, story(0, 60))->end_->usage.drafted_tokens > 0);
  Request too_long = story(0, 60);
  too_long.speculation.n_max = 17;
  const auto refused = ask(stage, too_long);
  CHECK(refused->end_->outcome == Outcome::invalid_argument);
  CHECK(refused->end_->field == "speculation.n_max");
  Request model_drafts = story(0, 60);
  model_drafts.speculation.source = DraftSource::draft;
  CHECK(ask(stage, model_drafts)->end_->outcome == Outcome::unsupported);
}

TEST_CASE("speculation: an answer ends at the same stop string, and nothing after it is sent, counted or cached") {
  const auto model = load_model(64);
  Stage plain;
  plain.serve(load_model(64));  // each has blocks of its own
  const std::string whole = ask(plain, story(0, 200))->text;
  std::size_t num_cut = 0;
  for (std::size_t at = 20; at + 8 < whole.size(); at += 37) {
    Request request = story(0, 200);
    request.stop_strings = {whole.substr(at, 6)};
    const auto expected = ask(plain, request);
    Stage stage(with(DraftSource::suffix));
    stage.serve(model);
    const auto sink = ask(stage, request);
    CHECK(sink->ids == expected->ids);
    CHECK(sink->text == expected->text);
    CHECK(sink->end_->outcome == Outcome::stop_string);
    CHECK(sink->end_->usage.completion_tokens == expected->end_->usage.completion_tokens);
    num_cut += sink->end_->usage.accepted_tokens;
    check_all_came_back(stage);
    // What it left in the cache is right.
    Request next = request;
    std::vector<TokenId> prompt(sink->ids);
    prompt.insert(prompt.begin(), 1);
    next.prompt = prompt;
    next.stop_strings.clear();
    CHECK(ask(stage, next)->ids == ask(plain, next)->ids);
  }
  CHECK(num_cut > 0);
}

TEST_CASE("speculation: several answers to one prompt are those without drafts") {
  const auto model = load_model(64);
  std::vector<std::vector<TokenId>> expected;
  for (const DraftSource source : {DraftSource::off, DraftSource::ngram, DraftSource::suffix}) {
    Stage stage(with(source));
    stage.serve(model);
    auto sink = std::make_shared<Choices>(4);
    Request request = story(0.7, 100);
    request.num_choices = 4;
    const RequestId id = stage.streams.add(std::move(request), sink, stage.now());
    REQUIRE_FALSE(stage.streams.take_queue_room(id, stage.now()));
    stage.unit.submit(id);
    stage.run_with_time();
    for (std::size_t i = 0; i < 4; ++i) {
      if (source == DraftSource::off) expected.push_back(sink->each[i].ids);
      CHECK(sink->each[i].ids == expected[i]);
    }
    check_all_came_back(stage);
  }
  CHECK(expected[0] != expected[1]);
}

TEST_CASE("speculation: a client gets no token beyond its credit") {
  const auto model = load_model(64);
  Stage stage(with(DraftSource::suffix));
  stage.serve(model);
  Request request = story(0, 150);
  request.credit = 3;
  const auto sink = std::make_shared<Listener>();
  const RequestId id = stage.submit(std::move(request), sink);
  std::size_t granted = 3;
  while (!sink->end_) {
    stage.run();
    REQUIRE(sink->ids.size() <= granted);
    if (!sink->end_) REQUIRE(sink->ids.size() == granted);
    stage.credit(id, 7);
    granted += 7;
  }
  Stage plain;
  plain.serve(model);
  CHECK(sink->ids == ask(plain, story(0, 150))->ids);
}

TEST_CASE("speculation: killed actors and broken steps cost no token") {
  const auto model = load_model(64);
  Stage plain;
  plain.serve(model);
  const auto expected = ask(plain, story(0.5, 160))->ids;
  for (const Role role : {Role::batcher, Role::worker, Role::keeper}) {
    Stage stage(with(DraftSource::suffix));
    stage.serve(model);
    const auto sink = std::make_shared<Listener>();
    stage.submit(story(0.5, 160), sink);
    for (int kill = 0; kill < 3; ++kill) {
      const std::size_t before = sink->ids.size();
      while (!sink->end_ && sink->ids.size() < before + 25) run_one(stage);
      caf::anon_send(stage.supervisor(), msg::Crash{role});
      stage.scheduler().run(40);
      stage.scheduler().advance_time(std::chrono::milliseconds(2000));
    }
    stage.run_with_time();
    CHECK(sink->ids == expected);
    check_all_came_back(stage);
  }
  int num_steps = 0;
  FaultPoints faults;
  faults.before_step = [&](const engine::StepBatch& batch) {
    const bool drafts = std::ranges::any_of(batch.items, [](const auto& item) { return !item.draft.empty(); });
    if (drafts && ++num_steps % 5 == 2) throw std::runtime_error("a test asked for it");
  };
  Stage stage(with(DraftSource::suffix), faults);
  stage.serve(model);
  CHECK(ask(stage, story(0.5, 160))->ids == expected);
  CHECK(num_steps > 5);
}

TEST_CASE("speculation: sequences that preempt each other get the answers they get alone") {
  Reference reference(load_model(256));
  for (const DraftSource source : {DraftSource::ngram, DraftSource::suffix}) {
    Stage stage(with(source));
    stage.serve(load_model(8));
    std::vector<Client> clients;
    for (TokenId salt = 0; salt < 4; ++salt) {
      clients.push_back(client_with(30, salt, kLongest));
      clients.back().drawn = salt % 2 == 1;
    }
    for (Client& client : clients) client.id = stage.submit(request_for(client), client.sink);
    stage.run_with_time();
    for (const Client& client : clients) check_answer(client, reference);
    CHECK(stage.streams.counts().preemptions > 0);
    check_all_came_back(stage);
  }
}

TEST_CASE("speculation: models with windows and with recurrent state give the same answers") {
  for (const char* name : kOtherModels) {
    INFO(name);
    const auto model = load_golden(name, 64);
    if (!model) return;
    std::map<std::string, std::vector<std::vector<TokenId>>> answers;
    for (const DraftSource source : {DraftSource::off, DraftSource::ngram, DraftSource::suffix}) {
      Stage stage(with(source));
      stage.serve(model);
      std::uint64_t num_drafted = 0;
      std::vector<Client> clients;
      for (TokenId salt = 0; salt < 3; ++salt) {
        clients.push_back(client_with(50, salt, 150));
        clients.back().drawn = salt == 1;
      }
      for (Client& client : clients) {
        Request request = request_for(client);
        request.sampling.logit_bias = {{10, 60.f}, {11, 60.f}, {12, 60.f}};  // a text of three words repeats itself
        client.id = stage.submit(std::move(request), client.sink);
      }
      stage.run_with_time();
      for (const Client& client : clients) {
        answers[name].push_back(client.sink->ids);
        num_drafted += client.sink->end_->usage.drafted_tokens;
      }
      CHECK((num_drafted > 0) == (source != DraftSource::off));
      check_all_came_back(stage);
    }
    const auto& all = answers[name];
    for (std::size_t i = 3; i < all.size(); ++i) CHECK(all[i] == all[i % 3]);
  }
}

std::shared_ptr<engine::LoadedModel> load_draft(std::uint32_t num_blocks) {
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  return load_model(std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf", options);
}

ServedModel with_draft(std::uint32_t num_blocks, std::uint32_t num_draft_blocks) {
  ServedModel served(load_model(num_blocks));
  const auto fits = served.set_draft_model(load_draft(num_draft_blocks));
  if (!fits) FAIL(fits.error().message);
  return served;
}

Request tale(double temperature, std::uint32_t max_tokens) {
  Request request = story(temperature, max_tokens);
  request.prompt = std::string("Once upon a time");
  return request;
}

TEST_CASE("speculation: a draft model changes no token, and most of its tokens are accepted") {
  for (const double temperature : {0.0, 0.8}) {
    Stage plain;
    plain.serve(load_model(64));
    const auto expected = ask(plain, tale(temperature, 200));
    for (const DraftSource source : {DraftSource::draft, DraftSource::automatic}) {
      INFO(name_of(source) << " at temperature " << temperature);
      GatewayOptions options = with(source);
      options.speculation.n_max = 3;
      Stage stage(options);
      stage.serve(with_draft(64, 64));
      const auto sink = ask(stage, tale(temperature, 200));
      CHECK(sink->ids == expected->ids);
      const Usage& usage = sink->end_->usage;
      CHECK(usage.drafted_tokens > 50);
      CHECK(static_cast<double>(usage.accepted_tokens) > 0.3 * static_cast<double>(usage.drafted_tokens));
      MetricList metrics;
      stage.counters.append_drafts(metrics, "tales");
      CHECK(metrics.value("spec_decode_num_accepted_tokens_draft") == usage.accepted_tokens);
      check_all_came_back(stage);
    }
  }
}

TEST_CASE("speculation: a draft model of any family changes no token of any other") {
  const auto golden = [](const std::string& name) {
    engine::LoadOptions options;
    options.num_blocks = 48;
    options.num_snapshots = 16;
    options.snapshot_every = 64;
    options.max_sequences = 8;
    return load_model(std::string(TROUPE_TEST_DATA) + "/golden/" + name + ".gguf", options);
  };
  const auto request = [](std::uint32_t length, double temperature) {
    Request of = story(temperature, 70);
    std::vector<TokenId> prompt;
    while (prompt.size() < length) prompt.push_back(static_cast<TokenId>(prompt.size() * 7 % 50));
    of.prompt = std::move(prompt);
    return of;
  };
  for (const char* target : {"llama", "rwkv7", "gemma2"}) {
    Stage plain;
    plain.serve(ServedModel(golden(target)));
    const auto first = ask(plain, request(40, 0))->ids, second = ask(plain, request(75, 0.8))->ids;
    for (const char* draft : {"mamba", "gemma3", "falcon-h1", "qwen2"}) {
      INFO(draft << " drafts for " << target);
      ServedModel served(golden(target));
      if (const auto fits = served.set_draft_model(golden(draft)); !fits) FAIL(fits.error().message);
      Stage stage(with(DraftSource::draft));
      stage.serve(std::move(served));
      const auto a = std::make_shared<Listener>(), b = std::make_shared<Listener>();
      stage.submit(request(40, 0), a);
      stage.submit(request(75, 0.8), b);
      stage.run_with_time();
      REQUIRE(a->end_);
      REQUIRE(b->end_);
      CHECK(a->ids == first);
      CHECK(b->ids == second);
      CHECK(a->end_->usage.drafted_tokens > 0);
      check_all_came_back(stage);
    }
  }
}

TEST_CASE("speculation: a draft model with another vocabulary changes no token, and many of its tokens are accepted") {
  const auto file = engine::open_gguf(std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf");
  if (!file) FAIL(file.error().message);
  const troupe::test::TemporaryFile changed(troupe::test::with_other_vocabulary(**file, 8));
  for (const double temperature : {0.0, 0.8}) {
    INFO("temperature " << temperature);
    Stage plain;
    plain.serve(load_model(64));
    const auto expected = ask(plain, tale(temperature, 200));
    ServedModel served(load_model(64));
    engine::LoadOptions options;
    options.num_blocks = 64;
    const auto how = served.set_draft_model(load_model(changed.path(), options));
    if (!how) FAIL(how.error().message);
    CHECK(*how == engine::Drafting::by_text);
    GatewayOptions by_draft = with(DraftSource::draft);
    by_draft.speculation.n_max = 3;
    Stage stage(by_draft);
    stage.serve(std::move(served));
    const auto sink = ask(stage, tale(temperature, 200));
    CHECK(sink->ids == expected->ids);
    CHECK(sink->text == expected->text);
    const Usage& usage = sink->end_->usage;
    CHECK(usage.drafted_tokens > 50);
    CHECK(static_cast<double>(usage.accepted_tokens) > 0.2 * static_cast<double>(usage.drafted_tokens));
    check_all_came_back(stage);
  }
}

TEST_CASE("speculation: while the draft worker is dead, or its job breaks, steps go on without its drafts") {
  Stage plain;
  plain.serve(load_model(64));
  const auto expected = ask(plain, tale(0.5, 160))->ids;
  Stage stage(with(DraftSource::draft));
  stage.serve(with_draft(64, 64));
  const auto sink = std::make_shared<Listener>();
  stage.submit(tale(0.5, 160), sink);
  for (int kill = 0; kill < 3; ++kill) {
    const std::size_t before = sink->ids.size();
    while (!sink->end_ && sink->ids.size() < before + 20) run_one(stage);
    const std::uint64_t steps = stage.counters.num_ended();
    caf::anon_send(stage.supervisor(), msg::Crash{Role::drafter});
    stage.scheduler().run(60);  // without time going on there is no new one
    CHECK(stage.counters.num_ended() > steps);
    stage.scheduler().advance_time(std::chrono::milliseconds(2000));
  }
  stage.run_with_time();
  CHECK(sink->ids == expected);
  CHECK(stage.status().count("worker_restarts") == 3);
  check_all_came_back(stage);
}

TEST_CASE("speculation: more sequences than the draft model's cache has room for get the answers they get alone") {
  Reference reference(load_model(256));
  Stage stage(with(DraftSource::draft));
  stage.serve(with_draft(64, 6));
  std::vector<Client> clients;
  for (TokenId salt = 0; salt < 5; ++salt) {
    clients.push_back(client_with(30 + static_cast<std::size_t>(salt) * 15, salt, kLongest));
    clients.back().drawn = salt % 2 == 1;
  }
  for (Client& client : clients) client.id = stage.submit(request_for(client), client.sink);
  stage.run_with_time();
  std::uint64_t num_drafted = 0;
  for (const Client& client : clients) {
    check_answer(client, reference);
    num_drafted += client.sink->end_->usage.drafted_tokens;
  }
  CHECK(num_drafted > 0);
  check_all_came_back(stage);
}

TEST_CASE("speculation: a draft model that cannot draft for the model is refused with the reason") {
  ServedModel served(load_model(8));
  const auto mamba = load_golden("mamba-F32", 8);
  if (!mamba) return;
  const auto refused = served.set_draft_model(mamba);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("vocabulary") != std::string::npos);
  const auto other = load_golden("llama-F32", 8);
  const auto no_vocabulary = served.set_draft_model(other);
  REQUIRE_FALSE(no_vocabulary);
  CHECK(no_vocabulary.error().message.find("vocabulary") != std::string::npos);
  CHECK(served.draft_model() == nullptr);
}

}  // namespace
}  // namespace troupe::actors
