// The gateway with real threads and the embedded model: what clients see.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "actors/saboteur.h"
#include "tests/actors/gateway_fixture.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

const std::string kPrompt = "Once upon a time";

TEST_CASE("gateway: greedy answers are those that llama.cpp gives") {
  std::ifstream file(std::string(TROUPE_TEST_DATA) + "/tales_expected.json");
  const auto expected = nlohmann::json::parse(file);
  const auto gateway = start();
  std::size_t compared = 0;
  for (const auto& one : expected.at("cases")) {
    const auto text = one.at("text").get<std::string>();
    const auto& exact = one.at("f32_activations");
    const auto& rounded = one.at("tq2_0");
    const Answered got = run(*gateway, greedy(text, 120));
    CHECK(got.end.usage.prompt_tokens == one.at("prompt").size());
    // Up to where the two references differ, or where ours differs at nearly equal logits.
    for (std::size_t i = 0; i < got.ids.size(); ++i) {
      const TokenId want = exact.at("greedy").at(i);
      if (want != rounded.at("greedy").at(i)) break;
      const bool close = exact.at("margin").at(i) < 0.5 || rounded.at("margin").at(i) < 0.5;
      if (close && got.ids[i] != want) break;
      INFO(text << ", token " << i);
      CHECK(got.ids[i] == want);
      ++compared;
    }
  }
  CHECK(compared >= 40);
}

TEST_CASE("gateway: an answer has ids, text, usage and seed, and is the same for the prompt as ids") {
  const auto gateway = start();
  const Answered got = run(*gateway, seeded(kPrompt, 40, 7));
  CHECK(got.end.outcome == Outcome::length);
  CHECK(got.end.seed == 7);
  CHECK(got.ids.size() == 40);
  CHECK(got.end.usage.completion_tokens == 40);
  CHECK(got.end.usage.ttft_seconds > 0);
  CHECK(got.text == gateway->model()->tokenizer()->decode([&] {
    std::vector<TokenId> ids = {1};  // so that the first piece keeps its space
    ids.insert(ids.end(), got.ids.begin(), got.ids.end());
    return ids;
  }()));

  Request request = seeded("", 40, 7);
  request.prompt = gateway->model()->tokenizer()->encode(kPrompt, {});
  request.sampling.num_logprobs = 2;
  auto sink = std::make_shared<Recorder>();
  gateway->submit(request, sink);
  const Answered again = answer(sink);
  CHECK(again.ids == got.ids);
  REQUIRE(sink->logprobs().size() == 40);
  CHECK(sink->logprobs()[5].id == got.ids[5]);
  CHECK(sink->logprobs()[5].top.size() == 2);
}

TEST_CASE("gateway: several answers come from one prefill, and the first equals a single answer") {
  const auto gateway = start();
  // 2 full blocks and a part of a third.
  const auto text_ids = gateway->model()->tokenizer()->encode(
      "Once upon a time there was a little girl named Lily who lived near a big forest with her dog. One day they went "
      "for a walk and found a small red ball under a tree. Lily was so happy. She wanted to play with it, but a bird "
      "said that the ball was his. Lily asked the bird to play with her too.",
      {});
  REQUIRE(text_ids.size() > 65);
  REQUIRE(text_ids.size() % kBlockSize != 0);
  const auto num_prompt = static_cast<std::uint32_t>(text_ids.size());
  const auto request_of = [&](std::uint64_t seed) {
    Request request = seeded("", 40, seed);
    request.prompt = text_ids;
    request.sampling.ignore_eos = true;
    return request;
  };
  Request request = request_of(7);
  request.num_choices = 4;
  const auto sink = std::make_shared<ChoiceRecorder>(4);
  gateway->submit(request, sink);
  const std::vector<Answered> answers = sink->wait();
  CHECK(answers[0].end.usage.cached_tokens == 0);
  for (std::uint32_t choice = 1; choice < 4; ++choice) {
    CHECK(answers[choice].end.outcome == Outcome::length);
    CHECK(answers[choice].end.seed == 7);
    // All but the last token, whose logits are needed.
    CHECK(answers[choice].end.usage.cached_tokens == num_prompt - 1);
    CHECK(answers[choice].ids != answers[choice - 1].ids);
  }

  const auto another = start();
  CHECK(run(*another, request_of(7)).ids == answers[0].ids);
  Request third = request_of(7);
  third.num_choices = 3;
  const auto again = std::make_shared<ChoiceRecorder>(3);
  another->submit(third, again);
  CHECK(again->wait()[2].ids == answers[2].ids);
}

