// A program outside this tree that uses the installed library: asks a server and prints how that ended.
#include <cstdio>

#include <troupe/ipc/client/client.h>
#include <troupe/scheduler/outcome.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto client = troupe::client::Client::connect({.socket = argv[1]});
  if (!client) return std::fprintf(stderr, "%s\n", client.error().message.c_str()), 1;
  const auto answer = (*client)->complete({.prompt = "Once upon a time", .sampling = {.max_tokens = 8}});
  if (!answer) return std::fprintf(stderr, "%s\n", answer.error().message.c_str()), 1;
  const auto& end = troupe::scheduler::info(answer->ended.outcome);
  std::printf("%s\n%.*s\n", answer->text.c_str(), static_cast<int>(end.name.size()), end.name.data());
  return end.exit_code;
}
