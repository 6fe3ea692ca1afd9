#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "tests/ipc/http/api/api_support.h"

namespace troupe::ipc::api {
namespace {

using scheduler::Outcome;

std::string chat_with(const std::string& members) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}";
}
std::string text_with(const std::string& members) {
  return R"({"prompt":"hi")" + (members.empty() ? "" : "," + members) + "}";
}
std::string messages_with(const std::string& members) {
  return R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) +
         "}";
}

std::string arguments_of(Endpoint endpoint, const std::string& body) {
  return chat_of(taken(endpoint, body)).variables;
}

TEST_CASE("numbers below float32's normal ones are the smallest of these: threads that compute take them for 0") {
  const auto call =
      taken(Endpoint::chat_completions, chat_with(R"("top_p":1e-300,"min_p":1e-40,"presence_penalty":-1e-42)"));
  constexpr float kLeast = std::numeric_limits<float>::min();
  CHECK(call.request.sampling.top_p == kLeast);
  CHECK(call.request.sampling.min_p == kLeast);
  CHECK(call.request.sampling.presence_penalty == -kLeast);
}

TEST_CASE("sampling parameters reach the engine, and the defaults are the neutral ones") {
  const auto call = taken(Endpoint::chat_completions, chat_with(R"(
      "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"presence_penalty":-1,"frequency_penalty":1.5,
      "repeat_penalty":1.1,"repeat_last_n":-1,"seed":-2,"ignore_eos":true,"stop_token_ids":[1,2.0],"n":3,
      "logit_bias":{"5":-100,"7":1.5},"stop":["a","b"],"max_completion_tokens":12)"));
  const engine::SamplingParams& sampling = call.request.sampling;
  CHECK(sampling.temperature == 0.5f);
  CHECK(sampling.top_p == 0.9f);
  CHECK(sampling.top_k == 40);
  CHECK(sampling.min_p == 0.05f);
  CHECK(sampling.presence_penalty == -1);
  CHECK(sampling.frequency_penalty == 1.5f);
  CHECK(sampling.repeat_penalty == 1.1f);
  CHECK(sampling.repeat_last_n == -1);
  CHECK(call.request.has_seed);
  CHECK(sampling.seed == std::numeric_limits<std::uint64_t>::max() - 1);
  CHECK(sampling.ignore_eos);
  CHECK(sampling.stop_ids == std::vector<TokenId>{1, 2});
  CHECK(call.request.num_choices == 3);
  CHECK(sampling.logit_bias == std::vector<std::pair<TokenId, float>>{{5, -100.0f}, {7, 1.5f}});
  CHECK(call.request.stop_strings == std::vector<std::string>{"a", "b"});
  CHECK(sampling.max_tokens == 12);

  const auto plain = taken(Endpoint::chat_completions, chat_with(""));
  const engine::SamplingParams defaults;
  CHECK(plain.request.sampling.temperature == defaults.temperature);
  CHECK(plain.request.sampling.max_tokens == defaults.max_tokens);
  CHECK_FALSE(plain.request.has_seed);
  CHECK(plain.request.num_choices == 1);
}

TEST_CASE("a seed may be text, since not every client has integers of 64 bits") {
  const auto seed = [](const std::string& json) {
    return taken(Endpoint::completions, text_with("\"seed\":" + json)).request.sampling.seed;
  };
  CHECK(seed("18446744073709551615") == 18446744073709551615u);
  CHECK(seed("\"18446744073709551615\"") == 18446744073709551615u);
  CHECK(seed("\"12\"") == 12);
  for (const char* wrong : {"\"\"", "\"x\"", "\"1 \"", "\"18446744073709551616\"", "1.5", "1e300"})
    CHECK(refused(Endpoint::completions, text_with(std::string("\"seed\":") + wrong)).param == "seed");
}

TEST_CASE("-1 is a new seed, no limit of tokens and no limit of candidates, as for llama.cpp and vLLM") {
  for (const char* seed : {"-1", "\"-1\""}) {
    const auto call = taken(Endpoint::completions, text_with(std::string("\"seed\":") + seed));
    CHECK_FALSE(call.request.has_seed);
  }
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  CHECK(taken(Endpoint::completions, text_with(R"("max_tokens":-1,"top_k":-1)")).request.sampling.max_tokens == kMost);
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("max_completion_tokens":-1)")).request.sampling.max_tokens ==
        kMost);
  CHECK(taken(Endpoint::responses, R"({"input":"x","max_output_tokens":-1})").request.sampling.max_tokens == kMost);
  CHECK(taken(Endpoint::completions, text_with(R"("top_k":-1)")).request.sampling.top_k == -1);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("max_tokens":-5)")).message ==
        "max_tokens is -5; it must be an integer, from 1 to 4294967295, or -1 for no limit");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("n":0)")).message ==
        "n is 0; it must be an integer, from 1 to 64");
}

TEST_CASE("an echoed prompt may have no tokens behind it") {
  const auto call = taken(Endpoint::completions, text_with(R"("max_tokens":0,"echo":true,"logprobs":1)"));
  CHECK(call.only_prompt);
  CHECK(call.request.sampling.max_tokens == 1);
  CHECK(call.request.sampling.prompt_logprobs);
  CHECK_FALSE(taken(Endpoint::completions, text_with(R"("max_tokens":1,"echo":true)")).only_prompt);
  CHECK_THAT(refused(Endpoint::completions, text_with(R"("max_tokens":0)")).message, Catch::Contains("set echo"));
}

