// A conversation over the native protocol: two turns, and what the second found in the cache.
#include <cstdio>

#include <troupe/ipc/client/client.h>

int main(int argc, char** argv) {
  using namespace troupe;
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  client::Conversation talk{.messages = {{.role = "system", .content = "Tell stories."}}};
  for (const char* text : {"A little fox found a key.", "And then?"}) {
    talk.messages.push_back({.role = "user", .content = text});
    const auto answer = (*client)->complete({.prompt = talk, .sampling = {.seed = 7, .max_tokens = 40}});
    if (!answer || !answer->ended.done()) {
      std::fprintf(stderr, "%s\n", (answer ? answer->ended.message : answer.error().message).c_str());
      return 1;
    }
    std::printf("> %s\n%s\n(%u of %u tokens of the prompt were cached)\n", text, answer->text.c_str(),
                answer->ended.usage.cached_tokens, answer->ended.usage.prompt_tokens);
    talk.messages.push_back({.role = "assistant", .content = answer->text});
  }
  return 0;
}