TEST_CASE("gateway: before min_tokens nothing but the context ends an answer, and its proof says so") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 40);
  request.sampling.ignore_eos = true;
  request.wants_proof = true;
  const Answered whole = run(*gateway, request);
  REQUIRE(whole.ids.size() == 40);
  const std::vector<TokenId> early{whole.ids[3], whole.ids[5]};
  request.sampling.stop_ids = early;
  CHECK(run(*gateway, request).ids.size() == 3);
  request.sampling.min_tokens = 12;
  const Answered later = run(*gateway, request);
  CHECK(later.ids.size() >= 12);
  for (const TokenId id : later.ids) CHECK(std::ranges::find(early, id) == early.end());
  REQUIRE(later.end.proof);
  CHECK(later.end.proof->sampling.min_tokens == 12);
  CHECK(run(*gateway, request).ids == later.ids);
  // A text that the first tokens have.
  request.sampling.stop_ids.clear();
  request.sampling.min_tokens = 0;
  request.stop_strings = {gateway->model()->tokenizer()->piece(whole.ids[2])};
  CHECK(run(*gateway, request).ids.size() <= 3);
  request.sampling.min_tokens = 40;
  const Answered to_its_length = run(*gateway, request);
  CHECK(to_its_length.ids == whole.ids);
  CHECK(to_its_length.text == whole.text);
  CHECK(to_its_length.end.outcome == Outcome::length);
  // A context that has no room for so many.
  request.stop_strings.clear();
  request.sampling.max_tokens = request.sampling.min_tokens = 100'000;
  const Answered full = run(*gateway, request);
  CHECK(full.end.outcome == Outcome::length);
  CHECK(full.end.proof->sampling.min_tokens == full.ids.size());
  request.sampling.max_tokens = 40;
  const Answered refused = run(*gateway, request);
  CHECK(refused.end.outcome == Outcome::invalid_argument);
  CHECK(refused.end.field == "sampling.min_tokens");
}

TEST_CASE("gateway: where a request names no length its tenant's is taken, else the model's, which min_tokens raises") {
  GatewayOptions options = embedded_model();
  options.model().predict = 5;
  const auto gateway = start(options);
  Request request = greedy(kPrompt, 40);
  request.sampling.ignore_eos = true;
  CHECK(run(*gateway, request).ids.size() == 5);
  request.has_max_tokens = true;
  CHECK(run(*gateway, request).ids.size() == 40);
  request.has_max_tokens = false;
  request.sampling.min_tokens = 7;
  CHECK(run(*gateway, request).ids.size() == 7);
  request.sampling.min_tokens = 0;
  scheduler::TenantPolicy policy{.name = "a", .predict = 3};
  request.tenant.policy = std::make_shared<scheduler::TenantPolicy>(policy);
  CHECK(run(*gateway, request).ids.size() == 3);
  policy.predict = scheduler::kUnlimitedTokens;  // no default: what the protocol has
  request.tenant.policy = std::make_shared<scheduler::TenantPolicy>(policy);
  CHECK(run(*gateway, request).ids.size() == 40);
}

TEST_CASE("gateway: greedy choices are all equal, and go on when the first is cancelled") {
  const auto gateway = start();
  const Answered expected = run(*gateway, greedy(kPrompt, 30));
  for (int round = 0; round < 20; ++round) {
    Request request = greedy(kPrompt, 30);
    request.num_choices = 4;
    const auto sink = std::make_shared<ChoiceRecorder>(4);
    const RequestId first = gateway->submit(request, sink);
    if (round % 2 == 1) sink->choice(0).wait_for_tokens(1);
    gateway->cancel(first);
    const std::vector<Answered> answers = sink->wait();
    // Before the prompt was encoded all choices end, after it only the first.
    const bool together = answers[1].end.outcome == Outcome::cancelled;
    CHECK_FALSE((together && round % 2 == 1));
    for (std::size_t choice = 1; choice < 4; ++choice) {
      if (together) CHECK(answers[choice].end.outcome == Outcome::cancelled);
      if (!together) CHECK(answers[choice].ids == expected.ids);
    }
  }
}

