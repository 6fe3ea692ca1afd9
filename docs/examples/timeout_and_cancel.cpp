// Four ways to stop early: a token limit, a deadline that the server keeps, a timeout of our own, and a
// cancel in the middle of a stream. In each case what was made until then is ours to keep.
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include <troupe/ipc/client/client.h>
#include <troupe/scheduler/outcome.h>

namespace {

using namespace troupe;
using std::chrono::milliseconds;

// Long enough that every way of stopping has something to stop.
client::Request endless() {
  return {.prompt = "Once upon a time", .sampling = {.temperature = 0.0f, .ignore_eos = true}};
}

bool print(const char* what, const Result<client::Completion>& answer) {
  if (!answer) {
    std::fprintf(stderr, "%s: %s\n", what, answer.error().message.c_str());
    return false;
  }
  std::printf("%s: %zu tokens, ended by %s\n", what, answer->ids.size(),
              scheduler::info(answer->ended.outcome).name.data());
  return answer->ended.done();
}

// Cancels after ten tokens, from inside the callback. Tokens that were already under way still arrive.
bool cancel_after_ten(client::Client& client) {
  std::size_t count = 0;
  std::optional<client::Stream> stream;
  // No token can come before credit is granted, so `stream` is set before on_tokens first reads it.
  client::Request request = endless();
  request.credit = 0;
  auto started = client.generate(request, {.on_tokens =
                                               [&](const client::Tokens& tokens) {
                                                 count += tokens.ids.size();
                                                 if (count >= 10) stream->cancel();
                                               },
                                           .on_end = {}});
  if (!started) return false;
  stream = *started;
  stream->credit(1000);
  const auto ended = stream->wait();
  if (!ended) return false;
  std::printf("cancel: %zu tokens, ended by %s\n", count, scheduler::info(ended->outcome).name.data());
  return ended->done();
}

}  // namespace

int main(int argc, char** argv) {
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  client::Request limited = endless();
  limited.sampling.max_tokens = 16;
  client::Request hurried = endless();
  hurried.deadline = milliseconds(30);
  const bool fine =
      print("token limit", (*client)->complete(limited)) && print("server's deadline", (*client)->complete(hurried)) &&
      print("client's timeout", (*client)->complete(endless(), milliseconds(30))) && cancel_after_ten(**client);
  return fine ? 0 : 1;
}