TEST_CASE("special tokens are added under either name") {
  CHECK_FALSE(taken(Endpoint::completions, text_with(R"("add_special_tokens":false)")).request.add_special);
  CHECK_FALSE(taken(Endpoint::chat_completions, chat_with(R"("add_special_tokens":false)")).request.add_special);
  CHECK(taken(Endpoint::tokenize, R"({"content":"x","add_special_tokens":true})").request.add_special);
  CHECK_FALSE(taken(Endpoint::tokenize, R"({"content":"x"})").request.add_special);
  CHECK(taken(Endpoint::embeddings, R"({"input":"x"})").request.add_special);
  CHECK(refused(Endpoint::completions, text_with(R"("add_special":true,"add_special_tokens":false)")).param ==
        "add_special_tokens");
}

TEST_CASE("what there is nothing to include or to keep of is taken") {
  const auto call =
      taken(Endpoint::responses, R"({"input":"x","store":true,"include":["reasoning.encrypted_content"]})");
  CHECK_FALSE(call.logprobs);
  CHECK(taken(Endpoint::responses,
              R"({"input":"x","include":["reasoning.encrypted_content","message.output_text.logprobs"]})")
            .logprobs);
  CHECK(refused(Endpoint::responses, R"({"input":"x","include":["all"]})").param == "include");
  (void)taken(Endpoint::chat_completions, chat_with(R"("store":true)"));
  (void)taken(Endpoint::messages, R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a",)"
                                  R"("cache_control":{"type":"ephemeral","ttl":"1h"}}]}]})");
}

TEST_CASE("a request chooses what drafts for it; without a choice the server's own stays") {
  const std::string asked = R"("speculation":{"type":"ngram","n_max":4,"n_min":0,"p_min":0.5})";
  for (const auto& [endpoint, body] :
       {std::pair(Endpoint::chat_completions, chat_with(asked)), std::pair(Endpoint::completions, text_with(asked)),
        std::pair(Endpoint::messages, messages_with(asked))}) {
    const engine::SpeculationChoice choice = taken(endpoint, body).request.speculation;
    CHECK(choice.source == engine::DraftSource::ngram);
    CHECK(choice.n_max == 4u);
    CHECK(choice.n_min == 0u);
    CHECK(choice.p_min == 0.5f);
  }
  const engine::SpeculationChoice none = taken(Endpoint::completions, text_with("")).request.speculation;
  CHECK_FALSE(none.source);
  CHECK_FALSE(none.n_max);
  CHECK(refused(Endpoint::completions, text_with(R"("speculation":{"type":"magic"})")).param == "speculation.type");
  CHECK(refused(Endpoint::completions, text_with(R"("speculation":{"n_max":-1})")).param == "speculation.n_max");
}

TEST_CASE("values out of range are refused with their name") {
  const std::pair<const char*, const char*> wrong[] = {{"temperature", "-0.1"},
                                                       {"temperature", "1e39"},
                                                       {"top_p", "0"},
                                                       {"top_p", "1.1"},
                                                       {"min_p", "2"},
                                                       {"top_k", "-2"},
                                                       {"repeat_last_n", "1e10"},
                                                       {"top_k", "3000000000"},
                                                       {"n", "0"},
                                                       {"n", "65"},
                                                       {"n", "-1"},
                                                       {"max_tokens", "0"},
                                                       {"max_tokens", "-2"},
                                                       {"max_tokens", "1.5"},
                                                       {"presence_penalty", "101"},
                                                       {"repeat_last_n", "-2"},
                                                       {"priority", "1001"},
                                                       {"deadline_ms", "0"},
                                                       {"stop", "[\"\"]"},
                                                       {"stop", "[1]"},
                                                       {"stop_token_ids", "[-1]"},
                                                       {"stop_token_ids", "[\"1\"]"},
                                                       {"logit_bias", R"({"x":1})"},
                                                       {"logit_bias", R"({"1":"1"})"},
                                                       {"logit_bias", R"({"-1":1})"},
                                                       {"logit_bias", R"({"1":1e7})"}};
  for (const auto& [name, value] : wrong) {
    INFO(name << " " << value);
    const ApiError error = refused(Endpoint::chat_completions, chat_with('"' + std::string(name) + "\":" + value));
    CHECK(error.status == 400);
    CHECK(error.param == name);
  }
  const std::string long_stop = "\"" + std::string(actors::kMaxStopStringBytes + 1, 's') + "\"";
  CHECK(refused(Endpoint::completions, text_with("\"stop\":" + long_stop)).param == "stop");
  CHECK(refused(Endpoint::messages, messages_with("\"stop_sequences\":[" + long_stop + "]")).param == "stop_sequences");
}

