// The same prompt, sampled in different ways; a seed makes any of them repeatable, and logprobs show what
// else might have been said.
#include <cmath>
#include <cstdio>
#include <string>

#include <troupe/ipc/client/client.h>

namespace {

using namespace troupe;

const std::string kPrompt = "The sun was";

// The answer's text; empty when there is none.
std::string sample(client::Client& client, const char* what, client::Sampling sampling) {
  sampling.max_tokens = 20;
  const auto answer = client.complete({.prompt = kPrompt, .sampling = sampling});
  if (!answer || !answer->ended.done()) {
    std::fprintf(stderr, "%s: %s\n", what, answer ? answer->ended.message.c_str() : answer.error().message.c_str());
    return {};
  }
  std::printf("%-22s seed %llu: %s%s\n", what, static_cast<unsigned long long>(answer->ended.seed), kPrompt.c_str(),
              answer->text.c_str());
  return answer->text;
}

// Forbids the likeliest first word by pushing its logit down, and looks at what is chosen instead.
bool avoid_first_choice(client::Client& client) {
  client::Request request{.prompt = kPrompt, .sampling = {.temperature = 0.0f, .max_tokens = 1}, .logprobs = 3};
  const auto plain = client.complete(request);
  if (!plain || plain->ids.empty()) return false;
  for (const client::TokenLogprob& rival : plain->logprobs[0].top) {
    const auto text = client.detokenize({rival.id});
    std::printf("  %5.1f %% \"%s\"\n", 100 * std::exp(rival.logprob), text ? text->c_str() : "?");
  }
  request.sampling.logit_bias = {{plain->ids[0], -100.0f}};
  const auto other = client.complete(request);
  return other && !other->ids.empty() && other->ids[0] != plain->ids[0];
}

}  // namespace

int main(int argc, char** argv) {
  auto client = client::Client::connect({.socket = argc > 1 ? argv[1] : ""});
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  client::Client& server = **client;
  const std::string greedy = sample(server, "greedy", {.temperature = 0.0f});
  const client::Sampling creative{
      .temperature = 1.2f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .repeat_penalty = 1.1f, .seed = 42};
  const std::string first = sample(server, "creative", creative);
  const std::string again = sample(server, "creative, same seed", creative);
  const std::string free = sample(server, "the model's own", {});
  if (greedy.empty() || first.empty() || free.empty()) return 1;
  if (first != again) {
    std::fprintf(stderr, "the same seed gave another answer\n");
    return 1;
  }
  return avoid_first_choice(server) ? 0 : 1;
}
