#include "ipc/http/api/answer.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/http/api/stream_silence.h"
#include "ipc/http/json/json_value.h"
#include "scheduler/shares/admission.h"
#include "tests/ipc/http/api/api_support.h"

namespace troupe::ipc::api {
namespace {

using scheduler::Outcome;

std::unique_ptr<ApiAnswer> answer_to(Endpoint endpoint, const std::string& body) {
  return make_answer(taken(endpoint, body), facts_of_test());
}

// All bytes of an answer that has only one choice: a run for each text, of one token each.
std::string bytes_of(ApiAnswer& answer, const std::vector<std::string>& texts, Outcome outcome = Outcome::eos) {
  std::string out;
  for (const std::string& each : texts) out += answer.on_tokens(run_of(each)).bytes;
  const AnswerOutput last = answer.on_end(end_of(outcome, static_cast<std::uint32_t>(texts.size())));
  CHECK(last.last);
  CHECK(answer.finished());
  return out + last.bytes;
}

const std::string kChat = R"({"messages":[{"role":"user","content":"hi"}],"stream":true)";
const std::string kChunk =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",)"
    R"("system_fingerprint":"f","choices":[)";

TEST_CASE("a chat streams a role, deltas, the reason of its end with its receipt, and [DONE]") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + "}");
  CHECK(bytes_of(*answer, {"He", "", "y"}, Outcome::length) ==
        kChunk + R"({"index":0,"delta":{"role":"assistant","content":"He"},"finish_reason":null}]})" + "\n\n" + kChunk +
            R"({"index":0,"delta":{"content":"y"},"finish_reason":null}]})" + "\n\n" + kChunk +
            R"({"index":0,"delta":{},"finish_reason":"length"}],"troupe":{"choices":[)" + receipt_of_test("length", 3) +
            "]}}\n\ndata: [DONE]\n\n");
}

TEST_CASE("the receipt of a turn whose session was recomputed says under which numerics that was") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + "}");
  actors::End end = end_of(Outcome::length);
  end.recomputed_from = "4-scalar-f16-1";
  CHECK(answer->on_end(std::move(end)).bytes.find(R"("preemptions":0,"recomputed_from":"4-scalar-f16-1"})") !=
        std::string::npos);
}

TEST_CASE("usage is a last chunk without choices, and null in the others") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + R"(,"stream_options":{"include_usage":true}})");
  const std::string bytes = bytes_of(*answer, {"a"});
  const std::string usage =
      kChunk + R"(],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,)"
               R"("prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":0}}})"
               "\n\ndata: [DONE]\n\n";
  REQUIRE(bytes.size() > usage.size());
  CHECK(bytes.starts_with(
      kChunk + R"({"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}],"usage":null})" +
      "\n\n"));
  CHECK(bytes.substr(bytes.size() - usage.size()) == usage);
}