TEST_CASE("gateway: a refusal ends all choices of a request") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 30);
  request.num_choices = 3;
  request.sampling.top_p = 2;
  const auto sink = std::make_shared<ChoiceRecorder>(3);
  gateway->submit(request, sink);
  for (const Answered& answered : sink->wait()) {
    CHECK(answered.end.outcome == Outcome::invalid_argument);
    CHECK(answered.end.field == "sampling.top_p");
  }
}

TEST_CASE("gateway: a seed is drawn where none is given, and gives the same answer again") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 30);
  request.sampling.temperature = 1;
  const Answered first = run(*gateway, request);
  const Answered second = run(*gateway, request);
  CHECK(first.end.seed != second.end.seed);
  CHECK(run(*gateway, seeded(kPrompt, 30, first.end.seed)).ids == first.ids);
}

TEST_CASE("gateway: concurrent streams get what each gets alone") {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 6; ++i) {
    requests.push_back(seeded(i % 2 ? kPrompt : "The little dog said that " + std::to_string(i), 60, i));
  }
  std::vector<std::vector<TokenId>> alone;
  {
    const auto gateway = start();
    for (const Request& request : requests) alone.push_back(run(*gateway, request).ids);
  }
  GatewayOptions options = embedded_model();
  options.max_step_tokens = 7;  // prompts in chunks, beside decodes
  const auto gateway = start(options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Recorder>());
    gateway->submit(request, sinks.back());
  }
  for (std::size_t i = 0; i < requests.size(); ++i) CHECK(answer(sinks[i]).ids == alone[i]);
}

TEST_CASE("gateway: a text encoded on the text threads gets the same answer as its ids") {
  const auto gateway = start();
  std::string text;
  while (text.size() < 5000) text += "The dog ran to the tree. ";
  Request request = greedy(text, 5);
  const Answered got = run(*gateway, request);
  CHECK(got.end.outcome == Outcome::too_long);
  CHECK(got.end.limit == std::optional<std::uint64_t>(gateway->model()->info().context));
}

TEST_CASE("gateway: refusals name the field, the limit and what to do") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 5);
  request.model = "other";
  CHECK(run(*gateway, request).end.outcome == Outcome::unknown_model);
  request.model = gateway->models().at(0).name;
  CHECK(run(*gateway, request).end.outcome == Outcome::length);
  request.sampling.top_p = 2;
  const End end = run(*gateway, request).end;
  CHECK(end.outcome == Outcome::invalid_argument);
  CHECK(end.field == "sampling.top_p");
  Request empty = greedy("", 5);
  empty.prompt = std::vector<TokenId>{};
  CHECK(run(*gateway, empty).end.outcome == Outcome::invalid_argument);
}

TEST_CASE("gateway: a stop string ends the answer before it, also across tokens") {
  const auto gateway = start();
  const Answered whole = run(*gateway, greedy(kPrompt, 60));
  // Ten bytes from the middle: more than one token.
  const std::string stop = whole.text.substr(whole.text.size() / 2, 10);
  Request request = greedy(kPrompt, 60);
  request.stop_strings = {"never in the text", stop};
  const Answered got = run(*gateway, request);
  CHECK(got.end.outcome == Outcome::stop_string);
  CHECK(got.end.stop == stop);
  CHECK(got.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(got.ids.size() < whole.ids.size());
  CHECK(std::equal(got.ids.begin(), got.ids.end(), whole.ids.begin()));
  CHECK(got.end.usage.completion_tokens == got.ids.size());
}

TEST_CASE("gateway: text held back for a stop string that never comes is sent at the end") {
  const auto gateway = start();
  const Answered whole = run(*gateway, greedy(kPrompt, 20));
  Request request = greedy(kPrompt, 20);
  request.stop_strings = {whole.text.substr(whole.text.size() - 3) + "xx"};
  const Answered got = run(*gateway, request);
  CHECK(got.end.outcome == Outcome::length);
  CHECK(got.text == whole.text);
}

TEST_CASE("gateway: a stop id ends the answer and is not sent") {
  const auto gateway = start();
  const Answered whole = run(*gateway, greedy(kPrompt, 30));
  Request request = greedy(kPrompt, 30);
  request.sampling.stop_ids = {whole.ids[12]};
  const Answered got = run(*gateway, request);
  CHECK(got.end.outcome == Outcome::stop_id);
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), whole.ids[12]);
  CHECK(got.ids == std::vector<TokenId>(whole.ids.begin(), first));
}

