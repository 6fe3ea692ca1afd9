// The gateway with real threads and the embedded model: starting, sharing, dying, stopping.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "actors/requests/answer_form.h"
#include "actors/saboteur.h"
#include "engine/chat/tools/tool_call_parser.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/grammar/machine.h"
#include "tests/actors/gateway_fixture.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

using Catch::Matchers::Contains;

const std::string kPrompt = "Once upon a time";

std::vector<TokenId> long_prompt(std::size_t tokens, TokenId salt) {
  std::vector<TokenId> ids = {1};
  while (ids.size() < tokens)
    ids.push_back(300 + static_cast<TokenId>((ids.size() * 7 + static_cast<std::size_t>(salt) * 31) % 1000));
  return ids;
}

Request from_ids(std::vector<TokenId> ids, std::uint32_t max_tokens) {
  Request request = greedy("", max_tokens);
  request.prompt = std::move(ids);
  request.sampling.ignore_eos = true;
  return request;
}

TEST_CASE("gateway: wrong options are refused before the model is loaded") {
  GatewayOptions options = embedded_model();
  options.model().path = "/no/such/model.gguf";
  const auto missing = Gateway::start(options);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::model_missing);

  options = embedded_model();
  options.model().load.kernels = "abacus";
  const auto unknown = Gateway::start(options);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("abacus") != std::string::npos);
}

TEST_CASE("gateway: a model that cannot be loaded ends the requests that wait for it") {
  GatewayOptions options = embedded_model();
  options.memory = 1;  // too little for anything
  options.model().load.num_blocks = 0;
  auto gateway = Gateway::start(options);
  REQUIRE(gateway);
  auto sink = std::make_shared<Recorder>();
  (*gateway)->submit(greedy(kPrompt, 5), sink);
  CHECK(answer(sink).end.outcome == Outcome::model_unloaded);
  CHECK((*gateway)->readiness() == Readiness::failed);
  bool told = false;
  (*gateway)->on_loaded([&](Status status) { told = !status; });
  CHECK(told);
}

TEST_CASE("gateway: a request that comes while the model loads waits and is answered") {
  auto gateway = Gateway::start(embedded_model());
  REQUIRE(gateway);
  auto sink = std::make_shared<Recorder>();
  (*gateway)->submit(greedy(kPrompt, 5), sink);
  CHECK(answer(sink).ids.size() == 5);
  CHECK((*gateway)->readiness() == Readiness::ready);
  CHECK((*gateway)->load_fraction() == 1);
}

TEST_CASE("gateway: at each door a model on request that is out is waited for, or refused with a time") {
  GatewayOptions options = embedded_model();
  options.model().name = "a";
  options.model().on_request = true;
  const auto gateway = start(options);
  CHECK(gateway->readiness() == Readiness::ready);
  CHECK(gateway->is_making_progress());
  CHECK(gateway->model("a") == nullptr);
  CHECK(gateway->model_names() == std::vector<std::string>{"a"});
  REQUIRE(gateway->health().size() == 1);
  CHECK(gateway->health()[0].readiness == Readiness::on_request);
  CHECK(gateway->health()[0].on_request);
  const auto is_refused = [](const End* end) {
    REQUIRE(end);
    CHECK(end->outcome == Outcome::loading);
    CHECK(end->retry_after == std::chrono::milliseconds(5000));
    CHECK_THAT(end->message, Contains("is not in memory"));
  };
  Answer<Tokenized> counted;
  Answer<Rendered> prompt;
  const ChatPrompt chat{.messages = {{.role = "user", .content = "Hi"}}};
  static_cast<void>(gateway->tokenize_chat({kOwner, "a"}, chat, counted.callback()));
  static_cast<void>(gateway->apply_template({kOwner, "a"}, chat, prompt.callback()));
  const Tokenized of_tokenize = tokenized(*gateway, "Once"), of_count = counted.wait();
  const Detokenized of_detokenize = detokenized(*gateway, {1});
  const Rendered of_template = prompt.wait();
  is_refused(std::get_if<End>(&of_tokenize));
  is_refused(std::get_if<End>(&of_count));
  is_refused(std::get_if<End>(&of_detokenize));
  is_refused(std::get_if<End>(&of_template));
  const bool embeds = GENERATE(true, false);
  if (embeds) {
    Request vectors;
    vectors.tenant = kOwner;
    vectors.embed.emplace();
    vectors.embed->texts = std::vector<std::string>{"Once"};
    const auto sink = std::make_shared<Recorder>();
    gateway->submit(std::move(vectors), sink);
    CHECK(sink->wait_for_end().embeddings);
  } else {
    CHECK(run(*gateway, greedy("Once upon", 4)).end.outcome == Outcome::length);
  }
  CHECK(gateway->health()[0].readiness == Readiness::ready);
  CHECK(std::holds_alternative<std::vector<TokenId>>(tokenized(*gateway, "Once")));
  const StatusSnapshot snapshot = status(*gateway);
  CHECK(snapshot.readiness == Readiness::ready);
  CHECK(snapshot.count("models_on_request_loaded") == 1);
  CHECK(snapshot.count("model_loads_on_request") == 1);
  CHECK(snapshot.value("model_load_on_request_seconds") > 0);
  Answer<ModelChange> out, gone;
  gateway->unload_model("a", out.callback());
  const ModelChange of_unload = out.wait();
  REQUIRE(std::holds_alternative<ModelHealth>(of_unload));
  CHECK(std::get<ModelHealth>(of_unload).readiness == Readiness::on_request);
  CHECK(gateway->model_names() == std::vector<std::string>{"a"});
  gateway->remove_model("a", gone.callback());
  CHECK(std::holds_alternative<End>(gone.wait()));  // it is the only one
}

