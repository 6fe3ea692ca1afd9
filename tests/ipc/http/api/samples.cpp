// Writes answers of every shape as lines {"schema": NAME, "value": JSON}, for answer_schemas.py; with --fields,
// docs/api-fields.md.
#include <iostream>
#include <string>
#include <vector>

#include "ipc/http/api/answer.h"
#include "ipc/http/json/json_writer.h"
#include "tests/ipc/http/api/field_document.h"

namespace troupe::ipc::api {
namespace {

using scheduler::Outcome;

void write_line(std::string_view schema, std::string_view value) {
  std::string line;
  JsonWriter(line).begin_object().field("schema", schema).raw_field("value", value).end_object();
  std::cout << line << '\n';
}

// The data of each event; OpenAI's [DONE] is none.
void write_events(std::string_view schema, std::string_view bytes) {
  for (std::size_t at = bytes.find("data: "); at != std::string_view::npos; at = bytes.find("\ndata: ", at)) {
    at = bytes.find(' ', at) + 1;
    const std::string_view data = bytes.substr(at, bytes.find('\n', at) - at);
    if (data != "[DONE]") write_line(schema, data);
  }
}

actors::TokenRun run_of(std::uint32_t choice, std::string text, bool with_logprobs) {
  actors::TokenRun run{.choice = choice, .first_index = 0, .ids = {1}, .text = std::move(text), .logprobs = {}};
  if (with_logprobs) run.logprobs = {{.id = 1, .logprob = -0.5f, .top = {{1, -0.5f}, {2, -1e30f}}}};
  return run;
}

actors::End end_of(std::uint32_t choice, Outcome outcome) {
  actors::End end;
  end.choice = choice;
  end.outcome = outcome;
  end.message = "what is wrong";
  end.seed = 0xFFFFFFFFFFFFFFFFu;
  end.usage.prompt_tokens = 5;
  end.usage.completion_tokens = 3;
  end.usage.queue_seconds = 1e-9;
  return end;
}

struct Sample {
  Endpoint endpoint;
  std::string members;  // of the body, beside the prompt
  std::string_view schema, event_schema;
};

std::string prompt_of(Endpoint endpoint) {
  if (endpoint == Endpoint::completions) return R"("prompt":"x")";
  if (endpoint == Endpoint::responses) return R"("input":"x")";
  return R"("messages":[{"role":"user","content":"x"}])";
}

void write_answer(const Sample& sample, const std::vector<std::string>& texts, Outcome outcome, bool streams) {
  const bool says_stream = sample.members.find("\"stream\"") != std::string::npos;
  const std::string stream = streams && !says_stream ? R"(,"stream":true)" : "";
  const std::string body = "{" + prompt_of(sample.endpoint) + sample.members + stream + "}";
  auto parsed = parse_call(sample.endpoint, body, {});
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    std::cerr << body << ": " << error->message << '\n';
    std::exit(1);
  }
  ApiCall& call = std::get<ApiCall>(parsed);
  const std::uint32_t num_choices = call.request.num_choices;
  const bool with_logprobs = call.logprobs;
  AnswerFacts facts{.id = "1", .created = 1700000000, .model = "m", .fingerprint = "f"};
  facts.tool_format = engine::chat::find_tool_format("hermes");
  facts.token_bytes = [](TokenId id) { return std::string(1, static_cast<char>(id == 2 ? 0xff : 'a')); };
  const auto answer = make_answer(std::move(call), std::move(facts));
  std::string bytes;
  bool is_stream = false;
  const auto add = [&](const AnswerOutput& out) {
    bytes += out.bytes;
    if (out.head) is_stream = out.head->streams;
  };
  for (const std::string& text : texts)
    for (std::uint32_t choice = 0; choice < num_choices; ++choice)
      add(answer->on_tokens(run_of(choice, text, with_logprobs)));
  for (std::uint32_t choice = 0; choice < num_choices && !answer->finished(); ++choice)
    add(answer->on_end(end_of(choice, outcome)));
  const bool is_error = scheduler::info(outcome).kind != scheduler::OutcomeKind::done;
  if (is_stream)
    // The last event of a chat that failed is the error alone, as OpenAI's clients know it.
    write_events(is_error && sample.endpoint != Endpoint::responses ? "ErrorResponse" : sample.event_schema, bytes);
  else
    write_line(is_error ? "ErrorResponse" : sample.schema, bytes);
}

void write_embeddings() {
  auto call = parse_call(Endpoint::embeddings, R"({"input":["a","b"]})", {});
  const auto answer = make_answer(std::move(std::get<ApiCall>(call)), AnswerFacts{.id = "1", .model = "m"});
  actors::End end = end_of(0, Outcome::eos);
  auto vectors = std::make_shared<actors::Embeddings>();
  vectors->dim = 2;
  vectors->values = {0.5f, -1, 1e-20f, 3};
  end.embeddings = std::move(vectors);
  write_line("CreateEmbeddingResponse", answer->on_end(std::move(end)).bytes);
}

void write_samples() {
  const std::vector<Sample> samples = {
      {Endpoint::chat_completions, "", "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
      {Endpoint::chat_completions, R"(,"n":2,"logprobs":true,"top_logprobs":2,"user":"u","metadata":{"k":"v"})",
       "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
      {Endpoint::chat_completions, R"(,"stream":true,"stream_options":{"include_usage":true})", "",
       "CreateChatCompletionStreamResponse"},
      {Endpoint::completions, "", "CreateCompletionResponse", "CreateCompletionResponse"},
      {Endpoint::completions, R"(,"n":2,"logprobs":2)", "CreateCompletionResponse", ""},
      {Endpoint::responses, "", "Response", "ResponseStreamEvent"},
      {Endpoint::responses,
       R"(,"instructions":"i","metadata":{"k":"v"},"temperature":0.5,"top_p":0.5,"max_output_tokens":9,"user":"u",)"
       R"("reasoning":{"effort":"low"},"include":["message.output_text.logprobs"],"top_logprobs":2,)"
       R"("tool_choice":"none","parallel_tool_calls":false,"prompt_cache_key":"k","safety_identifier":"s")",
       "Response", "ResponseStreamEvent"},
      {Endpoint::chat_completions, R"(,"tools":[{"type":"function","function":{"name":"f"}}])",
       "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
      {Endpoint::responses,
       R"(,"tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}],"tool_choice":"auto")",
       "Response", "ResponseStreamEvent"},
      {Endpoint::chat_completions, R"(,"tools":[{"type":"custom","custom":{"name":"f"}}])",
       "CreateChatCompletionResponse", ""},  // the schema of chunks knows no custom calls
      {Endpoint::responses,
       R"(,"tools":[{"type":"custom","name":"f","description":"d","format":{"type":"text"}}],)"
       R"("tool_choice":{"type":"custom","name":"f"})",
       "Response", "ResponseStreamEvent"},
      {Endpoint::responses,
       R"(,"tools":[{"type":"namespace","name":"f","description":"d","tools":[{"type":"function","name":"f","strict":)"
       R"(false,"parameters":{"type":"object"}},{"type":"custom","name":"c"}]}])",
       "Response", "ResponseStreamEvent"}};
  const std::vector<std::vector<std::string>> answers = {
      {},
      {"a", "", "b"},
      {"<think>why", "</think>so"},
      {"<think>why"},
      {"So. <tool_call>{\"name\": \"f\", \"arg", "uments\": {\"a\": 1}}</tool_call>", "<tool_call>{\"name\": \"f\"}"},
      {"<tool_call>{\"name\": \"f\", \"arguments\": {\"input\": \"a\\", "nb\"}}</tool_call>"},
      {"<tool_call>{\"name\": \"f__f\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"f__c\", \"arguments\": {\"input\": \"a\"}}</tool_call>"}};
  for (const Sample& sample : samples)
    for (const auto& texts : answers)
      for (const Outcome outcome : {Outcome::eos, Outcome::length, Outcome::stop_string}) {
        if (!sample.schema.empty()) write_answer(sample, texts, outcome, false);
        // A chunk of a completion's stream has no reason yet, which the schema of whole answers asks for.
        if (!sample.event_schema.empty() && sample.endpoint != Endpoint::completions)
          write_answer(sample, texts, outcome, true);
      }
  for (const Outcome outcome : {Outcome::queue_full, Outcome::invalid_argument, Outcome::internal}) {
    write_answer(samples[0], {}, outcome, true);
    write_answer(samples[0], {}, outcome, false);
    write_answer(samples[5], {"a"}, outcome, true);
  }
  write_embeddings();
  const std::vector<ListedModel> models = {{.name = "m", .max_context = 1, .num_parameters = 2, .numerics_id = "x"}};
  write_line("ListModelsResponse", models_body(models, 1700000000));
  write_line("Model", model_body(models[0], 1700000000));
}

}  // namespace
}  // namespace troupe::ipc::api

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--fields")
    std::cout << troupe::ipc::api::make_field_document();
  else
    troupe::ipc::api::write_samples();
}
