// Attacks that ask again as soon as they are answered: the server always has something to answer.
#include <random>

#include "tests/adversary/attack.h"

namespace troupe::adversary {
namespace {

// "of7": the tenant has at most so many sessions.
std::string some_name(std::mt19937_64& random) { return "of" + std::to_string(random() % 80); }

std::string session_question(const std::string& kind, std::uint64_t stream, std::mt19937_64& random) {
  if (kind == "turns")
    return generate_frame({.stream = stream,
                           .text = words(1 + random() % 200, random()),
                           .seed = stream,
                           .max_tokens = 1 + static_cast<std::uint32_t>(random() % 20),
                           .session = some_name(random)});
  if (kind == "save") return session_frame(stream, AskSession::save, some_name(random));
  if (kind == "inspect") return session_frame(stream, AskSession::inspect, some_name(random));
  if (kind == "fork") return session_frame(stream, AskSession::fork, some_name(random), some_name(random));
  if (kind == "delete") return session_frame(stream, AskSession::remove, some_name(random));
  return session_frame(stream, AskSession::list);
}

std::string any_session_question(std::uint64_t stream, std::mt19937_64& random) {
  static const std::vector<std::string> kMix{"turns", "turns", "list", "save", "inspect", "fork", "delete"};
  return session_question(kMix[random() % kMix.size()], stream, random);
}

std::string question(const std::string& kind, std::uint64_t stream, std::mt19937_64& random) {
  static const std::vector<std::string> kMix{"health", "models", "status", "usage", "sessions", "tokenize", "generate"};
  if (kind == "mixed") return question(kMix[random() % kMix.size()], stream, random);
  if (kind == "health") return plain_frame(Ask::health, stream);
  if (kind == "models") return plain_frame(Ask::models, stream);
  if (kind == "status") return status_frame(stream, true);
  if (kind == "usage") return plain_frame(Ask::usage, stream);
  if (kind == "tokenize") return tokenize_frame(stream, words(20'000, stream));
  if (kind == "generate") return generate_frame({.stream = stream, .text = "Once", .max_tokens = 4});
  return session_frame(stream, AskSession::list);
}

// Keeps `streams` questions of each connection unanswered.
template <class Write>
void ask_again(Assault& assault, Write&& write) {
  const Parameters& parameters = assault.parameters;
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  // `counter` is the number of unanswered questions of the connection.
  swarm.on_room = [&](Link& link) {
    for (; link.counter < parameters.streams; ++link.counter) link.send(write(link.new_stream()));
  };
  swarm.on_answer = [](Link& link, const Answer& answer) {
    if (answer.stream != 0 && answer.reply != Reply::tokens) link.counter -= link.counter > 0;
  };
  swarm.run(assault.until);
}

}  // namespace

void again(Assault& assault) {
  std::mt19937_64 random(assault.seed);
  ask_again(assault, [&](std::uint64_t stream) { return question(assault.parameters.kind, stream, random); });
}

void sessions(Assault& assault) {
  std::mt19937_64 random(assault.seed);
  const std::string& kind = assault.parameters.kind;
  ask_again(assault, [&](std::uint64_t stream) {
    return kind == "mixed" ? any_session_question(stream, random) : session_question(kind, stream, random);
  });
}

}  // namespace troupe::adversary