// litellm, and so aider and others, openai and anthropic look for these words and codes.
TEST_CASE("errors say in the words of the API's owner what programs look for, with ours behind it") {
  const auto bodies = [](const ApiError& error) {
    return std::pair(error_body(error, Dialect::openai), error_body(error, Dialect::anthropic));
  };
  const auto has = [](const std::string& text, const std::string& part) {
    INFO(text << " has " << part);
    CHECK(text.find(part) != std::string::npos);
  };
  const scheduler::Capacity capacity{.context = 512, .groups = {cache::Group{4}}};
  for (const std::uint32_t prompt_tokens : {600u, 300u}) {  // the context, the blocks
    const auto fit = scheduler::check_fit({.prompt_tokens = prompt_tokens, .max_tokens = 8, .limits = {}}, capacity);
    REQUIRE(std::holds_alternative<scheduler::Refusal>(fit));
    const auto refusal = std::get<scheduler::Refusal>(fit);
    const auto [openai, anthropic] = bodies(api_error(refusal));
    const std::string most = prompt_tokens == 600 ? "512" : "129";
    has(openai, "This model's maximum context length is " + most + " tokens. However, ");
    has(openai, refusal.message);
    has(openai, R"("code": "context_length_exceeded")");
    REQUIRE(read_json(openai));
    has(anthropic,
        "prompt is too long: " + std::to_string(prompt_tokens == 600 ? 600 : 308) + " tokens > " + most + " maximum");
    has(anthropic, refusal.message);
    has(anthropic, "invalid_request_error");
    CHECK(api_error(refusal).status == 400);
    actors::End end;
    end.outcome = refusal.outcome;
    end.message = refusal.message;
    end.field = refusal.field;
    end.overflow = refusal.overflow;
    CHECK(bodies(api_error(end)) == std::pair(openai, anthropic));
  }
  const auto [wrong_key, wrong_x_api_key] = bodies({.status = 401, .message = "ours", .code = "invalid_api_key"});
  has(wrong_key, "Incorrect API key provided: ours");
  has(wrong_key, R"("code":"invalid_api_key")");
  has(wrong_x_api_key, "invalid x-api-key: ours");
  has(wrong_x_api_key, "authentication_error");
  for (const Outcome outcome : {Outcome::quota, Outcome::queue_full}) {
    const auto [openai, anthropic] = bodies(api_error(scheduler::Refusal{.outcome = outcome, .message = "ours"}));
    has(openai, "Rate limit reached: ours");
    has(openai, "rate_limit_error");
    has(anthropic, "rate_limit_error");
  }
  const auto [overloaded, overloaded_here] =
      bodies(api_error(scheduler::Refusal{.outcome = Outcome::draining, .message = "ours"}));
  has(overloaded, R"("message":"ours")");
  has(overloaded_here, "overloaded_error");
  const ApiError drains = api_error(scheduler::Refusal{.outcome = Outcome::draining});
  CHECK(known_status(drains, Dialect::openai) == 503);
  CHECK(known_status(drains, Dialect::anthropic) == 529);
  CHECK(known_status({.status = 429}, Dialect::anthropic) == 429);
  const auto [no_model, not_found] =
      bodies(api_error(scheduler::Refusal{.outcome = Outcome::unknown_model, .message = "ours"}));
  has(no_model, "invalid_request_error");
  has(no_model, "model_not_found");
  has(not_found, "not_found_error");
}

TEST_CASE("the tokens so far are in each chunk, where they are asked for") {
  const auto answer = answer_to(Endpoint::chat_completions,
                                kChat + R"(,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  const std::string bytes = bytes_of(*answer, {"a", "b"});
  CHECK(bytes.starts_with(kChunk + R"({"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}],)"
                                   R"("usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}})"
                                   "\n\n"));
  CHECK(bytes.find(R"("content":"b"},"finish_reason":null}],)"
                   R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}})") != std::string::npos);
  CHECK(bytes.find(R"("usage":{"prompt_tokens":5,"completion_tokens":)") != std::string::npos);
}

TEST_CASE("the tokens so far are those of every prompt, whichever of its choices has begun") {
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":["x","y"],"n":2,"stream":true,"stream_options":)"
                                                       R"({"continuous_usage_stats":true}})");
  (void)answer->on_tokens(run_of("a", {1}, 1));
  const std::string bytes = answer->on_tokens(run_of("b", {1, 2}, 3)).bytes;
  CHECK(bytes.find(R"("usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}})") != std::string::npos);
}

TEST_CASE("a chat that does not stream is one body, after all its choices have ended") {
  const auto answer =
      answer_to(Endpoint::chat_completions,
                R"({"messages":[{"role":"user","content":"hi"}],"n":2,"user":"u","metadata":{"k":"v"}})");
  CHECK(answer->on_tokens(run_of("a", {1}, 1)).bytes.empty());
  CHECK(answer->on_tokens(run_of("b", {1}, 0)).bytes.empty());
  CHECK_FALSE(answer->on_end(end_of(Outcome::eos, 2, 1)).head);
  const AnswerOutput last = answer->on_end(end_of(Outcome::stop_string, 3, 0));
  REQUIRE(last.head);
  CHECK(last.head->status == 200);
  CHECK(last.head->content_type == "application/json");
  CHECK_FALSE(last.head->streams);
  CHECK(last.last);
  CHECK(last.bytes ==
        R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","system_fingerprint":"f",)"
        R"("choices":[{"index":0,"message":{"role":"assistant","content":"b","refusal":null},"logprobs":null,)"
        R"("finish_reason":"stop"},{"index":1,"message":{"role":"assistant","content":"a","refusal":null},)"
        R"("logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":5,)"
        R"("total_tokens":10,"prompt_tokens_details":{"cached_tokens":4},)"
        R"("completion_tokens_details":{"reasoning_tokens":0}},"metadata":{"k":"v"},"troupe":{"choices":[)" +
            receipt_of_test("stop_string", 3, 0) + "," + receipt_of_test("eos", 2, 1) +
            R"(],"user":"u","metadata":{"k":"v"}}})");
}