TEST_CASE("gateway: a stream without credit is parked, goes on with credit, and does not delay other streams") {
  const auto gateway = start();
  const std::vector<TokenId> whole = run(*gateway, greedy(kPrompt, 40)).ids;
  Request request = greedy(kPrompt, 40);
  request.credit = 5;
  auto slow = std::make_shared<Recorder>();
  const RequestId id = gateway->submit(request, slow);
  slow->wait_for_tokens(5);
  CHECK(run(*gateway, greedy(kPrompt, 40)).ids == whole);
  CHECK(slow->ids().size() == 5);
  CHECK(status(*gateway).count("requests_parked") == 1);
  gateway->credit(id, 1);
  slow->wait_for_tokens(6);
  gateway->credit(id, 34);
  CHECK(answer(slow).ids == whole);
  CHECK(status(*gateway).count("requests_parked") == 0);
}

TEST_CASE("gateway: without any credit nothing is sent until some is granted") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 10);
  request.credit = 0;
  auto sink = std::make_shared<Recorder>();
  const RequestId id = gateway->submit(request, sink);
  run(*gateway, greedy(kPrompt, 10));
  CHECK(sink->ids().empty());
  gateway->credit(id, kAllCredit);
  CHECK(answer(sink).ids.size() == 10);
}

TEST_CASE("gateway: cancel ends a stream in every phase") {
  GatewayOptions options = embedded_model();
  options.max_sequences = 1;
  const auto gateway = start(options);

  auto fresh = std::make_shared<Recorder>();
  gateway->cancel(gateway->submit(greedy(kPrompt, 200), fresh));  // received or encoding
  CHECK(answer(fresh).end.outcome == Outcome::cancelled);

  auto running = std::make_shared<Recorder>();
  const RequestId running_id = gateway->submit(greedy(kPrompt, 200), running);
  running->wait_for_tokens(2);
  auto queued = std::make_shared<Recorder>();
  const RequestId queued_id = gateway->submit(greedy("The dog", 10), queued);
  gateway->cancel(queued_id);
  const Answered never_run = answer(queued);
  CHECK(never_run.end.outcome == Outcome::cancelled);
  CHECK(never_run.ids.empty());
  CHECK_FALSE(running->ended());
  gateway->cancel(running_id);
  const Answered cut = answer(running);
  CHECK(cut.end.outcome == Outcome::cancelled);
  CHECK(cut.ids.size() < 200);

  Request request = greedy(kPrompt, 50);
  request.credit = 3;
  auto parked = std::make_shared<Recorder>();
  const RequestId parked_id = gateway->submit(request, parked);
  parked->wait_for_tokens(3);
  gateway->cancel(parked_id);
  CHECK(answer(parked).end.outcome == Outcome::cancelled);
  gateway->cancel(parked_id);  // ended: ignored
  gateway->cancel(123456);

  CHECK(run(*gateway, greedy(kPrompt, 5)).ids.size() == 5);
  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("requests_running") == 0);
  CHECK(after.count("requests_waiting") == 0);
  CHECK(after.count("blocks_referenced") == 0);
  CHECK(after.count("blocks_free") + after.count("blocks_cached") == after.count("blocks_total"));
}

