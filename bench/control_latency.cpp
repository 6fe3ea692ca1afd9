// The latency of control messages while the server is under full load.
//
//   control_latency -m MODEL.gguf [--threads 2] [--step-tokens 512] [--samples 200] [--text-bytes 1048576]
//
// Through the real gateway, in this process. Phase one: prompts of random tokens are prefilled one after the other in
// full steps. Phase two: the same, while a text of --text-bytes is being tokenized. In each phase, at random times:
//
//   status   status() to its answer (through telemetry, batcher and keeper)
//   health   readiness() and is_making_progress()
//   cancel   cancel() of a queued request to the end of its stream
//   freed    cancel() of the request that is being computed to a status in which its blocks are free, and the length
//            of the step that had to end first
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/gateway.h"

namespace {

using namespace troupe;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string model;
  std::uint32_t threads = 2;
  std::uint32_t step_tokens = 512;
  int samples = 200;
  std::size_t text_bytes = 1 << 20;
};

// Records only the end of a stream.
struct Ending : actors::StreamSink {
  void tokens(actors::TokenRun) override {}
  void end(actors::End) override { ended.set_value(Clock::now()); }
  std::promise<Clock::time_point> ended;
};

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

actors::StatusSnapshot status(actors::Gateway& gateway) {
  std::promise<actors::StatusSnapshot> answer;
  gateway.status([&](actors::StatusSnapshot snapshot) { answer.set_value(std::move(snapshot)); });
  return answer.get_future().get();
}

actors::Request prompt_of(std::size_t tokens, std::uint32_t vocab_size, std::mt19937& random) {
  actors::Request request;
  std::vector<TokenId> ids(tokens);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab_size);
  request.prompt = std::move(ids);
  request.sampling.max_tokens = 1;
  request.credit = 1;
  return request;
}

class Bench {
 public:
  Bench(actors::Gateway& gateway, const Arguments& arguments)
      : gateway_(gateway),
        arguments_(arguments),
        vocab_size_(gateway.model()->info().vocab_size),
        prompt_tokens_(gateway.model()->info().context - 2) {}

  void run(const char* phase) {
    times_.clear();
    for (int i = 0; i < arguments_.samples; ++i) {
      const auto prefill = submit(prompt_tokens_);
      const auto queued = submit(16);
      std::this_thread::sleep_for(std::chrono::microseconds(20000 + random_() % 200000));  // a random time
      time("status", [&] { status(gateway_); });
      time("health",
           [&] { (void)(gateway_.readiness() == actors::Readiness::ready && gateway_.is_making_progress()); });
      time("cancel", [&] {
        gateway_.cancel(queued.first);
        queued.second->ended.get_future().get();
      });
      const double steps_before = status(gateway_).value("step_seconds");
      time("freed", [&] {
        gateway_.cancel(prefill.first);
        while (status(gateway_).count("blocks_referenced") > 0) std::this_thread::yield();
      });
      times_["step"].push_back((status(gateway_).value("step_seconds") - steps_before) * 1e3);
    }
    print(phase);
  }

 private:
  std::pair<actors::RequestId, std::shared_ptr<Ending>> submit(std::size_t tokens) {
    auto sink = std::make_shared<Ending>();
    const actors::RequestId id = gateway_.submit(prompt_of(tokens, vocab_size_, random_), sink);
    return {id, sink};
  }

  template <class Work>
  void time(const char* what, const Work& work) {
    const auto start = Clock::now();
    work();
    times_[what].push_back(milliseconds(Clock::now() - start));
  }

  void print(const char* phase) {
    for (auto& [what, times] : times_) {
      std::sort(times.begin(), times.end());
      const auto at = [&, &sorted = times](double share) {
        return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
      };
      std::printf("| %s | %s | %.2f | %.2f | %.2f | %.2f |\n", phase, what.c_str(), at(0.5), at(0.9), at(0.99), at(1));
    }
    std::fflush(stdout);
  }

  actors::Gateway& gateway_;
  const Arguments& arguments_;
  const std::uint32_t vocab_size_;
  const std::size_t prompt_tokens_;
  std::mt19937 random_{1};
  std::map<std::string, std::vector<double>> times_;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "-m") arguments.model = value;
    if (flag == "--threads") arguments.threads = static_cast<std::uint32_t>(std::atoi(value));
    if (flag == "--step-tokens") arguments.step_tokens = static_cast<std::uint32_t>(std::atoi(value));
    if (flag == "--samples") arguments.samples = std::atoi(value);
    if (flag == "--text-bytes") arguments.text_bytes = static_cast<std::size_t>(std::atoll(value));
  }
  return arguments;
}

// Tokenizes a long text again and again until `stop` is set.
void tokenize_until(const std::atomic<bool>& stop, actors::Gateway& gateway, std::size_t bytes) {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < bytes) text += "abcdefghij klmnopqrstuvwxyz,. "[random() % 30];
  while (!stop) {
    std::promise<void> done;
    gateway.tokenize({}, text, {}, [&](actors::Tokenized) { done.set_value(); });
    done.get_future().get();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  actors::GatewayOptions options;
  options.model().path = arguments.model;
  options.num_threads = arguments.threads;
  options.max_step_tokens = arguments.step_tokens;
  options.max_sequences = 1;  // so that the second request is queued
  auto gateway = actors::Gateway::start_loaded(options);
  if (!gateway) {
    std::fprintf(stderr, "%s\n", gateway.error().message.c_str());
    return 1;
  }
  std::printf("%s, %s, %u threads, steps of %u tokens, %d samples; milliseconds\n\n",
              (*gateway)->models().at(0).name.c_str(), std::string((*gateway)->model()->kernels().name).c_str(),
              arguments.threads, arguments.step_tokens, arguments.samples);
  std::printf("| while | what | p50 | p90 | p99 | max |\n|---|---|---:|---:|---:|---:|\n");
  Bench bench(**gateway, arguments);
  bench.run("prefill");
  if (!(*gateway)->model()->tokenizer()) return 0;
  std::atomic<bool> stop{false};
  std::thread tokenizing([&] { tokenize_until(stop, **gateway, arguments.text_bytes); });
  bench.run("prefill and tokenizing");
  stop = true;
  tokenizing.join();
  return 0;
}