TEST_CASE("reasoning comes as reasoning_content, and its tokens are counted") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + R"(,"stream_options":{"include_usage":true}})");
  const std::string bytes = bytes_of(*answer, {"<think>", "hm", "</think>", "\n\n", "so"});
  CHECK(bytes.find(R"("delta":{"role":"assistant","reasoning_content":"hm"})") != std::string::npos);
  CHECK(bytes.find(R"("delta":{"content":"so"})") != std::string::npos);
  CHECK(bytes.find("think") == std::string::npos);
  CHECK(bytes.find(R"("reasoning_tokens":3)") != std::string::npos);

  const auto opened = answer_to(Endpoint::chat_completions, kChat + "}");
  opened->set_reasoning_open();
  CHECK(bytes_of(*opened, {"hm</think>so"}).find(R"({"role":"assistant","reasoning_content":"hm","content":"so"})") !=
        std::string::npos);
}

TEST_CASE("what is known of the model comes before the first token, and is that of the model which answers") {
  actors::AnsweringModel model{.name = "other", .numerics_id = "g", .reasoning = {.open = "<r>", .close = "</r>"}};
  const auto answer = answer_to(Endpoint::chat_completions, kChat + R"(,"model":"m"})");
  answer->set_model(model);
  const std::string bytes = bytes_of(*answer, {"<r>hm</r>so"});
  CHECK(bytes.find(R"("reasoning_content":"hm","content":"so")") != std::string::npos);
  CHECK(bytes.find(R"("model":"m","system_fingerprint":"g")") != std::string::npos);
  AnswerFacts facts = facts_of_test();
  facts.takes_name = true;
  const auto unnamed = make_answer(taken(Endpoint::chat_completions, kChat + "}"), std::move(facts));
  unnamed->set_model(model);
  CHECK(bytes_of(*unnamed, {"so"}).find(R"("model":"other")") != std::string::npos);
}

TEST_CASE("logprobs of a chat have texts, bytes and the likeliest tokens") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + R"(,"logprobs":true,"top_logprobs":1})");
  actors::TokenRun run = run_of("", {100});
  run.logprobs = {{.id = 100, .logprob = -0.5f, .top = {{1, -0.25f}}}};
  CHECK(answer->on_tokens(std::move(run)).bytes ==
        kChunk + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":{"content":[)"
                 R"({"token":"��","logprob":-0.5,"bytes":[226,130],"top_logprobs":[)"
                 R"({"token":"b","logprob":-0.25,"bytes":[98]}]}],"refusal":null},"finish_reason":null}]})"
                 "\n\n");
}

TEST_CASE("a completion streams texts, its prompt first where it is to be echoed") {
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":"Once","echo":true,"stream":true,"max_tokens":2})");
  const std::string chunk =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","system_fingerprint":"f",)"
      R"("choices":[)";
  CHECK(bytes_of(*answer, {" a", "b<think>"}) ==
        chunk + R"({"index":0,"text":"Once a","logprobs":null,"finish_reason":null}]})" + "\n\n" + chunk +
            R"({"index":0,"text":"b<think>","logprobs":null,"finish_reason":null}]})" + "\n\n" + chunk +
            R"({"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"troupe":{"choices":[)" +
            receipt_of_test("eos", 2) + "]}}\n\ndata: [DONE]\n\n");
}