TEST_CASE("gateway: a prefix that many requests have at once is computed once") {
  const auto gateway = start();
  std::vector<std::shared_ptr<Recorder>> sinks;
  const std::vector<TokenId> shared = long_prompt(200, 1);
  for (TokenId i = 0; i < 8; ++i) {
    std::vector<TokenId> prompt = shared;
    prompt.push_back(400 + i);
    prompt.push_back(500 + i);
    sinks.push_back(std::make_shared<Recorder>());
    gateway->submit(from_ids(prompt, 4), sinks.back());
  }
  std::vector<Answered> together;
  for (const auto& sink : sinks) together.push_back(answer(sink));
  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("cached_tokens") == 7 * 192);
  CHECK(after.count("prefix_blocks_computed") == 6);
  CHECK(after.count("blocks_referenced") == 0);
  CHECK(after.count("blocks_free") + after.count("blocks_cached") == after.count("blocks_total"));
  REQUIRE(after.tenants.size() == 1);
  CHECK(after.tenants[0].received == 8);

  // The same answer with the prefix cached, and on a server without it.
  const auto other = start();
  for (TokenId i = 0; i < 8; ++i) {
    std::vector<TokenId> prompt = shared;
    prompt.push_back(400 + i);
    prompt.push_back(500 + i);
    CHECK(run(*gateway, from_ids(prompt, 4)).ids == together[static_cast<std::size_t>(i)].ids);
    CHECK(run(*other, from_ids(prompt, 4)).ids == together[static_cast<std::size_t>(i)].ids);
  }
}

TEST_CASE("gateway: prefixes are shared within a user, or where the scope says public") {
  const auto gateway = start();
  const auto cached_for = [&](std::uint32_t uid, const std::string& scope, TokenId salt) {
    Request request = from_ids(long_prompt(100, salt), 2);
    request.tenant.id = TenantId{uid};
    request.cache_scope = scope;
    return run(*gateway, request).end.usage.cached_tokens;
  };
  CHECK(cached_for(1, "", 1) == 0);
  CHECK(cached_for(1, "", 1) == 96);
  CHECK(cached_for(2, "", 1) == 0);
  CHECK(cached_for(1, "team", 1) == 0);
  CHECK(cached_for(1, "team", 1) == 96);
  CHECK(cached_for(2, "team", 1) == 0);
  CHECK(cached_for(1, "public", 2) == 0);
  CHECK(cached_for(2, "public", 2) == 96);
  CHECK(cached_for(3, "", 2) == 96);
}

// The bits of the log probability of every token.
std::vector<std::uint32_t> logprob_bits(const Recorder& sink) {
  std::vector<std::uint32_t> bits;
  for (const engine::SampledToken& token : sink.logprobs()) bits.push_back(std::bit_cast<std::uint32_t>(token.logprob));
  return bits;
}

TEST_CASE("gateway: under too few blocks sequences are preempted and their answers stay the same, bit by bit") {
  const auto request = [](TokenId salt) {
    Request body = from_ids(long_prompt(60, salt), 100);
    body.sampling.num_logprobs = 0;
    return body;
  };
  std::vector<std::shared_ptr<Recorder>> alone;
  {
    const auto gateway = start();
    for (TokenId i = 0; i < 5; ++i) {
      alone.push_back(std::make_shared<Recorder>());
      gateway->submit(request(i), alone.back());
      alone.back()->wait_for_end();
    }
  }
  GatewayOptions options = embedded_model();
  options.model().load.num_blocks = 10;  // two of them at most
  const auto gateway = start(options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (TokenId i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    gateway->submit(request(i), sinks.back());
  }
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    CHECK(answer(sinks[i]).ids == alone[i]->ids());
    CHECK(logprob_bits(*sinks[i]).size() == sinks[i]->ids().size());
    CHECK(logprob_bits(*sinks[i]) == logprob_bits(*alone[i]));
  }
  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("preemptions") > 0);
  CHECK(after.count("blocks_referenced") == 0);
}

// A template that knows tools, in Hermes' format. `room` makes prompts longer than a block.
GatewayOptions with_tools() {
  GatewayOptions options = embedded_model();
  options.model().chat_template = {
      .name = "calls",
      .source =
          "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content "
          "}}\n{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>\n"
          "{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
      .tool_format = "hermes"};
  return options;
}

// Of two blocks.
std::string a_story(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (int i = 0; i < 12; ++i) text += " " + kPrompt;
  return text;
}

// Demands a call: of the tool with this name; empty: of any.
Request demanded(const std::string& name, std::uint64_t seed, std::uint32_t max_tokens = 90) {
  constexpr const char* kTools = R"([{"type":"function","function":{"name":"get_weather"}},)"
                                 R"({"type":"function","function":{"name":"find_the_little_dog"}}])";
  Request request = seeded("", max_tokens, seed);
  ChatPrompt chat{{{.role = "user", .content = a_story(seed)}}};
  chat.tools = kTools;
  request.prompt = std::move(chat);
  const auto set = engine::chat::ToolSet::make(*engine::chat::parse_json(kTools));
  request.tools = ToolUse{.set = std::make_shared<const engine::chat::ToolSet>(*set), .must_call = true, .name = name};
  request.sampling.ignore_eos = true;
  request.sampling.num_logprobs = 0;
  request.wants_proof = true;
  return request;
}