TEST_CASE("counts are bounded before entries are read") {
  const auto array_of = [](std::size_t count, const std::string& value) {
    std::string out = "[" + value;
    for (std::size_t i = 1; i < count; ++i) out += "," + value;
    return out + "]";
  };
  const auto is_refused = [](Endpoint endpoint, const std::string& body, const char* param) {
    const auto call = parse_call(endpoint, body, {});
    const auto* error = std::get_if<ApiError>(&call);
    return error && error->param == param;
  };
  CHECK(is_refused(Endpoint::completions, text_with("\"stop\":" + array_of(17, "\"a\"")), "stop"));
  CHECK(is_refused(Endpoint::completions, text_with("\"stop_token_ids\":" + array_of(65, "1")), "stop_token_ids"));
  CHECK(is_refused(Endpoint::embeddings, "{\"input\":" + array_of(2049, "\"a\"") + "}", "input"));
  CHECK(is_refused(Endpoint::detokenize, "{\"tokens\":" + array_of(65537, "1") + "}", "tokens"));
  const std::string message = R"({"role":"user","content":""})";
  CHECK(is_refused(Endpoint::chat_completions, "{\"messages\":" + array_of(kMaxBodyMessages + 1, message) + "}",
                   "messages"));
  const std::string parts = array_of(kMaxContentParts + 1, R"({"type":"text","text":""})");
  CHECK(is_refused(Endpoint::chat_completions, R"({"messages":[{"role":"user","content":)" + parts + "}]}",
                   "messages[0].content"));
}

TEST_CASE("max_tokens has two names in chat, and 16 is the default of completions") {
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("max_tokens":5)")).request.sampling.max_tokens == 5);
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("max_tokens":5,"max_completion_tokens":5)"))
            .request.sampling.max_tokens == 5);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("max_tokens":5,"max_completion_tokens":6)")).param ==
        "max_completion_tokens");
  CHECK(taken(Endpoint::completions, text_with("")).request.sampling.max_tokens == 16);
  CHECK(taken(Endpoint::responses, R"({"input":"x","max_output_tokens":7})").request.sampling.max_tokens == 7);
}

TEST_CASE("other servers' names of the length are taken, and of several that differ one is refused") {
  for (const std::string name : {"n_predict", "num_predict", "max_new_tokens"}) {
    const auto with = [&](const std::string& value) { return "\"" + name + "\":" + value; };
    for (const Endpoint endpoint : {Endpoint::chat_completions, Endpoint::completions}) {
      const auto body = [&](const std::string& more) {
        return endpoint == Endpoint::completions ? text_with(more) : chat_with(more);
      };
      const ApiCall call = taken(endpoint, body(with("7")));
      CHECK(call.request.sampling.max_tokens == 7);
      CHECK(call.request.has_max_tokens);
      CHECK(taken(endpoint, body(with("-1"))).request.sampling.max_tokens == std::numeric_limits<std::uint32_t>::max());
      CHECK(taken(endpoint, body("\"max_tokens\":7," + with("7"))).request.sampling.max_tokens == 7);
      CHECK(refused(endpoint, body("\"max_tokens\":8," + with("7"))).param == name);
      CHECK(refused(endpoint, body(with("0"))).param == name);
    }
  }
  CHECK_FALSE(taken(Endpoint::completions, text_with("")).request.has_max_tokens);
  CHECK_FALSE(taken(Endpoint::chat_completions, chat_with("")).request.has_max_tokens);
}

TEST_CASE("repetition_penalty is repeat_penalty, and min_tokens is at most max_tokens") {
  const auto penalty = [](const std::string& fields) {
    return taken(Endpoint::chat_completions, chat_with(fields)).request.sampling.repeat_penalty;
  };
  CHECK(penalty(R"("repetition_penalty":1.5)") == 1.5f);
  CHECK(penalty(R"("repetition_penalty":1.5,"repeat_penalty":1.5)") == 1.5f);
  CHECK(penalty(R"("repetition_penalty":null)") == 1);
  for (const char* wrong : {"0", "-1", "101"}) {
    const ApiError error = refused(Endpoint::completions, text_with(R"("repetition_penalty":)" + std::string(wrong)));
    CHECK(error.param == "repetition_penalty");
    CHECK_THAT(error.message, Catch::Contains("above 0 and at most 100"));
  }
  CHECK(refused(Endpoint::completions, text_with(R"("repetition_penalty":1.5,"repeat_penalty":1.4)")).param ==
        "repetition_penalty");
  CHECK(taken(Endpoint::completions, text_with(R"("min_tokens":7)")).request.sampling.min_tokens == 7);
  CHECK(taken(Endpoint::completions, text_with(R"("min_tokens":40)")).request.sampling.max_tokens == 40);
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("min_tokens":7)")).request.sampling.min_tokens == 7);
  const ApiError error = refused(Endpoint::completions, text_with(R"("min_tokens":7,"max_tokens":6)"));
  CHECK(error.param == "min_tokens");
  CHECK(error.message == "min_tokens is 7; it must be at most max_tokens, 6");
}