TEST_CASE("gateway: a deadline ends the stream with what it has") {
  GatewayOptions options = embedded_model();
  options.max_measuring = std::chrono::milliseconds(0);  // nothing is known, so it is not refused
  Request request = greedy(kPrompt, 50);
  request.credit = 4;  // so that it cannot end by itself
  std::size_t num_got = 0;
  // The first deadline that leaves time for the tokens, however slow this machine is.
  for (const std::int64_t ms : {200, 2000, 20000}) {
    request.deadline = std::chrono::milliseconds(ms);
    const Answered got = run(*start(options), request);
    CHECK(got.end.outcome == Outcome::deadline);
    num_got = got.ids.size();
    if (num_got == 4) break;
  }
  CHECK(num_got == 4);
}

TEST_CASE("gateway: the first request already is refused if its deadline cannot be met, with all its choices") {
  const auto gateway = start();
  Request request = greedy(kPrompt, 400);
  request.sampling.ignore_eos = true;
  request.deadline = std::chrono::milliseconds(1);
  request.num_choices = 3;
  auto choices = std::make_shared<ChoiceRecorder>(3);
  gateway->submit(request, choices);
  for (const Answered& answered : choices->wait()) {
    // Unless the deadline came first, while the request was on its way to the batch.
    if (answered.end.outcome == Outcome::deadline) continue;
    CHECK(answered.end.outcome == Outcome::deadline_unmeetable);
    CHECK(answered.end.field == "deadline_ms");
    CHECK(answered.end.predicted_last > std::chrono::milliseconds(1));
    CHECK(answered.end.predicted_first <= answered.end.predicted_last);
    CHECK(answered.ids.empty());
  }
  request.deadline = std::chrono::hours(1);
  request.num_choices = 1;
  CHECK(run(*gateway, request).end.outcome == Outcome::length);
  const StatusSnapshot after = status(*gateway);
  CHECK(after.count("deadlines_promised") == 1);
  CHECK(after.count("deadlines_kept") == 1);
  CHECK(after.count("deadlines_missed") == 0);
  CHECK(after.value("step_predicted_seconds") > 0);
  CHECK(after.value("max_stall_seconds") == Approx(0.1));
}

TEST_CASE("gateway: a full queue refuses with its limit and a time to retry after") {
  GatewayOptions options = embedded_model();
  options.max_sequences = 1;
  options.max_queued_requests = 1;
  const auto gateway = start(options);
  Request request = greedy(kPrompt, 200);
  request.credit = 2;
  auto running = std::make_shared<Recorder>();
  request.credit = kAllCredit;
  request.sampling.ignore_eos = true;
  const RequestId running_id = gateway->submit(request, running);
  running->wait_for_tokens(1);
  auto queued = std::make_shared<Recorder>();
  const RequestId queued_id = gateway->submit(request, queued);
  const Answered refused = run(*gateway, request);
  CHECK(refused.end.outcome == Outcome::queue_full);
  CHECK(refused.end.limit == std::optional<std::uint64_t>(1));
  CHECK(refused.end.retry_after);
  gateway->cancel(queued_id);
  gateway->cancel(running_id);
  answer(queued);
  answer(running);
}

TEST_CASE("gateway: while loading no more than the queue's limit wait, and the gateway itself refuses the rest") {
  GatewayOptions options = embedded_model();
  options.max_queued_requests = 3;
  auto gateway = Gateway::start(options);
  REQUIRE(gateway);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 100; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    (*gateway)->submit(greedy(kPrompt, 2), sinks.back());
  }
  std::size_t answered = 0;
  for (const auto& sink : sinks) {
    const End end = answer(sink).end;
    answered += end.outcome == Outcome::length ? 1 : 0;
    if (end.outcome == Outcome::length) continue;
    CHECK(end.outcome == Outcome::queue_full);
    CHECK(end.field == "max_queued_requests");
    CHECK(end.limit == std::optional<std::uint64_t>(3));
    CHECK(end.retry_after);
  }
  CHECK(answered >= 3);
  CHECK((*gateway)->is_making_progress());
}