// Demanded calls, and an answer whose beginning a client without tools has chosen.
std::vector<Request> demanded_calls() {
  Request other = seeded(a_story(4) + " there was a little", 90, 4);
  other.begins_with = " dragon, and {\"it\": ";
  other.sampling.ignore_eos = true;
  other.sampling.num_logprobs = 0;
  return {demanded("get_weather", 1), demanded("find_the_little_dog", 2), demanded("", 3), std::move(other),
          demanded("get_weather", 5)};
}

// That the requests have the same answers as alone: together, preempted, drafted, behind a batcher's death. Each is a
// section.
void check_same_bits(const GatewayOptions& options, const std::vector<Request>& requests,
                     const std::vector<std::shared_ptr<Recorder>>& alone) {
  const auto same = [&](const GatewayOptions& chosen, const std::function<void(Gateway&, Recorder&)>& prepare) {
    // They wait for the model, and are admitted together.
    auto started = Gateway::start(chosen);
    if (!started) FAIL(started.error().message);
    const auto gateway = std::move(*started);
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<Recorder>());
      if (prepare) prepare(*gateway, *sinks.back());
      gateway->submit(request, sinks.back());
    }
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      INFO("request " << i);
      const Answered again = answer(sinks[i]);
      CHECK(again.ids == alone[i]->ids());
      CHECK(again.text == alone[i]->text());
      CHECK(logprob_bits(*sinks[i]) == logprob_bits(*alone[i]));
    }
    return status(*gateway);
  };
  SECTION("together") { same(options, nullptr); }
  SECTION("preempted") {
    GatewayOptions few = options;
    few.model().load.num_blocks = 9;  // two of them at most
    CHECK(same(few, nullptr).count("preemptions") > 0);
  }
  SECTION("drafted") {
    GatewayOptions drafted = options;
    drafted.speculation.source = engine::DraftSource::ngram;
    drafted.verify_all_drafts = true;
    CHECK(same(drafted, nullptr).count("spec_decode_num_draft_tokens_ngram") > 0);
  }
  SECTION("behind a batcher's death") {
    // Soon after the beginning of one, and where all have begun.
    const auto crashes = [](Gateway& gateway, Recorder& sink) {
      sink.on_tokens = [raw = &gateway](std::size_t so_far) {
        if (so_far == 3 || so_far == 60) crash_for_test(*raw, Role::batcher);
      };
    };
    CHECK(same(options, crashes).count("worker_restarts") > 0);
  }
}

TEST_CASE(
    "gateway: demanded calls have the same bits alone, together, preempted, drafted and behind a batcher's death") {
  const std::vector<Request> requests = demanded_calls();
  const std::string beginnings[] = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ",
                                    "<tool_call>\n{\"name\": \"find_the_little_dog\", \"arguments\": ",
                                    "<tool_call>\n{\"name\": \"", " dragon, and {\"it\": ", ""};
  std::vector<std::shared_ptr<Recorder>> alone;
  {
    const auto gateway = start(with_tools());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      alone.push_back(std::make_shared<Recorder>());
      gateway->submit(requests[i], alone.back());
      const Answered answered = answer(alone.back());
      INFO(answered.end.message);
      REQUIRE(answered.ids.size() == 90);
      CHECK(answered.text.starts_with(beginnings[i]));
      CHECK(answered.text.size() > beginnings[i].size() + 10);
      if (i != 2 && i != 3) CHECK(answered.end.usage.tool_calls >= 1);
      if (const auto& proof = answered.end.proof; proof && !beginnings[i].empty())
        CHECK(proof->begins_with == beginnings[i]);
      // Calls, and what ends the answer behind them, are looked for behind the reasoning.
      if (answered.end.proof) CHECK(answered.end.proof->stop_scope == StopScope::answer);
    }
  }
  check_same_bits(with_tools(), requests, alone);
}

TEST_CASE("gateway: each of several demanded calls is the one that its choice alone gives, and what it proposes") {
  const auto gateway = start(with_tools());
  Request three = demanded("find_the_little_dog", 8);
  three.num_choices = 3;
  const auto sink = std::make_shared<ChoiceRecorder>(3);
  gateway->submit(three, sink);
  const std::vector<Answered> answers = sink->wait();
  CHECK(answers[0].ids != answers[1].ids);
  // Each call is counted once, for its model and in its format.
  std::uint32_t num_calls = 0;
  for (const Answered& each : answers) num_calls += each.end.usage.tool_calls;
  const StatusSnapshot counted = status(*gateway);
  const auto metric = std::ranges::find(counted.metrics, "tool_calls", &Metric::name);
  REQUIRE(metric != counted.metrics.end());
  CHECK(metric->value == num_calls);
  CHECK(num_calls >= 3);
  CHECK(metric->labels == std::vector<std::pair<std::string, std::string>>{{"format", "hermes"},
                                                                           {"model", counted.models[0].health.name}});
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    INFO("choice " << choice);
    REQUIRE(answers[choice].ids.size() == 90);
    const Proof& proof = *answers[choice].end.proof;
    // What a client without tools asks for by the receipt alone.
    Request again;
    again.tenant = kOwner;
    again.prompt = *proof.prompt;
    again.sampling = proof.sampling;
    again.first_choice = std::exchange(again.sampling.choice, 0);
    again.has_seed = true;
    again.begins_with = proof.begins_with;
    again.shown_ids = proof.shown_ids;
    again.cache_scope = "anew";
    again.credit = kAllCredit;
    CHECK(run(*gateway, again).ids == answers[choice].ids);
    again.proposal = proof.ids;
    const Answered proved = run(*gateway, again);
    CHECK(proved.ids == answers[choice].ids);
    CHECK(proved.text == answers[choice].text);
    CHECK(proved.end.usage.accepted_tokens > 60);
    again.begins_with.clear();
    CHECK(run(*gateway, again).ids != answers[choice].ids);
  }
}