TEST_CASE("what only tunes another server is passed over and named, what would change an answer if it is neutral") {
  const auto call =
      taken(Endpoint::chat_completions,
            chat_with(R"("num_ctx":4096,"mirostat":0,"mirostat_tau":5.0,"keep_alive":"5m","typical_p":1.0,)"
                      R"("tfs_z":1,"num_gpu":null,"skip_special_tokens":true,"cache_prompt":true)"));
  CHECK(call.ignored == std::vector<std::string_view>{"num_ctx", "mirostat_tau", "keep_alive", "cache_prompt"});
  for (const char* wrong : {R"("mirostat":1)", R"("typical_p":0.9)", R"("tfs_z":0.5)", R"("skip_special_tokens":false)",
                            R"("top_a":0.5)", R"("xtc_probability":0.1)", R"("top_n_sigma":1)"}) {
    const ApiError error = refused(Endpoint::chat_completions, chat_with(wrong));
    CHECK(error.status == 400);
    CHECK(std::string(wrong).starts_with("\"" + error.param + "\""));
  }
  // Not a name that is passed over.
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("num_ctxs":1)")).message ==
        "there is no field num_ctxs here; leave it out");
  CHECK(taken(Endpoint::embeddings, R"({"input":"x","keep_alive":1})").ignored ==
        std::vector<std::string_view>{"keep_alive"});
}

TEST_CASE("control tokens are read in raw prompts alone, and there only if nothing else is said") {
  CHECK(taken(Endpoint::completions, text_with("")).request.parse_special);
  CHECK_FALSE(taken(Endpoint::completions, text_with(R"("parse_special":false)")).request.parse_special);
  CHECK_FALSE(taken(Endpoint::embeddings, R"({"input":"x"})").request.parse_special);
  CHECK_FALSE(taken(Endpoint::chat_completions, chat_with("")).request.parse_special);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("parse_special":true)")).param == "parse_special");
}

TEST_CASE("a text to tokenize has vLLM's name, too, and then vLLM's defaults") {
  const auto ours = taken(Endpoint::tokenize, R"({"content":"x"})");
  CHECK_FALSE(ours.request.add_special);
  CHECK(ours.request.parse_special);
  const auto other = taken(Endpoint::tokenize, R"({"prompt":"x"})");
  CHECK(std::get<std::string>(other.request.prompt) == "x");
  CHECK(other.request.add_special);
  CHECK(other.request.parse_special);
  const auto bare = taken(Endpoint::tokenize, R"({"prompt":"x","add_special_tokens":false,"parse_special":false})");
  CHECK_FALSE(bare.request.add_special);
  CHECK_FALSE(bare.request.parse_special);
  CHECK(refused(Endpoint::tokenize, R"({"prompt":"x","content":"x"})").param == "prompt");
  CHECK(refused(Endpoint::tokenize, "{}").param == "content");
}

TEST_CASE("a conversation keeps roles, texts, names and earlier reasoning") {
  const auto call = taken(Endpoint::chat_completions, R"({"messages":[
      {"role":"system","content":"be brief"},{"role":"user","name":"eve","content":[
      {"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"reasoning_content":"hm"},{"role":"user","content":""}]})");
  const auto& messages = chat_of(call).messages;
  REQUIRE(messages.size() == 4);
  CHECK(messages[0].role == "system");
  CHECK(messages[0].content == "be brief");
  CHECK(messages[0].part_bytes.empty());
  CHECK(messages[1].content == "a\nb");
  CHECK(messages[1].part_bytes == std::vector<std::uint32_t>{1, 1});
  CHECK(messages[1].name == "eve");
  CHECK_FALSE(messages[2].has_content);
  CHECK(messages[3].has_content);
  CHECK(messages[2].reasoning == "hm");
  CHECK(chat_of(call).add_generation_prompt);
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[]})").param == "messages");
  CHECK(refused(Endpoint::chat_completions, R"({"messages":["x"]})").param == "messages");
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[{"role":"function","content":"x"}]})").param ==
        "messages[0].role");
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[{"role":"user"}]})").param == "messages[0].content");
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[{"role":"user","content":["x"]}]})").param ==
        "messages[0].content");
  CHECK(refused(Endpoint::chat_completions,
                R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})")
            .param == "messages[0].content[0].type");
}

TEST_CASE("a conversation keeps what tools were asked and have answered, with the arguments as an object") {
  const auto call = taken(Endpoint::chat_completions, R"({"messages":[{"role":"user","content":"x"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
       "function":{"name":"f","arguments":"{\"q\": [1.0, 2.5, 1e2, 18446744073709551616]}"}},
       {"function":{"name":"g","arguments":""}},{"function":{"name":"h","arguments":{"r":1}}}]},
      {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"42"}]}]})");
  const auto& messages = chat_of(call).messages;
  REQUIRE(messages.size() == 3);
  CHECK(messages[0].members.empty());
  CHECK(messages[1].members ==
        R"({"tool_calls":[{"id":"a","type":"function",)"
        R"("function":{"name":"f","arguments":{"q":[1.0,2.5,100.0,18446744073709551616]}}},)"
        R"({"function":{"name":"g","arguments":{}}},{"function":{"name":"h","arguments":{"r":1}}}]})");
  CHECK(messages[2].members == R"({"tool_call_id":"a"})");
  CHECK(messages[2].content == "42");
  const auto wrong = [](const std::string& message) {
    return refused(Endpoint::chat_completions, "{\"messages\":[" + message + "]}").param;
  };
  CHECK(wrong(R"({"role":"user","content":"x","tool_call_id":"a"})") == "messages[0].tool_call_id");
  CHECK(wrong(R"({"role":"user","content":"x","tool_calls":[{"function":{}}]})") == "messages[0].tool_calls");
  for (const char* calls : {R"([1])", R"([{}])"})
    CHECK(wrong(R"({"role":"assistant","tool_calls":)" + std::string(calls) + "}") == "messages[0].tool_calls");
  // Of an answer that was cut: an agent sends it back as it came.
  for (const auto& [text, object] :
       {std::pair(R"({\"a\": )", R"({"incomplete":"{\"a\": "})"), std::pair("[]", R"({"incomplete":"[]"})")})
    CHECK(chat_of(taken(Endpoint::chat_completions,
                        R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":")" +
                            std::string(text) + R"("}}]}]})"))
              .messages[0]
              .members == R"({"tool_calls":[{"function":{"arguments":)" + std::string(object) + "}}]}");
  CHECK(
      chat_of(taken(Endpoint::chat_completions, R"({"messages":[{"role":"assistant","content":"x","tool_calls":[]}]})"))
          .messages[0]
          .members.empty());
}

