// Functions that the model may call: the program runs them, and the model goes on with what they gave.
#include <cstdio>
#include <string>

#include <troupe/ipc/client/client.h>

using namespace troupe;

namespace {

// What the program does for a call. The arguments are as the model wrote them: check them.
std::string run(const client::ToolCall& call) {
  if (call.name != "get_weather") return "there is no function " + call.name;
  return call.is_complete ? "21 degrees, sunny" : "the arguments were cut: " + call.arguments;
}

// Asks until the answer calls nothing.
Result<client::Completion> ask(client::Client& client, client::Request request, client::Conversation talk) {
  while (true) {
    request.prompt = talk;
    auto answer = client.complete(request);
    if (!answer || answer->calls.empty()) return answer;
    talk.messages.push_back({.role = "assistant", .content = answer->text, .tool_calls = answer->calls});
    for (const client::ToolCall& call : answer->calls)
      talk.messages.push_back({.role = "tool", .content = run(call), .tool_call_id = call.id});
  }
}

// A call as it comes, of an answer that has to begin with it.
Result<client::Ended> demand(client::Client& client, client::Request request, client::Conversation talk) {
  request.prompt = std::move(talk);
  request.tool_choice = client::ToolChoice::required;
  request.called_tool = "get_weather";
  const auto stream = client.generate(request, {.on_tokens = [](const client::Tokens& tokens) {
                                        std::fputs(tokens.text.c_str(), stdout);
                                        for (const client::CallPart& part : tokens.calls)
                                          std::printf("%s%s", part.name.c_str(), part.arguments.c_str());
                                      }});
  if (!stream) return stream.error();
  return stream->wait();
}

}  // namespace

int main(int argc, char** argv) {
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  client::Request request{.sampling = {.seed = 7, .max_tokens = 60}};
  request.tools = {{.name = "get_weather",
                    .description = "Weather of a city",
                    .parameters = R"({"type": "object", "properties": {"city": {"type": "string"}}})"}};
  const client::Conversation talk{.messages = {{.role = "user", .content = "What is the weather in Bern?"}}};
  const auto answer = ask(**client, request, talk);
  if (!answer || !answer->ended.done()) {
    std::fprintf(stderr, "%s\n", (answer ? answer->ended.message : answer.error().message).c_str());
    return 1;
  }
  std::printf("%s\n", answer->text.c_str());
  const auto ended = demand(**client, request, talk);
  std::printf("\n");
  return ended && ended->usage.tool_calls > 0 ? 0 : 1;
}
