// Asks the local server to continue a sentence and prints the answer.
//
//   example_basic                      the server that is found without being told (TROUPE_HOST, ...)
//   example_basic /path/to/troupe.sock
#include <cstdio>

#include <troupe/ipc/client/client.h>
#include <troupe/scheduler/outcome.h>

int main(int argc, char** argv) {
  using namespace troupe;
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  const auto answer =
      (*client)->complete({.prompt = "Once upon a time", .sampling = {.temperature = 0.0f, .max_tokens = 40}});
  if (!answer) {  // the connection: not the server's answer, but its absence
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  if (!answer->ended.done()) {  // refused or failed: the server says why, and what to do
    std::fprintf(stderr, "%s\n", answer->ended.message.c_str());
    return scheduler::info(answer->ended.outcome).exit_code;
  }
  std::printf("Once upon a time%s\n", answer->text.c_str());
  std::printf("%zu tokens, ended by %s\n", answer->ids.size(), scheduler::info(answer->ended.outcome).name.data());
  return 0;
}
