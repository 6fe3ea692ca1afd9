// Streams two answers at once over one connection: tokens arrive as they are made, interleaved, because
// the server batches both requests into the same steps.
#include <cstdio>
#include <string>
#include <vector>

#include <troupe/ipc/client/client.h>

int main(int argc, char** argv) {
  using namespace troupe;
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  const std::vector<std::string> prompts = {"Once upon a time", "The little dog"};
  std::vector<std::string> answers(prompts.size());
  std::vector<client::Stream> streams;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    // Callbacks run on the client's reader thread, one at a time, so they need no lock among themselves;
    // wait() below makes their effects visible here.
    const auto on_tokens = [&answers, i](const client::Tokens& tokens) {
      answers[i] += tokens.text;
      std::printf("[%zu] %s\n", i, tokens.text.c_str());
    };
    auto stream = (*client)->generate({.prompt = prompts[i], .sampling = {.seed = 7, .max_tokens = 24}},
                                      {.on_tokens = on_tokens, .on_end = {}});
    if (!stream) {
      std::fprintf(stderr, "%s\n", stream.error().message.c_str());
      return 1;
    }
    streams.push_back(*stream);
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto ended = streams[i].wait();
    if (!ended || !ended->done()) {
      std::fprintf(stderr, "%s\n", ended ? ended->message.c_str() : ended.error().message.c_str());
      return 1;
    }
    std::printf("%s%s\n  first token after %.1f ms, %u of %u prompt tokens from the cache\n", prompts[i].c_str(),
                answers[i].c_str(), ended->usage.ttft_seconds * 1e3, ended->usage.cached_tokens,
                ended->usage.prompt_tokens);
  }
  return 0;
}