using engine::constraints::Constraint;

Request of_form(Constraint form, std::uint64_t seed, std::uint32_t max_tokens) {
  Request request = seeded(kPrompt + " " + std::to_string(seed), max_tokens, seed);
  request.form = std::make_shared<AnswerForm>(std::move(form), "response_format");
  request.sampling.num_logprobs = 0;
  return request;
}

// A list that is longer than any answer here, objects, and what ends by itself.
std::vector<Request> requests_of_forms() {
  using Kind = Constraint::Kind;
  const char* const list = R"({"type":"array","minItems":12,"items":{"type":"string","minLength":3,"maxLength":12}})";
  const char* const object =
      R"({"type":"object","properties":{"name":{"type":"string"},"friends":{"type":"array","minItems":4,"items":
          {"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer"}},
           "required":["name","age"]}}},"required":["name","friends"]})";
  return {of_form({.kind = Kind::json_schema, .text = list, .spaces = true}, 1, 130),
          of_form({.kind = Kind::json_schema, .text = object}, 2, 160),
          of_form({.kind = Kind::json_object, .spaces = true}, 3, 80),
          of_form({.kind = Kind::regex, .text = "(There was a [a-z]{2,12}\\. ){5,12}The end\\."}, 4, 140),
          of_form({.kind = Kind::json_schema, .text = list}, 5, 120)};
}

// Whether a text is one of a form.
bool has_form(const Constraint& form, std::string_view text) {
  auto grammar = engine::constraints::grammar_of(form);
  REQUIRE(grammar);
  engine::constraints::Machine machine(std::move(*grammar));
  const auto state = machine.after(machine.begin(), text);
  return state != engine::constraints::kStuck && machine.may_end(state);
}

TEST_CASE("gateway: answers of a form have it at any length, and the same bits wherever they are computed") {
  const std::vector<Request> requests = requests_of_forms();
  std::vector<std::shared_ptr<Recorder>> alone;
  const GatewayOptions options = embedded_model();
  {
    const auto gateway = start(options);
    for (const Request& request : requests) {
      alone.push_back(std::make_shared<Recorder>());
      gateway->submit(request, alone.back());
      const Answered answered = answer(alone.back());
      INFO(answered.end.message << answered.text);
      CHECK(has_form(request.form->constraint(), answered.text));
      CHECK(answered.end.outcome == Outcome::eos);
      CHECK(answered.ids.size() <= request.sampling.max_tokens);
    }
  }
  check_same_bits(options, requests, alone);
}

TEST_CASE("gateway: what a form leaves no choice about comes many tokens a step, and is the same by itself") {
  const auto gateway = start(embedded_model());
  const char *const kTokens = "spec_decode_num_draft_tokens", *const kAccepted = "spec_decode_num_accepted_tokens";
  const auto form_drafts = [&](std::string_view name) {
    double count = 0;
    for (const Metric& each : status(*gateway).metrics)
      if (each.name == name &&
          std::ranges::find(each.labels, std::pair<std::string, std::string>("drafter", "form")) != each.labels.end())
        count += each.value;
    return count;
  };
  Request request = of_form({.kind = Constraint::Kind::json_schema,
                             .text = R"({"type":"object","properties":{"the name of the dragon":{"type":"string",
                               "maxLength":6},"whether the dragon is green":{"type":"boolean"}},
                               "required":["the name of the dragon","whether the dragon is green"],
                               "additionalProperties":false})"},
                            4, 120);
  for (const float temperature : {0.0f, 1.0f}) {
    request.sampling.temperature = temperature;
    request.sampling.num_logprobs = 0;  // asked for: the logits of each are computed
    const Answered with_logprobs = run(*gateway, request);
    request.sampling.num_logprobs = -1;
    const double before = form_drafts(kTokens), accepted = form_drafts(kAccepted);
    const Answered answered = run(*gateway, request);
    INFO(answered.text);
    CHECK(answered.ids == with_logprobs.ids);
    CHECK(has_form(request.form->constraint(), answered.text));
    const double offered = form_drafts(kTokens) - before;
    CHECK(offered >= 8);
    CHECK(form_drafts(kAccepted) - accepted == offered);    // all of them
    request.speculation.source = engine::DraftSource::off;  // these are no guesses
    CHECK(run(*gateway, request).ids == answered.ids);
    CHECK(form_drafts(kTokens) - before == 2 * offered);
    request.speculation = {};
  }
}

TEST_CASE("gateway: each of several answers of a form is the one that its choice alone gives") {
  const auto gateway = start(embedded_model());
  Request four = requests_of_forms()[1];
  four.num_choices = 4;
  const auto sink = std::make_shared<ChoiceRecorder>(4);
  gateway->submit(four, sink);
  const std::vector<Answered> answers = sink->wait();
  CHECK(answers[0].ids != answers[1].ids);
  for (std::uint32_t choice = 0; choice < 4; ++choice) {
    Request single = requests_of_forms()[1];
    single.first_choice = choice;
    INFO("choice " << choice);
    CHECK(has_form(single.form->constraint(), answers[choice].text));
    CHECK(run(*gateway, single).ids == answers[choice].ids);
  }
}