TEST_CASE("earlier reasoning has two names") {
  const auto reasoning_of = [](const std::string& members) {
    const auto call =
        taken(Endpoint::chat_completions, R"({"messages":[{"role":"assistant","content":"x",)" + members + "}]}");
    return chat_of(call).messages[0].reasoning;
  };
  CHECK(reasoning_of(R"("reasoning":"hm")") == "hm");
  CHECK(reasoning_of(R"("reasoning":"hm","reasoning_content":"hm")") == "hm");
  CHECK(reasoning_of(R"("reasoning":null)").empty());
  const auto wrong = [](const std::string& message) {
    return refused(Endpoint::chat_completions, "{\"messages\":[" + message + "]}").param;
  };
  CHECK(wrong(R"({"role":"assistant","content":"x","reasoning":"a","reasoning_content":"b"})") ==
        "messages[0].reasoning");
  CHECK(wrong(R"({"role":"user","content":"x","reasoning":"a"})") == "messages[0].reasoning");
}

TEST_CASE("documents, and tools of apply-template, are variables of the template") {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])",
                    tools = R"("tools":[{"type":"function"}])";
  CHECK(chat_of(taken(Endpoint::apply_template, "{" + messages + "," + tools + R"(,"documents":[{"text":"d"}]})"))
            .variables == R"({"documents":[{"text":"d"}],"tools":[{"type":"function"}]})");
  CHECK(chat_of(taken(Endpoint::apply_template, "{" + messages + R"(,"tools":[],"documents":[]})")).variables.empty());
  CHECK(
      chat_of(taken(Endpoint::chat_completions, chat_with(R"("chat_template_kwargs":{"documents":[1]})"))).variables ==
      R"({"documents":[1]})");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("chat_template_kwargs":{"tools":[]})")).param ==
        "chat_template_kwargs");
}

TEST_CASE("a conversation may go on in a session") {
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("session":"tea")")).request.session == "tea");
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("troupe":{"session":"tea"})")).request.session == "tea");
  CHECK_FALSE(taken(Endpoint::chat_completions, chat_with(R"("session":"tea")")).request.session_recompute);
  for (const char* const fields :
       {R"("session":"tea","session_recompute":true)", R"("troupe":{"session":"tea","session_recompute":true})"})
    CHECK(taken(Endpoint::chat_completions, chat_with(fields)).request.session_recompute);
}

TEST_CASE("the reasoning's budget has two names in chat, and is the thinking's of Anthropic") {
  const auto budget = [](Endpoint endpoint, const std::string& body) {
    const auto& set = taken(endpoint, body).request.sampling.reasoning_budget;
    return set ? static_cast<int>(set->num_tokens) : -1;
  };
  CHECK(budget(Endpoint::chat_completions, chat_with(R"("thinking_token_budget":5)")) == 5);
  CHECK(budget(Endpoint::chat_completions, chat_with(R"("reasoning":{"max_tokens":0})")) == 0);
  CHECK(budget(Endpoint::chat_completions, chat_with(R"("reasoning_effort":"high")")) == -1);
  CHECK(budget(Endpoint::responses, R"({"input":"x","reasoning":{"max_tokens":7,"effort":"low"}})") == 7);
  const std::string message = R"("max_tokens":9,"messages":[{"role":"user","content":"x"}])";
  CHECK(budget(Endpoint::messages, "{" + message + R"(,"thinking":{"type":"enabled","budget_tokens":6}})") == 6);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("thinking_token_budget":5,"reasoning":{"max_tokens":6})"))
            .param == "reasoning.max_tokens");
}

TEST_CASE("an answer may go on with the last message, without a generation prompt") {
  const auto continued = [](const char* more) { return chat_of(taken(Endpoint::chat_completions, chat_with(more))); };
  CHECK(continued(R"("continue_final_message":true)").continue_final_message);
  CHECK_FALSE(continued(R"("continue_final_message":true)").add_generation_prompt);
  CHECK(continued(R"("continue_final_message":true,"add_generation_prompt":false)").continue_final_message);
  CHECK_FALSE(continued(R"("add_generation_prompt":false)").continue_final_message);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("continue_final_message":true,"add_generation_prompt":true)"))
            .param == "continue_final_message");
  const auto prefilled = [](const char* role) {
    return chat_of(taken(Endpoint::messages, R"({"max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":")" +
                                                 std::string(role) + R"(","content":"y"}]})"));
  };
  CHECK(prefilled("assistant").continue_final_message);
  CHECK_FALSE(prefilled("user").continue_final_message);
}

