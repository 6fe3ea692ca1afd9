// Attacks with frames that ask for no computing.
#include "tests/adversary/attack.h"

namespace troupe::adversary {
namespace {

constexpr std::size_t kBatchBytes = 64 << 10;

// One frame of this kind.
std::string control_frame(const std::string& kind, Link& link) {
  if (kind == "health") return plain_frame(Ask::health, link.new_stream());
  if (kind == "status") return status_frame(link.new_stream(), false);
  if (kind == "list") return status_frame(link.new_stream(), true);
  if (kind == "usage") return plain_frame(Ask::usage, link.new_stream());
  if (kind == "models") return plain_frame(Ask::models, link.new_stream());
  if (kind == "tokenize") return tokenize_frame(link.new_stream(), "hello");
  if (kind == "detokenize") return detokenize_frame(link.new_stream(), {42});
  if (kind == "cancel") return plain_frame(Ask::cancel, link.new_stream());
  if (kind == "credit") return credit_frame(1, 1);
  if (kind == "zero") return plain_frame(Ask::health, 0);
  if (kind == "in-use") return generate_frame({.stream = 1, .text = "Once", .max_tokens = 1000, .credit = 1});
  return generate_frame({.stream = link.new_stream(), .text = "Once", .temperature = -1});  // "refused"
}

// Fills a connection's buffer with frames of the kind, of each in turn where it is "mixed".
void fill(Link& link, const std::string& kind) {
  static const std::vector<std::string> kMix{"health", "status", "models", "credit", "cancel", "tokenize", "refused"};
  std::string frames;
  while (frames.size() < kBatchBytes)
    frames += control_frame(kind == "mixed" ? kMix[++link.counter % kMix.size()] : kind, link);
  link.send(frames);
}

}  // namespace

void pipeline(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  swarm.on_room = [&](Link& link) {
    link.reads = false;
    fill(link, parameters.kind);
  };
  swarm.run(assault.until);
}

void flood(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  swarm.on_room = [&](Link& link) {
    // Credit needs a stream that takes it.
    if (parameters.kind == "credit" && link.last_stream() == 0)
      link.send(generate_frame({.stream = link.new_stream(), .text = "Once", .max_tokens = 900, .credit = 1}));
    fill(link, parameters.kind);
  };
  swarm.run(assault.until);
}

void slow_readers(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  constexpr int kSmallest = 1;  // the kernel rounds up to its own minimum
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections, .receive_buffer = kSmallest},
              assault.tally);
  swarm.on_room = [&](Link& link) {
    link.max_read = 1;
    if (link.counter++ > 0) return;
    for (std::size_t i = 0; i < parameters.streams; ++i) {
      const std::uint64_t stream = link.new_stream();
      link.send(generate_frame({.stream = stream, .text = words(40, stream), .seed = stream, .max_tokens = 900}));
      link.send(status_frame(link.new_stream(), true));
    }
  };
  swarm.on_turn = [](Link& link) {
    const auto now = Clock::now();
    link.reads = now >= link.next;
    if (link.reads) link.next = now + std::chrono::seconds(1);
  };
  swarm.run(assault.until);
}

}  // namespace troupe::adversary