TEST_CASE("gateway: a form that allows every text changes no token") {
  const auto gateway = start(embedded_model());
  for (const std::uint64_t seed : {11, 12}) {
    Request free = seeded(kPrompt, 60, seed);
    Request any = free;
    any.form = std::make_shared<AnswerForm>(Constraint{.kind = Constraint::Kind::regex, .text = "[^]*"}, "regex");
    CHECK(run(*gateway, free).ids == run(*gateway, any).ids);
  }
}

TEST_CASE("gateway: forms that cannot be had, or do not fit, are refused before anything is computed") {
  const auto gateway = start(embedded_model());
  const auto refused = [&](Request request, const std::string& field, const std::string& message) {
    const Answered answered = run(*gateway, request);
    INFO(answered.end.message);
    CHECK(answered.end.outcome == Outcome::invalid_argument);
    CHECK(answered.end.field == field);
    CHECK(answered.end.message.find(message) != std::string::npos);
    CHECK(answered.ids.empty());
  };
  using Kind = Constraint::Kind;
  refused(of_form({.kind = Kind::json_schema, .text = R"({"unevaluatedItems":false})"}, 1, 50), "response_format",
          "unevaluatedItems");
  refused(of_form({.kind = Kind::json_schema, .text = R"({"type":"string","minLength":500})"}, 1, 50),
          "sampling.max_tokens", "there is room for 50");
  Request tools = demanded("get_weather", 1);
  tools.wants_proof = false;
  tools.sampling.ignore_eos = false;
  tools.form = of_form({.kind = Kind::json_object}, 1, 50).form;
  refused(std::move(tools), "response_format", "beside tools");
  Request ids = of_form({.kind = Kind::choice, .choices = {"yes", "no"}}, 1, 50);
  ids.prompt = std::vector<TokenId>{1, 400, 500};
  const Answered chosen = run(*gateway, ids);
  CHECK((chosen.text == "yes" || chosen.text == "no"));
  CHECK(chosen.end.outcome == Outcome::eos);
}

constexpr const char* kWeather =
    R"({"type":"object","properties":{"city":{"type":"string","maxLength":40},"days":{"type":"integer","minimum":1},
        "units":{"type":"array","minItems":2,"items":{"enum":["celsius","fahrenheit","kelvin"]}}},
        "required":["city","units"],"additionalProperties":false})";

// A request with two tools whose calls are held to their schemas.
Request with_held_tools(
    engine::constraints::CallWish wish, std::uint64_t seed, std::uint32_t max_tokens,
    const std::string& other_schema = R"({"type":"object","properties":{"name":{"type":"string"}}})") {
  const std::string tools =
      std::string(R"([{"type":"function","function":{"name":"get_weather","parameters":)") + kWeather +
      R"(}},{"type":"function","function":{"name":"find_the_little_dog","parameters":)" + other_schema + "}}]";
  Request request = seeded("", max_tokens, seed);
  ChatPrompt chat{{{.role = "user", .content = a_story(seed)}}};
  chat.tools = tools;
  request.prompt = std::move(chat);
  const auto set = engine::chat::ToolSet::make(*engine::chat::parse_json(tools));
  request.tools = ToolUse{
      .set = std::make_shared<const engine::chat::ToolSet>(*set),
      .must_call = wish.must_call,
      .name = wish.name,
      .may_call_several = wish.may_call_several,
      .form = std::make_shared<AnswerForm>(Constraint{.kind = Constraint::Kind::calls, .text = tools, .calls = wish},
                                           "tools", wish.strict.empty())};
  request.sampling.num_logprobs = 0;
  return request;
}

// Demanded calls, and answers that are made to begin one.
std::vector<Request> held_calls() {
  Request opened = with_held_tools({}, 34, 120);
  opened.begins_with = "Let me see.\n<tool_call>";
  Request twice = with_held_tools({}, 35, 160);
  twice.begins_with = "<tool_call>{\"name\": \"find_the_little_dog\", \"arguments\": {}}</tool_call> And <tool_call>\n";
  return {with_held_tools({.must_call = true, .name = "get_weather"}, 31, 90),
          with_held_tools({.must_call = true}, 32, 200),
          with_held_tools({.must_call = true, .name = "find_the_little_dog", .may_call_several = false}, 33, 60),
          std::move(opened), std::move(twice)};
}

// The calls of an answer, which all meet their schemas.
std::size_t num_held(const Request& request, const std::string& text) {
  engine::chat::ToolCallParser parser(*engine::chat::find_tool_format("hermes"), request.tools->set);
  std::vector<engine::chat::AnswerPart> parts = parser.push(text);
  for (auto& each : parser.finish()) parts.push_back(std::move(each));
  using Kind = engine::chat::AnswerPart::Kind;
  std::string name, arguments;
  std::size_t count = 0;
  for (const auto& part : parts) {
    if (part.kind == Kind::call) name = part.text;
    if (part.kind == Kind::arguments) arguments += part.text;
    if (part.kind != Kind::call_end) continue;
    INFO(name << " " << arguments);
    const bool is_weather = name == "get_weather";
    CHECK((is_weather || name == "find_the_little_dog"));
    if (is_weather)
      CHECK(has_form({.kind = Constraint::Kind::json_schema, .text = kWeather, .spaces = true}, arguments));
    else
      CHECK(has_form({.kind = Constraint::Kind::json_object, .spaces = true}, arguments));
    arguments.clear();
    ++count;
  }
  return count;
}