TEST_CASE("a completion's prompt is text or ids, one of them") {
  const auto prompt = [](const std::string& json) {
    return taken(Endpoint::completions, "{\"prompt\":" + json + "}").request.prompt;
  };
  using Ids = std::vector<TokenId>;
  CHECK(std::get<std::string>(prompt("\"a\"")) == "a");
  CHECK(std::get<std::string>(prompt("[\"a\"]")) == "a");
  CHECK(std::get<Ids>(prompt("[1,2]")) == Ids{1, 2});
  CHECK(std::get<Ids>(prompt("[[1,2]]")) == Ids{1, 2});
  for (const char* wrong : {"[]", "[[]]", "[1,\"a\"]", "[-1]", "[2147483648]", "[{}]", "[true]", "[null]", "[1.5]",
                            "[\"a\",[]]", "[\"a\",null]", "[[1],[\"b\"]]", "[[1],2]", "[\"a\",[[1]]]"}) {
    INFO(wrong);
    CHECK(refused(Endpoint::completions, std::string("{\"prompt\":") + wrong + "}").param == "prompt");
  }
  CHECK(refused(Endpoint::completions, R"({"prompt":["a",[]]})").message ==
        "prompt[1] must be text or token ids, and not empty");
}

TEST_CASE("a completion may have several prompts, of texts and of ids") {
  const ApiCall call = taken(Endpoint::completions, R"({"prompt":["a",[1,2],"c"],"n":4,"echo":true})");
  CHECK(std::get<std::string>(call.request.prompt) == "a");
  REQUIRE(call.more_prompts.size() == 2);
  CHECK(std::get<std::vector<TokenId>>(call.more_prompts[0]) == std::vector<TokenId>{1, 2});
  CHECK(std::get<std::string>(call.more_prompts[1]) == "c");
  CHECK(call.num_choices() == 12);
  CHECK(taken(Endpoint::completions, R"({"prompt":["a","b"],"n":32})").num_choices() == 64);
  const ApiError many = refused(Endpoint::completions, R"({"prompt":["a","b","c"],"n":32})");
  CHECK(many.param == "prompt");
  CHECK(many.message == "prompt has 3 prompts, with n = 32 that is 96 choices; at most 64 are served");
  CHECK(refused(Endpoint::completions, R"({"prompt":["a","b"],"session":"x"})").param == "prompt");
  // The limit of bytes is that of all prompts together.
  const std::string half(actors::kMaxPromptBytes / 2 + 1, 'x');
  CHECK(refused(Endpoint::completions, "{\"prompt\":[\"" + half + "\",\"" + half + "\"]}").param == "prompt");
}

TEST_CASE("what troupe adds may stand in an object of its own, and not in both places") {
  const ApiCall call = taken(
      Endpoint::completions,
      R"({"prompt":"a","troupe":{"priority":3,"deadline_ms":1500,"cache_scope":"us","session":"talk","receipt":false}})");
  CHECK(call.request.priority == 3);
  CHECK(call.request.deadline == std::chrono::milliseconds(1500));
  CHECK(call.request.cache_scope == "us");
  CHECK(call.request.session == "talk");
  CHECK_FALSE(call.receipt);
  CHECK(taken(Endpoint::completions, R"({"prompt":"a","troupe":{},"priority":2})").request.priority == 2);
  CHECK(refused(Endpoint::completions, R"({"prompt":"a","troupe":{"priority":3},"priority":3})").param ==
        "troupe.priority");
  CHECK(refused(Endpoint::completions, R"({"prompt":"a","troupe":{"priority":-1}})").param == "troupe.priority");
  CHECK(refused(Endpoint::completions, R"({"prompt":"a","troupe":{"deadline_ms":0}})").param == "troupe.deadline_ms");
  CHECK(refused(Endpoint::completions, R"({"prompt":"a","troupe":{"deadline":1}})").param == "troupe.deadline");
  CHECK(refused(Endpoint::responses, R"({"input":"x","troupe":{"session":"talk"}})").param == "troupe.session");
}

TEST_CASE("logprobs are a number in completions and a switch in chat") {
  const auto text = taken(Endpoint::completions, text_with(R"("logprobs":3)"));
  CHECK(text.logprobs);
  CHECK(text.request.sampling.num_logprobs == 3);
  const auto chat = taken(Endpoint::chat_completions, chat_with(R"("logprobs":true,"top_logprobs":2)"));
  CHECK(chat.request.sampling.num_logprobs == 2);
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("logprobs":true)")).request.sampling.num_logprobs == 0);
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("logprobs":false)")).request.sampling.num_logprobs == -1);
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("top_logprobs":2)")).param == "top_logprobs");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("logprobs":true,"top_logprobs":21)")).param == "top_logprobs");
  CHECK(refused(Endpoint::completions, text_with(R"("logprobs":21)")).param == "logprobs");
  CHECK_FALSE(text.request.sampling.prompt_logprobs);
  CHECK(taken(Endpoint::completions, text_with(R"("logprobs":0,"echo":true)")).request.sampling.prompt_logprobs);
  CHECK(refused(Endpoint::completions, text_with(R"("logprobs":0,"echo":true,"n":2)")).param == "echo");
  CHECK(refused(Endpoint::completions, text_with(R"("logprobs":0,"echo":true,"session":"s")")).param == "echo");
  const auto response =
      taken(Endpoint::responses, R"({"input":"x","include":["message.output_text.logprobs"],"top_logprobs":4})");
  CHECK(response.request.sampling.num_logprobs == 4);
  CHECK(refused(Endpoint::responses, R"({"input":"x","top_logprobs":4})").param == "top_logprobs");
}