TEST_CASE("choices of several prompts are counted through, and nothing is sent before each prompt is admitted") {
  const std::string body = R"({"prompt":["Once",[100]],"n":2,"echo":true,"stream":true,"max_tokens":1,)"
                           R"("stream_options":{"include_usage":true}})";
  const auto run = [](std::uint32_t choice, const std::string& text) {
    actors::TokenRun tokens = run_of(text);
    tokens.choice = choice;
    return tokens;
  };
  const auto end = [](std::uint32_t choice, Outcome outcome) {
    actors::End ended = end_of(outcome, 1);
    ended.choice = choice;
    return ended;
  };
  const auto answer = answer_to(Endpoint::completions, body);
  CHECK(answer->on_tokens(run(1, " a")).bytes.empty());
  CHECK(answer->on_end(end(1, Outcome::eos)).bytes.empty());
  const AnswerOutput first = answer->on_tokens(run(2, "b"));
  REQUIRE(first.head);
  CHECK(first.head->streams);
  const auto at = [&](const char* part) { return first.bytes.find(part); };
  CHECK(at(R"({"index":1,"text":"Once a",)") < at(R"({"index":1,"text":"","logprobs":null,"finish_reason":"stop"})"));
  CHECK(at(R"("finish_reason":"stop"})") < at(R"({"index":2,)"));
  CHECK(at(R"("index":2)") != std::string::npos);
  std::string rest = answer->on_end(end(2, Outcome::eos)).bytes + answer->on_tokens(run(0, "c")).bytes;
  rest += answer->on_end(end(3, Outcome::length)).bytes;
  const AnswerOutput last = answer->on_end(end(0, Outcome::eos));
  CHECK(last.last);
  CHECK(rest.find(R"({"index":3,)") != std::string::npos);
  const std::uint32_t each = end_of(Outcome::eos, 1).usage.prompt_tokens;
  CHECK(last.bytes.find("\"prompt_tokens\":" + std::to_string(2 * each)) != std::string::npos);

  // One that is refused refuses all, with its status.
  const auto refused = answer_to(Endpoint::completions, body);
  CHECK(refused->on_tokens(run(0, " a")).bytes.empty());
  actors::End why = end(2, Outcome::too_long);
  why.field = "prompt";
  const AnswerOutput error = refused->on_end(std::move(why));
  REQUIRE(error.head);
  CHECK(error.head->status == 400);
  CHECK(error.last);
  CHECK(error.bytes.find(R"("param":"prompt[1]")") != std::string::npos);
}

TEST_CASE("an answer has no receipt where none is asked for") {
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":"Once","troupe":{"receipt":false}})");
  CHECK(bytes_of(*answer, {"x"}).find("troupe") == std::string::npos);
  const auto user = answer_to(Endpoint::completions, R"({"prompt":"Once","user":"u","troupe":{"receipt":false}})");
  CHECK(bytes_of(*user, {"x"}).find(R"("troupe":{"user":"u"}})") != std::string::npos);
}

TEST_CASE("a prompt that is echoed alone has no tokens behind it") {
  for (const bool streams : {false, true}) {
    const auto answer = answer_to(Endpoint::completions, std::string(R"({"prompt":"Once","echo":true,"max_tokens":0)") +
                                                             (streams ? R"(,"stream":true})" : "}"));
    std::string bytes = answer->on_tokens(run_of(" upon")).bytes;
    bytes += answer->on_end(end_of(Outcome::eos, 1)).bytes;
    INFO(bytes);
    CHECK(bytes.find(R"("text":"Once")") != std::string::npos);
    CHECK(bytes.find("upon") == std::string::npos);
    CHECK(bytes.find(R"("finish_reason":"length")") != std::string::npos);
    CHECK((streams || bytes.find(R"("completion_tokens":0)") != std::string::npos));
  }
}

TEST_CASE("ids that are echoed become their text") {
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":[100,101,0,1],"echo":true})");
  CHECK(bytes_of(*answer, {"x"}).find(R"("text":"€abx")") != std::string::npos);
}

TEST_CASE("an echoed prompt has logprobs, but for its first token, which is in no text if it only begins it") {
  for (const bool streams : {false, true}) {
    const auto answer = answer_to(Endpoint::completions, std::string(R"({"prompt":[1,0,1],"echo":true,"logprobs":1)") +
                                                             (streams ? R"(,"stream":true})" : "}"));
    actors::TokenRun run = run_of("x", {1});
    run.prompt_logprobs = {{.id = 1, .logprob = std::numeric_limits<float>::quiet_NaN(), .top = {}},
                           {.id = 0, .logprob = -2, .top = {{1, -0.5f}}},
                           {.id = 1, .logprob = -0.5f, .top = {{1, -0.5f}}}};
    run.logprobs = {{.id = 1, .logprob = -1, .top = {{1, -1}}}};
    const std::string first = answer->on_tokens(std::move(run)).bytes;
    const std::string all = first + answer->on_end(end_of(Outcome::eos, 1)).bytes;
    CHECK(all.find(R"("logprobs":{"tokens":["b","a","b","b"],"token_logprobs":[null,-2,-0.5,-1],)"
                   R"("top_logprobs":[null,{"b":-0.5,"a":-2},{"b":-0.5},{"b":-1}],"text_offset":[0,1,2,3]})") !=
          std::string::npos);
  }
  // The text "x" does not begin with what the tokenizer put before it.
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":"x","echo":true,"logprobs":0})");
  actors::TokenRun run = run_of("b", {1});
  run.prompt_logprobs = {{.id = 0, .logprob = std::numeric_limits<float>::quiet_NaN(), .top = {}},
                         {.id = 1, .logprob = -2, .top = {}}};
  run.logprobs = {{.id = 1, .logprob = -1, .top = {}}};
  (void)answer->on_tokens(std::move(run));
  CHECK(answer->on_end(end_of(Outcome::eos, 1)).bytes.find(R"("text_offset":[0,0,1])") != std::string::npos);
}