TEST_CASE("gateway: calls meet their schemas at any length, and have the same bits wherever they are computed") {
  const std::vector<Request> requests = held_calls();
  std::vector<std::shared_ptr<Recorder>> alone;
  const GatewayOptions options = with_tools();
  {
    const auto gateway = start(options);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      alone.push_back(std::make_shared<Recorder>());
      gateway->submit(requests[i], alone.back());
      const Answered answered = answer(alone.back());
      INFO(i << ": " << answered.end.message << answered.text);
      CHECK(num_held(requests[i], answered.text) >= (i == 4 ? 2 : 1));
      CHECK(answered.ids.size() <= requests[i].sampling.max_tokens);
      if (i < 2) CHECK(answered.end.outcome == Outcome::eos);
      if (i == 2) CHECK(answered.end.outcome == Outcome::tool_call);
      if (i < 3) CHECK(answered.text.starts_with("<tool_call>"));
      CHECK(answered.end.usage.tool_calls >= 1);
    }
  }
  check_same_bits(options, requests, alone);
}

TEST_CASE("gateway: each of several answers with held calls is the one that its choice alone gives") {
  const auto gateway = start(with_tools());
  for (const std::size_t which : {1, 3}) {
    Request four = held_calls()[which];
    four.num_choices = 4;
    const auto sink = std::make_shared<ChoiceRecorder>(4);
    gateway->submit(four, sink);
    const std::vector<Answered> answers = sink->wait();
    CHECK(answers[0].ids != answers[1].ids);
    for (std::uint32_t choice = 0; choice < 4; ++choice) {
      Request single = held_calls()[which];
      single.first_choice = choice;
      INFO("choice " << choice << ": " << answers[choice].text);
      CHECK(num_held(single, answers[choice].text) >= 1);
      CHECK(run(*gateway, single).ids == answers[choice].ids);
    }
  }
}

TEST_CASE("gateway: a proof of held calls says what they had to be, and its request gives the same answer") {
  const auto gateway = start(with_tools());
  for (const Request& request : held_calls()) {
    const Answered plain = run(*gateway, request);
    Request asking = request;
    asking.wants_proof = true;
    const Answered answered = run(*gateway, asking);
    INFO(answered.text);
    CHECK(answered.ids == plain.ids);
    REQUIRE(answered.end.proof);
    const Proof& proof = *answered.end.proof;
    REQUIRE(proof.form);
    Constraint expected = request.tools->form->constraint();
    expected.calls.format = "hermes";
    CHECK(proof.form->constraint() == expected);
    CHECK(proof.begins_with == request.begins_with);
    Request again;
    again.prompt = *proof.prompt;
    again.sampling = proof.sampling;
    again.has_seed = true;
    again.begins_with = proof.begins_with;
    again.shown_ids = proof.shown_ids;
    again.form = std::make_shared<AnswerForm>(proof.form->constraint(), "form");
    again.proposal = proof.ids;
    again.credit = request.credit;
    const Answered proved = run(*gateway, again);
    INFO(proved.end.message << proved.text);
    REQUIRE(proved.ids.size() >= proof.ids.size());
    CHECK(std::equal(proof.ids.begin(), proof.ids.end(), proved.ids.begin()));
    // Without the form other tokens come, or it could not be told apart.
    again.form = nullptr;
    again.proposal.clear();
    if (request.begins_with.empty()) CHECK(run(*gateway, again).ids != proved.ids);
  }
}

TEST_CASE("gateway: demanded calls that do not fit, and strict tools that cannot be had, are refused with the reason") {
  const auto gateway = start(with_tools());
  const Answered tight = run(*gateway, with_held_tools({.must_call = true, .name = "get_weather"}, 1, 10));
  CHECK(tight.end.outcome == Outcome::invalid_argument);
  CHECK(tight.end.field == "sampling.max_tokens");
  CHECK(tight.end.message.find("the shortest call") != std::string::npos);
  CHECK(tight.end.message.find("there is room for 10") != std::string::npos);
  const std::string odd = R"({"type":"object","properties":{"a":{"unevaluatedProperties":false}}})";
  const Answered strict =
      run(*gateway, with_held_tools({.must_call = true, .strict = {"find_the_little_dog"}}, 1, 90, odd));
  CHECK(strict.end.outcome == Outcome::invalid_argument);
  CHECK(strict.end.field == "tools");
  CHECK(strict.end.message.find("'find_the_little_dog' is strict") != std::string::npos);
  CHECK(strict.end.message.find("#/properties/a/unevaluatedProperties") != std::string::npos);
  Request loose = with_held_tools({.must_call = true, .name = "find_the_little_dog"}, 1, 90, odd);
  const Answered any = run(*gateway, loose);
  CHECK(num_held(loose, any.text) >= 1);
}