TEST_CASE("gateway: a user's quota is refused by name, another user is served") {
  GatewayOptions options = embedded_model();
  options.max_requests_per_user = 1;
  const auto gateway = start(options);
  Request request = greedy(kPrompt, 20);
  request.credit = 1;
  auto held = std::make_shared<Recorder>();
  const RequestId id = gateway->submit(request, held);
  held->wait_for_tokens(1);
  CHECK(run(*gateway, greedy(kPrompt, 3)).end.outcome == Outcome::quota);
  Request other = greedy(kPrompt, 3);
  other.tenant.id = TenantId{1001};
  CHECK(run(*gateway, other).end.outcome == Outcome::length);
  gateway->cancel(id);
  answer(held);
  CHECK(run(*gateway, greedy(kPrompt, 3)).end.outcome == Outcome::length);
}

TEST_CASE("gateway: texts are encoded and ids are decoded on request") {
  const auto gateway = start();
  const Tokenized ids = tokenized(*gateway, kPrompt);
  REQUIRE(std::get<std::vector<TokenId>>(ids) == std::vector<TokenId>{1, 424, 437, 261, 399});
  REQUIRE(std::get<std::string>(detokenized(*gateway, std::get<std::vector<TokenId>>(ids))) == kPrompt);
  const End refused = std::get<End>(detokenized(*gateway, {-1}));
  CHECK(refused.outcome == Outcome::invalid_argument);
  CHECK(refused.field == "ids");
}

// --- texts of several users ---

const scheduler::Tenant kGuest{TenantId{2001}, false};
const scheduler::Tenant kOtherGuest{TenantId{2002}, false};
const std::string kMegabyte(1 << 20, 'a');

std::size_t num_there(const std::vector<Answer<Tokenized>>& answers) {
  return static_cast<std::size_t>(
      std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.is_there(); }));
}

TEST_CASE("gateway: another user's small texts are answered while 160 texts of a megabyte wait") {
  GatewayOptions options = embedded_model();
  options.max_queued_texts = 1024;
  options.max_queued_text_bytes = 1u << 30;
  const auto gateway = start(options);
  std::vector<Answer<Tokenized>> large(160);
  std::vector<CancelFlag> flags;
  for (auto& answer : large) flags.push_back(gateway->tokenize({kGuest, {}}, kMegabyte, {}, answer.callback()));
  for (int i = 0; i < 12; ++i) {
    REQUIRE(std::holds_alternative<std::vector<TokenId>>(tokenized(*gateway, "Once.", kOtherGuest)));
    REQUIRE(std::holds_alternative<std::string>(detokenized(*gateway, {424}, kOtherGuest)));
    Request request = greedy(std::string(1250, 'a') + " " + std::string(3850, 'b'), 1);
    request.tenant = kOtherGuest;
    CHECK(run(*gateway, std::move(request)).end.outcome == Outcome::too_long);  // it has been encoded
  }
  CHECK(num_there(large) < large.size() / 2);  // in order of arrival it would be nearly all
  for (const CancelFlag& flag : flags) *flag = true;
  for (const auto& answer : large) (void)answer.wait();
}

TEST_CASE("gateway: one user's texts leave room to others', and the refusal names the share") {
  GatewayOptions options = embedded_model();
  options.max_queued_texts = 16;
  const auto gateway = start(options);
  std::vector<Answer<Tokenized>> large(20);
  std::vector<CancelFlag> flags;
  for (auto& answer : large) flags.push_back(gateway->tokenize({kGuest, {}}, kMegabyte, {}, answer.callback()));
  std::size_t refused = 0;
  for (const auto& answer : large) {
    if (!answer.is_there()) continue;
    const Tokenized got = answer.wait();
    const End* const end = std::get_if<End>(&got);
    if (!end) continue;
    ++refused;
    CHECK(end->outcome == Outcome::quota);
    CHECK(end->field == "max_queued_texts");
    CHECK(end->limit == std::optional<std::uint64_t>(4));
    CHECK(end->retry_after);
  }
  CHECK(refused > 0);
  CHECK(std::holds_alternative<std::vector<TokenId>>(tokenized(*gateway, "Once.", kOtherGuest)));
  for (const CancelFlag& flag : flags) *flag = true;
  for (const auto& answer : large) (void)answer.wait();
}