TEST_CASE("best_of is n") {
  CHECK(taken(Endpoint::completions, text_with(R"("n":2,"best_of":2)")).request.num_choices == 2);
  CHECK(refused(Endpoint::completions, text_with(R"("n":1,"best_of":2)")).param == "best_of");
}

TEST_CASE("stream options are for streams") {
  CHECK(taken(Endpoint::completions, text_with(R"("stream":true,"stream_options":{"include_usage":true})"))
            .include_usage);
  CHECK(refused(Endpoint::completions, text_with(R"("stream_options":{"include_usage":true})")).param ==
        "stream_options");
}

TEST_CASE("inputs of embeddings are texts or ids, one or several") {
  const auto inputs = [](const std::string& json) {
    return taken(Endpoint::embeddings, "{\"input\":" + json + "}").request.embed->texts;
  };
  using Texts = std::vector<std::string>;
  CHECK(std::get<Texts>(inputs("\"a\"")) == Texts{"a"});
  CHECK(std::get<Texts>(inputs("[\"a\",\"b\"]")) == Texts{"a", "b"});
  CHECK(std::get<actors::EmbedIds>(inputs("[1,2]")) == actors::EmbedIds{{1, 2}});
  CHECK(std::get<actors::EmbedIds>(inputs("[[1],[2,3]]")) == actors::EmbedIds{{1}, {2, 3}});
  for (const char* wrong : {"[]", "[\"a\",1]", "[1,\"a\"]", "[[1],\"a\"]", "[[1],[\"a\"]]", "[true]"})
    CHECK(refused(Endpoint::embeddings, std::string("{\"input\":") + wrong + "}").param == "input");
}

TEST_CASE("dimensions other than the model's are refused, before anything is computed where they are known") {
  ApiContext context;
  context.vector_dim = [](const std::string&) { return std::optional<std::uint32_t>(8); };
  CHECK(taken(Endpoint::embeddings, R"({"input":"x","dimensions":8})", context).dimensions == 8u);
  CHECK(refused(Endpoint::embeddings, R"({"input":"x","dimensions":4})", context).param == "dimensions");
  CHECK(taken(Endpoint::embeddings, R"({"input":"x","dimensions":4})").dimensions == 4u);
}

TEST_CASE("a response's input is a text, or messages with the reasoning that led to them") {
  CHECK(chat_of(taken(Endpoint::responses, R"({"input":"hi"})")).messages.front().role == "user");
  const auto call = taken(Endpoint::responses, R"({"instructions":"be brief","input":[
      {"role":"user","content":"a"},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[
        {"type":"output_text","text":"b","annotations":[],"logprobs":[]}]},
      {"role":"user","content":[{"type":"input_text","text":"c"}]}]})");
  const auto& messages = chat_of(call).messages;
  REQUIRE(messages.size() == 4);
  CHECK(messages[0].role == "system");
  CHECK(messages[2].content == "b");
  CHECK(messages[2].reasoning == "hm");
  CHECK(messages[3].reasoning.empty());
  CHECK(refused(Endpoint::responses, R"({"input":[]})").param == "input");
  CHECK(refused(Endpoint::responses, R"({"input":[{"content":"x"}]})").param == "input[0].role");
}

TEST_CASE("Anthropic's messages have a system text, blocks, and an answer that is continued") {
  const auto call = taken(Endpoint::messages, R"({"max_tokens":9,"system":[
      {"type":"text","text":"be","cache_control":{"type":"ephemeral"}},{"type":"text","text":"brief"}],"messages":[
      {"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"b"}]}],"stop_sequences":["x"]})");
  const auto& messages = chat_of(call).messages;
  REQUIRE(messages.size() == 3);
  CHECK(messages[0].content == "be\nbrief");
  CHECK(messages[2].content == "b");
  CHECK(messages[2].reasoning == "hm");
  CHECK_FALSE(chat_of(call).add_generation_prompt);
  CHECK(call.request.stop_strings == std::vector<std::string>{"x"});
  CHECK(chat_of(taken(Endpoint::count_tokens, R"({"messages":[{"role":"user","content":"a"}]})")).messages.size() == 1);
  CHECK(refused(Endpoint::messages, messages_with(R"("system":[1])")).param == "system");
  CHECK(refused(Endpoint::messages,
                R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"thinking","thinking":"x"}]}]})")
            .param == "messages[0].content[0].type");
}