TEST_CASE("logprobs of a completion are four arrays, with offsets in characters over the whole answer") {
  const auto answer = answer_to(Endpoint::completions, R"({"prompt":"x","logprobs":1,"stream":true})");
  actors::TokenRun run = run_of("€", {100, 101});
  run.logprobs = {{.id = 100, .logprob = -1, .top = {{1, -0.5f}}}, {.id = 101, .logprob = -2, .top = {{101, -2}}}};
  const std::string first = answer->on_tokens(std::move(run)).bytes;
  CHECK(first.find(R"("logprobs":{"tokens":["bytes:\\xe2\\x82","bytes:\\xac"],"token_logprobs":[-1,-2],)"
                   R"("top_logprobs":[{"b":-0.5,"bytes:\\xe2\\x82":-1},{"bytes:\\xac":-2}],"text_offset":[0,1]})") !=
        std::string::npos);
  run = run_of("b", {1});
  run.logprobs = {{.id = 1, .logprob = -std::numeric_limits<float>::infinity(), .top = {}}};
  const std::string second = answer->on_tokens(std::move(run)).bytes;
  CHECK(second.find(R"("token_logprobs":[-9999],)") != std::string::npos);
  CHECK(second.find(R"("text_offset":[1])") != std::string::npos);
}

actors::End embedded() {
  actors::End end = end_of(Outcome::eos, 0);
  auto vectors = std::make_shared<actors::Embeddings>();
  vectors->dim = 2;
  vectors->values = {0.5f, -1, 0.25f, 3};
  end.embeddings = std::move(vectors);
  return end;
}

TEST_CASE("vectors come as numbers, or as base64 of the same floats") {
  const auto numbers = answer_to(Endpoint::embeddings, R"({"input":["a","b"]})");
  CHECK(numbers->on_end(embedded()).bytes ==
        R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]},)"
        R"({"object":"embedding","index":1,"embedding":[0.25,3]}],"model":"m",)"
        R"("usage":{"prompt_tokens":5,"total_tokens":5},)"
        R"("troupe":{"queue_seconds":0,"compute_seconds":0,"cpu_seconds":0}})");
  const auto text = answer_to(Endpoint::embeddings, R"({"input":["a","b"],"encoding_format":"base64"})");
  const std::string bytes = text->on_end(embedded()).bytes;
  CHECK(bytes.find(R"("embedding":"AAAAPwAAgL8=")") != std::string::npos);
  CHECK(bytes.find(R"("embedding":"AACAPgAAQEA=")") != std::string::npos);
  const auto wrong = answer_to(Endpoint::embeddings, R"({"input":"a","dimensions":3})");
  CHECK(wrong->on_end(embedded()).head->status == 400);
}

TEST_CASE("a request refused before its first token has the status of the refusal, also if it streams") {
  for (const char* stream : {"true", "false"}) {
    const auto answer =
        answer_to(Endpoint::chat_completions,
                  R"({"messages":[{"role":"user","content":"x"}],"stream":)" + std::string(stream) + "}");
    actors::End end = end_of(Outcome::queue_full, 0);
    end.message = "the queue is full";
    end.field = "max-queued-requests";
    end.retry_after = std::chrono::milliseconds(1500);
    const AnswerOutput out = answer->on_end(std::move(end));
    REQUIRE(out.head);
    CHECK(out.head->status == 429);
    CHECK(out.head->content_type == "application/json");
    CHECK(out.head->retry_after == std::chrono::milliseconds(1500));
    CHECK(out.head->should_retry == true);
    CHECK(out.last);
    CHECK(out.bytes == R"({"error":{"message":"Rate limit reached: the queue is full","type":"rate_limit_error",)"
                       R"("param":"max-queued-requests","code":"queue_full"}})");
  }
}

TEST_CASE("a request that fails after its first token ends its stream with the error") {
  const auto answer = answer_to(Endpoint::chat_completions, kChat + "}");
  CHECK(answer->on_tokens(run_of("a")).head->streams);
  actors::End end = end_of(Outcome::worker_lost, 1);
  end.message = "the worker was lost";
  const AnswerOutput out = answer->on_end(std::move(end));
  CHECK_FALSE(out.head);
  CHECK(out.last);
  CHECK(out.bytes ==
        "data: {\"error\":{\"message\":\"the worker was lost\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"worker_lost\"}}\n\n");
}