TEST_CASE("gateway: texts whose client has gone are dropped, also while they are being encoded") {
  GatewayOptions options = embedded_model();
  options.max_queued_texts = 256;
  options.max_queued_text_bytes = 1u << 30;
  const auto gateway = start(options);
  std::vector<Answer<Tokenized>> gone(60);
  for (auto& answer : gone) *gateway->tokenize({kGuest, {}}, kMegabyte, {}, answer.callback()) = true;
  // Behind all of them in order, for it is the same user's.
  CHECK(std::holds_alternative<std::vector<TokenId>>(tokenized(*gateway, kMegabyte, kGuest)));
  std::size_t dropped = 0;
  for (const auto& answer : gone) {
    const Tokenized got = answer.wait();
    if (const End* const end = std::get_if<End>(&got)) dropped += end->outcome == Outcome::cancelled ? 1 : 0;
  }
  CHECK(dropped == gone.size());
}

TEST_CASE("gateway: a cancelled request's long prompt stops counting against the limits at once") {
  GatewayOptions options = embedded_model();
  options.tokenizer_threads = 1;
  options.max_queued_texts = 8;  // of which a guest may have two: one that stops, and a new one
  const auto gateway = start(options);
  for (int i = 0; i < 8; ++i) {
    Request request = greedy(std::string(8u << 20, 'a'), 1);
    request.tenant = kGuest;
    const auto sink = std::make_shared<Recorder>();
    const RequestId id = gateway->submit(std::move(request), sink);
    gateway->cancel(id);
    CHECK(sink->wait_for_end().outcome == Outcome::cancelled);
  }
  // The intake handled the cancels in order; all that it had posted is unwanted by now, or gone.
  CHECK(status(*gateway).count("requests_waiting") == 0);
}

TEST_CASE("gateway: a stop does not wait for texts") {
  GatewayOptions options = embedded_model();
  options.max_queued_texts = 1024;
  options.max_queued_text_bytes = 1u << 30;
  auto gateway = start(options);
  const std::string text(4u << 20, 'a');
  std::vector<Answer<Tokenized>> large(60);
  for (auto& answer : large) (void)gateway->tokenize({kGuest, {}}, text, {}, answer.callback());
  const auto sink = std::make_shared<Recorder>();
  Request request = greedy(text, 1);
  gateway->submit(std::move(request), sink);
  gateway.reset();
  std::size_t encoded = 0;
  for (const auto& answer : large) {
    REQUIRE(answer.is_there());
    const Tokenized got = answer.wait();
    const End* const end = std::get_if<End>(&got);
    encoded += end ? 0 : 1;
    if (end) CHECK((end->outcome == Outcome::draining || end->outcome == Outcome::cancelled));
  }
  CHECK(encoded < 10);
  CHECK(sink->ended());
}

TEST_CASE("gateway: a drain finishes texts that were taken and refuses new ones; at its timeout it drops them") {
  {
    const auto gateway = start();
    Answer<Tokenized> text, late;
    Answer<bool> drained;
    (void)gateway->tokenize({kGuest, {}}, kMegabyte, {}, text.callback());
    gateway->drain([done = drained.callback()] { done(true); });
    (void)gateway->tokenize({kGuest, {}}, "Once.", {}, late.callback());
    CHECK(std::get<End>(late.wait()).outcome == Outcome::draining);
    drained.wait();
    REQUIRE(text.is_there());
    CHECK(std::holds_alternative<std::vector<TokenId>>(text.wait()));
  }
  GatewayOptions options = embedded_model();
  options.max_queued_texts = 1024;
  options.max_queued_text_bytes = 1u << 30;
  options.drain_timeout = std::chrono::milliseconds(1);
  const auto gateway = start(options);
  std::vector<Answer<Tokenized>> large(60);
  const std::string text(4u << 20, 'a');
  for (auto& answer : large) (void)gateway->tokenize({kGuest, {}}, text, {}, answer.callback());
  Answer<bool> drained;
  gateway->drain([done = drained.callback()] { done(true); });
  drained.wait();
  REQUIRE(num_there(large) == large.size());
  const Tokenized last = large.back().wait();
  CHECK(std::holds_alternative<End>(last));
}

}  // namespace
}  // namespace troupe::actors