TEST_CASE("reasoning reaches the template by the names that templates have for it") {
  const auto chat = [](const std::string& members) {
    return arguments_of(Endpoint::chat_completions, chat_with(members));
  };
  CHECK(chat("") == "");
  CHECK(chat(R"("reasoning_effort":"low")") == R"({"enable_thinking":true,"thinking":true,"reasoning_effort":"low"})");
  CHECK(chat(R"("reasoning":{"effort":"none"})") == R"({"enable_thinking":false,"thinking":false})");
  CHECK(chat(R"("reasoning":{"enabled":true})") == R"({"enable_thinking":true,"thinking":true})");
  CHECK(chat(R"("chat_template_kwargs":{"x":[1,{"y":null}]})") == R"({"x":[1,{"y":null}]})");
  CHECK(chat(R"("reasoning_effort":"low","chat_template_kwargs":{"thinking":false})") ==
        R"({"enable_thinking":true,"thinking":false,"reasoning_effort":"low"})");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("reasoning":{"effort":"none","enabled":true})")).param ==
        "reasoning.enabled");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("reasoning":{},"reasoning_effort":"low")")).param ==
        "reasoning_effort");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("chat_template_kwargs":{"messages":[]})")).param ==
        "chat_template_kwargs");
}

TEST_CASE("Anthropic's thinking is off unless asked for, and then shown") {
  const auto messages = [](const std::string& members) { return taken(Endpoint::messages, messages_with(members)); };
  const std::string off = R"({"enable_thinking":false,"thinking":false})";
  CHECK(chat_of(messages("")).variables == off);
  CHECK_FALSE(messages("").show_reasoning);
  CHECK(chat_of(messages(R"("thinking":{"type":"disabled"})")).variables == off);
  const auto on = messages(R"("thinking":{"type":"enabled","budget_tokens":8})");
  CHECK(on.show_reasoning);
  CHECK(chat_of(on).variables == R"({"thinking_budget":8,"enable_thinking":true,"thinking":true})");
  CHECK(refused(Endpoint::messages, messages_with(R"("thinking":{"type":"enabled","budget_tokens":9})")).param ==
        "thinking.budget_tokens");
  CHECK(refused(Endpoint::messages, messages_with(R"("thinking":{"type":"disabled","budget_tokens":1})")).param ==
        "thinking.budget_tokens");
}

TEST_CASE("tenant, scope, priority and deadline are those of the connection and the request") {
  ApiContext context;
  context.uid = 12;
  context.tenant.policy = std::make_shared<scheduler::TenantPolicy>(
      scheduler::TenantPolicy{.most_urgent_priority = 5, .public_cache = true});
  const auto call = taken(Endpoint::completions, text_with(R"("deadline_ms":250)"), context);
  CHECK(call.request.uid == 12);
  CHECK(call.request.priority == 5);
  CHECK(call.request.cache_scope == "public");
  CHECK(call.request.deadline == std::chrono::milliseconds(250));
  CHECK(taken(Endpoint::completions, text_with(R"("cache_scope":"mine")"), context).request.cache_scope == "mine");
  const ApiError error = refused(Endpoint::completions, text_with(R"("priority":-1)"), context);
  CHECK(error.status == 403);
  CHECK(error.param == "priority");
}

TEST_CASE("a prompt larger than the limit is refused before anything reads it") {
  ApiContext context;
  context.max_prompt_bytes = 8;
  const std::pair<Endpoint, const char*> at_limit[] = {
      {Endpoint::completions, R"({"prompt":"12345678"})"},
      {Endpoint::completions, R"({"prompt":[1,2]})"},
      {Endpoint::embeddings, R"({"input":["1234","5678"]})"},
      {Endpoint::chat_completions, R"({"messages":[{"role":"user","content":"1234"}]})"},
      {Endpoint::tokenize, R"({"content":"12345678"})"}};
  for (const auto& [endpoint, body] : at_limit) {
    INFO(body);
    context.max_prompt_bytes = 8;
    taken(endpoint, body, context);
    context.max_prompt_bytes = 7;
    const ApiError error = refused(endpoint, body, context);
    CHECK(error.status == 400);  // what OpenAI's clients expect beside this code
    CHECK(error.code == "context_length_exceeded");
    CHECK(known_message(error, Dialect::openai) == "prompt is too long: " + error.message);
  }
}

TEST_CASE("what is returned is bounded") {
  CHECK(taken(Endpoint::chat_completions, chat_with(R"("user":"u","metadata":{"a":"b"})")).echoed.metadata ==
        R"({"a":"b"})");
  CHECK(refused(Endpoint::chat_completions, chat_with(R"("metadata":{"a":1})")).param == "metadata");
  CHECK(refused(Endpoint::chat_completions, chat_with("\"user\":\"" + std::string(kMaxNameBytes + 1, 'u') + "\""))
            .param == "user");
  CHECK(refused(Endpoint::chat_completions, chat_with("\"model\":\"" + std::string(kMaxNameBytes + 1, 'u') + "\""))
            .param == "model");
}

TEST_CASE("a body that is no object is refused") {
  for (const char* body : {"", "[]", "null", "1", "{\"prompt\":\"a\",\"prompt\":\"b\"}"}) {
    INFO(body);
    CHECK(refused(Endpoint::completions, body).status == 400);
  }
}

}  // namespace
}  // namespace troupe::ipc::api