TEST_CASE("a refusal names the field that the request had") {
  const auto param = [](Endpoint endpoint, const std::string& body, const char* field) {
    actors::End end = end_of(Outcome::invalid_argument, 0);
    end.field = field;
    const std::string bytes = answer_to(endpoint, body)->on_end(std::move(end)).bytes;
    const auto json = read_json(bytes);
    return *find_member(*find_member(*json->as<JsonObject>(), "error")->as<JsonObject>(), "param")->as<std::string>();
  };
  CHECK(param(Endpoint::completions, R"({"prompt":"x"})", "sampling.top_p") == "top_p");
  CHECK(param(Endpoint::completions, R"({"prompt":"x"})", "token_ids") == "prompt");
  CHECK(param(Endpoint::responses, R"({"input":"x"})", "text") == "input");
  CHECK(param(Endpoint::embeddings, R"({"input":"x"})", "texts") == "input");
}

// The names of the events, and that their data are JSON.
std::vector<std::string> names_of_events(const std::string& bytes) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = bytes.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string event = bytes.substr(at, end - at);
    at = end + 2;
    const std::size_t line = event.find('\n');
    REQUIRE(event.starts_with("event: "));
    REQUIRE(event.substr(line + 1).starts_with("data: "));
    REQUIRE(read_json(event.substr(line + 7)));
    names.push_back(event.substr(7, line - 7));
  }
  return names;
}

TEST_CASE("a response streams its items and their parts, numbered, and ends with all of it") {
  const auto answer = answer_to(Endpoint::responses, R"({"input":"hi","stream":true})");
  const std::string bytes = bytes_of(*answer, {"<think>hm", "</think>", "so", " be it"});
  CHECK(names_of_events(bytes) ==
        std::vector<std::string>{
            "response.created", "response.in_progress",
            // reasoning
            "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
            "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
            // message
            "response.output_item.added", "response.content_part.added", "response.output_text.delta",
            "response.output_text.delta", "response.output_text.done", "response.content_part.done",
            "response.output_item.done", "response.completed"});
  std::size_t number = 0;
  for (std::size_t at = bytes.find("\"sequence_number\":"); at != std::string::npos;
       at = bytes.find("\"sequence_number\":", at + 1)) {
    const std::string expected = std::to_string(number++) + ",";
    CHECK(bytes.substr(at + 18, expected.size()) == expected);
  }
  CHECK(number == 16);
  CHECK(bytes.find(R"({"type":"response.output_text.delta","sequence_number":11,"item_id":"msg_1","output_index":1,)"
                   R"("content_index":0,"delta":" be it","logprobs":[]})") != std::string::npos);
  CHECK(bytes.find(R"("output":[{"type":"reasoning","id":"rs_1","summary":[],"status":"completed","content":[)"
                   R"({"type":"reasoning_text","text":"hm"}]},{"type":"message","id":"msg_1","role":"assistant",)"
                   R"("status":"completed","content":[{"type":"output_text","text":"so be it","annotations":[],)"
                   R"("logprobs":[]}]}])") != std::string::npos);
}

TEST_CASE("a response that is cut off is incomplete, and one that fails says so") {
  const auto cut = answer_to(Endpoint::responses, R"({"input":"hi","stream":true,"max_output_tokens":1})");
  const std::string bytes = bytes_of(*cut, {"a"}, Outcome::length);
  CHECK(names_of_events(bytes).back() == "response.incomplete");
  CHECK(bytes.find(R"("incomplete_details":{"reason":"max_output_tokens"})") != std::string::npos);
  const auto lost = answer_to(Endpoint::responses, R"({"input":"hi","stream":true})");
  (void)lost->on_tokens(run_of("a"));
  const AnswerOutput out = lost->on_end(end_of(Outcome::worker_lost, 1));
  CHECK(names_of_events(out.bytes) == std::vector<std::string>{"response.failed"});
  CHECK(out.bytes.find(R"("status":"failed")") != std::string::npos);
  const auto empty = answer_to(Endpoint::responses, R"({"input":"hi","stream":true})");
  CHECK(names_of_events(bytes_of(*empty, {})).size() == 8);
}