TEST_CASE("gateway: forms of calls that are none are refused, beside which nothing is proved") {
  const auto gateway = start(with_tools());
  const auto refused = [&](Constraint form, const std::string& message) {
    form.kind = Constraint::Kind::calls;
    const Answered answered = run(*gateway, of_form(std::move(form), 1, 50));
    INFO(answered.end.message);
    CHECK(answered.end.outcome == Outcome::invalid_argument);
    CHECK(answered.end.field == "response_format");
    CHECK(answered.end.message.find(message) != std::string::npos);
  };
  refused({.text = "this is no list of tools"}, "no JSON");
  refused({.text = "[]", .calls = {.format = "none"}}, "'none' is no format of calls");
  refused({.text = R"([{"type":"function","function":{"name":"f"}}])", .calls = {.must_call = true, .name = "g"}},
          "'g' is none of the tools");
  // What may stand beside tools may stand beside the form that proves it.
  Request unending = with_held_tools({.must_call = true, .name = "get_weather"}, 31, 90);
  unending.sampling.ignore_eos = true;
  unending.wants_proof = true;
  const Answered answered = run(*gateway, unending);
  REQUIRE(answered.end.proof);
  Request again;
  again.prompt = *answered.end.proof->prompt;
  again.sampling = answered.end.proof->sampling;
  again.has_seed = true;
  again.credit = unending.credit;
  again.form = std::make_shared<AnswerForm>(answered.end.proof->form->constraint(), "form");
  CHECK(run(*gateway, again).ids == answered.ids);
  // A demanded call cannot begin within the reasoning of a message that is continued.
  Request open = with_held_tools({.must_call = true, .name = "get_weather"}, 31, 90);
  auto& chat = std::get<ChatPrompt>(open.prompt);
  chat.messages.push_back({.role = "assistant", .content = "<think>I wonder"});
  chat.continue_final_message = true;
  CHECK(run(*gateway, open).end.field == "continue_final_message");
}

TEST_CASE("gateway: tools that are not called change no token of an answer that is held to them") {
  const auto gateway = start(with_tools());
  for (const std::uint64_t seed : {41, 42}) {
    const Request held = with_held_tools({}, seed, 60);
    Request free = held;
    free.tools->form = nullptr;
    CHECK(run(*gateway, held).ids == run(*gateway, free).ids);
  }
}

TEST_CASE("gateway: a beginning is refused beside a demanded call, and the text of shown ids is in the answer's") {
  const auto gateway = start(with_tools());
  Request both = demanded("get_weather", 1);
  both.begins_with = "Well,";
  CHECK(run(*gateway, both).end.field == "begins_with");
  // Exactly as it is, also where the vocabulary puts a space before a text.
  for (const char* const beginning : {"Well, ", " Well", "  two spaces", "\nOn a new line", "{\"a\": 1}", "<s>"}) {
    Request begun = greedy("There was", 20);
    begun.begins_with = beginning;
    begun.shown_ids = {1};
    begun.sampling.ignore_eos = true;
    const Answered answered = run(*gateway, begun);
    INFO("'" << answered.text << "'");
    CHECK(answered.text.starts_with(beginning));
  }
  Request shown = from_ids(long_prompt(20, 1), 3);
  shown.sampling.logit_bias = {{1, 1000.0f}};  // <s>, a control token
  CHECK(run(*gateway, shown).text.empty());
  shown.shown_ids = {1};
  shown.wants_proof = true;
  const Answered answered = run(*gateway, shown);
  CHECK(answered.text == "<s><s><s>");
  CHECK(answered.end.proof->shown_ids == std::vector<TokenId>{1});
  shown.shown_ids = {1 << 30};
  CHECK(run(*gateway, shown).end.field == "shown_ids");
}

TEST_CASE("gateway: a request that needs more blocks than there are is refused with the numbers") {
  GatewayOptions options = embedded_model();
  options.model().load.num_blocks = 4;
  const auto gateway = start(options);
  const End end = run(*gateway, from_ids(long_prompt(200, 1), 5)).end;
  CHECK(end.outcome == Outcome::never_fits);
  CHECK(run(*gateway, from_ids(long_prompt(60, 1), 5)).end.outcome == Outcome::length);
}

void survives(Role role) {
  const auto gateway = start();
  const Answered greedy_whole = run(*gateway, from_ids(long_prompt(50, 3), 80));
  Request with_stop = seeded(kPrompt, 80, 11);
  with_stop.sampling.ignore_eos = true;
  const Answered unstopped = run(*gateway, with_stop);
  with_stop.stop_strings = {unstopped.text.substr(unstopped.text.size() - 6)};
  const Answered seeded_whole = run(*gateway, with_stop);

  Gateway* raw = gateway.get();
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 3; ++i) sinks.push_back(std::make_shared<Recorder>());
  sinks[0]->on_tokens = [=](std::size_t so_far) {
    if (so_far == 20) crash_for_test(*raw, role);
  };
  gateway->submit(from_ids(long_prompt(50, 3), 80), sinks[0]);
  gateway->submit(with_stop, sinks[1]);
  Request parked = from_ids(long_prompt(50, 3), 80);
  parked.credit = 10;
  const RequestId parked_id = gateway->submit(parked, sinks[2]);

  CHECK(answer(sinks[0]).ids == greedy_whole.ids);
  CHECK(answer(sinks[0]).text == greedy_whole.text);
  const Answered seeded_again = answer(sinks[1]);
  CHECK(seeded_again.ids == seeded_whole.ids);
  CHECK(seeded_again.text == seeded_whole.text);
  CHECK(seeded_again.end.stop == seeded_whole.end.stop);
  CHECK(sinks[2]->ids().size() == 10);
  gateway->credit(parked_id, 70);
  CHECK(answer(sinks[2]).ids == greedy_whole.ids);

  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("worker_restarts") == 1);
  CHECK(after.count("blocks_referenced") == 0);
  CHECK(after.count("blocks_free") + after.count("blocks_cached") == after.count("blocks_total"));
}