TEST_CASE("an answer that streams has a head and what clients pass over for a silence, others have nothing") {
  const auto whole = answer_to(Endpoint::chat_completions, R"({"messages":[{"role":"user","content":"hi"}]})");
  CHECK_FALSE(whole->streams());
  CHECK_FALSE(whole->on_silence().head);
  CHECK(whole->on_silence().bytes.empty());
  const auto answer = answer_to(Endpoint::chat_completions, kChat + "}");
  CHECK(answer->streams());
  const AnswerOutput first = answer->on_silence();
  REQUIRE(first.head);
  CHECK(first.head->status == 200);
  CHECK(first.bytes == ": keep-alive\n\n");
  const AnswerOutput second = answer->on_silence();
  CHECK_FALSE(second.head);
  CHECK(second.bytes == ": keep-alive\n\n");
  const AnswerOutput text = answer->on_tokens(run_of("a"));
  CHECK_FALSE(text.head);
  CHECK(text.bytes.starts_with("data: {"));
  const AnswerOutput lost = answer->on_end(end_of(Outcome::worker_lost, 1));
  CHECK(lost.last);
  CHECK(lost.cut_off);
  CHECK_FALSE(bytes_of(*answer_to(Endpoint::chat_completions, kChat + "}"), {"a"}).empty());
}

TEST_CASE("a silence is a second after the admission, then 15 seconds after each byte") {
  using namespace std::chrono_literals;
  const StreamSilence::TimePoint start{100h};
  StreamSilence silence(SilenceLimits{});
  CHECK_FALSE(silence.due());
  silence.admitted(start);
  CHECK(silence.due() == start + 1s);
  silence.sent(start + 1s);
  CHECK(silence.due() == start + 16s);
  silence.sent(start + 3s);
  CHECK(silence.due() == start + 18s);
  StreamSilence begun(SilenceLimits{});
  begun.sent(start);
  begun.admitted(start + 1s);  // of the rest: its head was sent
  CHECK(begun.due() == start + 15s);
}

TEST_CASE("a response repeats what the request said") {
  const auto answer = answer_to(Endpoint::responses,
                                R"({"input":"hi","instructions":"be brief","temperature":0.5,"metadata":{"k":"v"},
                                    "reasoning":{"effort":"low"},"user":"u","store":false})");
  const std::string body = bytes_of(*answer, {"a"});
  for (const char* part :
       {R"("instructions":"be brief")", R"("temperature":0.5)", R"("metadata":{"k":"v"})", R"("store":false)",
        R"("reasoning":{"effort":"low"})", R"("user":"u")", R"("status":"completed")", R"("max_output_tokens":null)",
        R"("usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":0},)"}) {
    INFO(part);
    CHECK(body.find(part) != std::string::npos);
  }
}

TEST_CASE("a response says with which numbers it was drawn, where the request leaves them out") {
  const auto answer = answer_to(Endpoint::responses, R"({"input":"hi","top_p":0.75})");
  answer->set_drawing(0.25f, 0.5f);
  const std::string body = bytes_of(*answer, {"a"});
  INFO(body);
  CHECK(body.find(R"("temperature":0.25,)") != std::string::npos);
  CHECK(body.find(R"("top_p":0.75,)") != std::string::npos);  // as it was asked for
}

const std::string kMessages = R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}])";

TEST_CASE("Anthropic's messages stream blocks of thinking and of text") {
  const auto answer = answer_to(Endpoint::messages, kMessages + R"(,"stream":true,"thinking":{"type":"adaptive"}})");
  CHECK(bytes_of(*answer, {"<think>hm", "</think>so"}) ==
        "event: message_start\n"
        R"(data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m",)"
        R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,)"
        R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":0}}})"
        "\n\nevent: content_block_start\n"
        R"(data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"",)"
        R"("signature":""}})"
        "\n\nevent: content_block_delta\n"
        R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})"
        "\n\nevent: content_block_delta\n"
        R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"unsigned"}})"
        "\n\nevent: content_block_stop\n"
        R"(data: {"type":"content_block_stop","index":0})"
        "\n\nevent: content_block_start\n"
        R"(data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})"
        "\n\nevent: content_block_delta\n"
        R"(data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"so"}})"
        "\n\nevent: content_block_stop\n"
        R"(data: {"type":"content_block_stop","index":1})"
        "\n\nevent: message_delta\n"
        R"(data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{)"
        R"("input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":2},)"
        R"("troupe":{"choices":[)" +
            receipt_of_test("eos", 2) +
            "]}}\n\nevent: message_stop\n"
            R"(data: {"type":"message_stop"})"
            "\n\n");
}