TEST_CASE("gateway: a batcher that dies in the middle of streams costs a pause and no token") {
  survives(Role::batcher);
}
TEST_CASE("gateway: a cache keeper that dies in the middle of streams costs a pause and no token") {
  survives(Role::keeper);
}
TEST_CASE("gateway: a worker that dies in the middle of streams costs a pause and no token") { survives(Role::worker); }
TEST_CASE("gateway: an intake that dies in the middle of streams costs a pause and no token") {
  survives(Role::intake);
}

TEST_CASE("gateway: the death of every actor, one after the other, costs pauses and no token") {
  const auto gateway = start();
  const Answered whole = run(*gateway, from_ids(long_prompt(50, 3), 120));
  constexpr Role kRoles[] = {Role::batcher, Role::telemetry, Role::worker, Role::intake, Role::tokenizer, Role::keeper};
  auto sink = std::make_shared<Recorder>();
  sink->on_tokens = [raw = gateway.get(), &kRoles](std::size_t so_far) {
    if (so_far % 6 == 0) crash_for_test(*raw, kRoles[so_far / 6 % std::size(kRoles)]);
  };
  gateway->submit(from_ids(long_prompt(50, 3), 120), sink);
  CHECK(answer(sink).ids == whole.ids);
  CHECK(run(*gateway, greedy(kPrompt, 5)).ids.size() == 5);
  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("worker_restarts") >= 10);
  CHECK(after.count("blocks_referenced") == 0);
}

TEST_CASE("gateway: sinks ask for the status, submit and cancel within their calls, also while telemetry is down") {
  auto gateway = start();
  std::atomic<int> num_asked{0}, num_answered{0};
  const auto ask = [&](std::size_t so_far) {
    if (so_far % 5 == 0) crash_for_test(*gateway, Role::telemetry);
    ++num_asked;
    gateway->status([&](const StatusSnapshot&) { ++num_answered; });
  };
  std::vector<std::shared_ptr<Recorder>> submitted;
  for (int i = 0; i < 4; ++i) {
    auto sink = std::make_shared<Recorder>();
    auto another = std::make_shared<Recorder>();
    const auto id = std::make_shared<std::atomic<RequestId>>(0);
    sink->on_tokens = [&, another, id](std::size_t so_far) {
      ask(so_far);
      if (so_far == 20) gateway->submit(greedy("Once upon a time", 10), another);
      if (so_far >= 30) gateway->cancel(*id);
    };
    another->on_tokens = ask;
    Request request = greedy("There was", 400);
    request.sampling.ignore_eos = true;
    *id = gateway->submit(request, sink);
    submitted.insert(submitted.end(), {sink, another});
  }
  for (std::size_t i = 0; i < submitted.size(); i += 2) {
    CHECK(submitted[i]->wait_for_end().outcome == Outcome::cancelled);
    CHECK(submitted[i + 1]->wait_for_end().outcome != Outcome::cancelled);
  }
  (void)status(*gateway);
  Answer<bool> drained;
  gateway->drain([done = drained.callback()] { done(true); });
  CHECK(drained.wait());
  gateway.reset();  // whatever is still open is answered by then
  CHECK(num_answered == num_asked);
}

TEST_CASE("gateway: draining lets streams end, refuses new ones, and says when it is done") {
  const auto gateway = start();
  auto sink = std::make_shared<Recorder>();
  Request request = from_ids(long_prompt(40, 1), 50);
  request.credit = 5;
  const RequestId id = gateway->submit(request, sink);
  sink->wait_for_tokens(5);
  std::mutex mutex;
  std::condition_variable changed;
  bool drained = false;
  gateway->drain([&] {
    const std::lock_guard lock(mutex);
    drained = true;
    changed.notify_all();
  });
  CHECK(gateway->readiness() == Readiness::draining);
  CHECK(run(*gateway, greedy(kPrompt, 5)).end.outcome == Outcome::draining);
  CHECK_FALSE(drained);
  gateway->credit(id, 45);
  CHECK(answer(sink).ids.size() == 50);
  std::unique_lock lock(mutex);
  CHECK(changed.wait_for(lock, std::chrono::seconds(30), [&] { return drained; }));
}

TEST_CASE("gateway: at the drain timeout the live streams end as cancelled") {
  GatewayOptions options = embedded_model();
  options.drain_timeout = std::chrono::milliseconds(50);
  const auto gateway = start(options);
  Request request = from_ids(long_prompt(40, 1), 50);
  request.credit = 5;
  auto sink = std::make_shared<Recorder>();
  gateway->submit(request, sink);
  sink->wait_for_tokens(5);
  gateway->drain([] {});
  CHECK(answer(sink).end.outcome == Outcome::cancelled);
}

TEST_CASE("gateway: destroying it gives every stream its end") {
  auto running = std::make_shared<Recorder>();
  auto queued = std::make_shared<Recorder>();
  {
    GatewayOptions options = embedded_model();
    options.max_sequences = 1;
    const auto gateway = start(options);
    gateway->submit(from_ids(long_prompt(40, 1), 200), running);
    running->wait_for_tokens(1);
    gateway->submit(from_ids(long_prompt(40, 1), 200), queued);
  }
  CHECK(answer(running).end.outcome == Outcome::cancelled);
  CHECK(answer(queued).end.outcome == Outcome::draining);
}

TEST_CASE("gateway: destroying it while the model loads gives every stream its end") {
  auto sink = std::make_shared<Recorder>();
  {
    auto gateway = Gateway::start(embedded_model());
    REQUIRE(gateway);
    (*gateway)->submit(greedy(kPrompt, 5), sink);
  }
  CHECK(sink->ended());
}

}  // namespace
}  // namespace troupe::actors