TEST_CASE("without thinking asked for, Anthropic's messages leave it out") {
  const auto answer = answer_to(Endpoint::messages, kMessages + "}");
  actors::End end = end_of(Outcome::stop_string, 3);
  end.stop = "###";
  (void)answer->on_tokens(run_of("<think>hm</think>so"));
  CHECK(answer->on_end(std::move(end)).bytes ==
        R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"so"}],)"
        R"("stop_reason":"stop_sequence","stop_sequence":"###","usage":{"input_tokens":1,)"
        R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3},"troupe":{"choices":[)" +
            receipt_of_test("stop_string", 3, 0, "###") + "]}}");
}

TEST_CASE("Anthropic's errors have their own shape, as bodies and as events") {
  actors::End end = end_of(Outcome::draining, 0);
  end.message = "no";
  CHECK(answer_to(Endpoint::messages, kMessages + "}")->on_end(actors::End(end)).bytes ==
        R"({"type":"error","error":{"type":"overloaded_error","message":"no"},"request_id":"req_1"})");
  const auto begun = answer_to(Endpoint::messages, kMessages + R"(,"stream":true})");
  (void)begun->on_tokens(run_of("a"));
  CHECK(begun->on_end(std::move(end)).bytes ==
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"},"
        "\"request_id\":null}\n\n");
}

TEST_CASE("every outcome that is an error has a status, a type and a code") {
  for (const scheduler::OutcomeInfo& row : scheduler::outcomes()) {
    if (row.kind == scheduler::OutcomeKind::done && row.outcome != Outcome::cancelled) continue;
    const ApiError error = api_error(end_of(row.outcome));
    INFO(row.name);
    CHECK(error.status == row.http_status);
    CHECK(error.status >= 400);
    CHECK_FALSE(error.type.empty());
    CHECK_FALSE(error.code.empty());
    CHECK_FALSE(error.message.empty());
    // What is refused without a time to come back can never be served.
    CHECK(error.retryable == (row.retryable && row.kind != scheduler::OutcomeKind::refused));
    actors::End later = end_of(row.outcome);
    later.retry_after = std::chrono::milliseconds(5);
    CHECK(api_error(later).retryable == row.retryable);
  }
}

TEST_CASE("bodies of the other endpoints") {
  CHECK(count_tokens_body(12) == R"({"input_tokens":12})");
  const std::vector<TokenId> ids = {1, 2};
  const std::vector<std::string> pieces = {"a", "\xff"};
  CHECK(tokenize_body(ids, {}, 8) == R"({"tokens":[1,2],"count":2,"max_context":8,"max_model_len":8})");
  CHECK(tokenize_body(ids, pieces, 8) ==
        R"({"tokens":[{"id":1,"piece":"a"},{"id":2,"piece":[255]}],"count":2,"max_context":8,"max_model_len":8})");
  CHECK(detokenize_body("a\n") == R"({"content":"a\n","prompt":"a\n"})");
  CHECK(tokenizer_info_body(
            {.model = "m", .bos = "<s>", .eos = "</s>", .unknown = std::nullopt, .adds_bos = true, .max_context = 8}) ==
        R"({"model":"m","bos_token":"<s>","eos_token":"</s>","unk_token":null,"pad_token":null,)"
        R"("add_bos_token":true,"model_max_length":8,"chat_template":null})");
  CHECK(apply_template_body("<s>") == R"({"prompt":"<s>"})");
  const std::vector<ListedModel> models = {
      {.name = "m", .max_context = 4, .vocab_size = 3, .num_parameters = 5, .numerics_id = "x"}};
  const std::string model =
      R"({"id":"m","object":"model","created":9,"owned_by":"troupe",)"
      R"("troupe":{"readiness":"ready","max_context":4,"vocab_size":3,"num_parameters":5,"numerics_id":"x","chat_template":false}})";
  CHECK(models_body(models, 9) == R"({"object":"list","data":[)" + model + "]}");
  CHECK(model_body(models[0], 9) == model);
  ListedModel named = models[0];
  named.likely_template = "gemma";
  CHECK(model_body(named, 9).ends_with(R"("chat_template":false,"likely_chat_template":"gemma"}})"));
  named.has_chat_template = true;
  CHECK(model_body(named, 9).find("likely") == std::string::npos);
  CHECK(model_body({.name = "m", .is_loaded = false, .readiness = "loading", .load_fraction = 0.5}, 9) ==
        R"({"id":"m","object":"model","created":9,"owned_by":"troupe",)"
        R"("troupe":{"readiness":"loading","load_fraction":0.5}})");
}

}  // namespace
}  // namespace troupe::ipc::api
