// Attacks with requests that are computed.
#include "tests/adversary/attack.h"

namespace troupe::adversary {
namespace {

std::chrono::nanoseconds in_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(seconds));
}

// Asks for a text and drops the connection as soon as all is sent.
void vanish(Assault& assault, const std::string& text) {
  const Parameters& parameters = assault.parameters;
  while (Clock::now() < assault.until) {
    Client client(assault.socket, std::chrono::seconds(2));
    ++assault.tally[client.is_open() ? "connected" : client.error()];
    for (std::size_t i = 0; i < parameters.streams && Clock::now() < assault.until; ++i)
      if (!client.send(tokenize_frame(client.new_stream(), text))) break;
    client.close();
    ++assault.tally["vanished"];
  }
}

std::string text_frame(const std::string& kind, Link& link, const std::string& text) {
  const std::uint64_t stream = link.new_stream();
  if (kind == "embed") return embed_frame(stream, {text});
  if (kind == "generate") return generate_frame({.stream = stream, .text = text});
  return tokenize_frame(stream, text);
}

}  // namespace

void trickle(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  const auto pause = in_seconds(parameters.seconds_between);
  const auto begin = [&](Link& link) {
    const std::uint64_t stream = link.new_stream();
    link.send(generate_frame({.stream = stream, .text = "Once upon", .seed = stream, .max_tokens = 900, .credit = 1}));
  };
  swarm.on_room = [&](Link& link) {
    if (link.last_stream() == 0)
      for (std::size_t i = 0; i < parameters.streams; ++i) begin(link);
    if (link.next == Clock::time_point{}) link.next = Clock::now() + pause;
    if (Clock::now() < link.next) return;
    link.next = Clock::now() + pause;
    for (std::uint64_t stream = 1; stream <= link.last_stream(); ++stream) link.send(credit_frame(stream, 1));
  };
  swarm.on_answer = [&](Link& link, const Answer& answer) {
    if (answer.reply == Reply::done) begin(link);  // what was ended begins again
  };
  swarm.run(assault.until);
}

void texts(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  const std::string text = words(parameters.bytes, assault.seed);
  if (parameters.kind == "vanish") return vanish(assault, text);
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  // `counter` is the number of unanswered requests of the connection.
  swarm.on_room = [&](Link& link) {
    if (link.counter >= parameters.streams || Clock::now() < link.next) return;
    ++link.counter;
    link.send(text_frame(parameters.kind, link, text));
  };
  swarm.on_answer = [](Link& link, const Answer& answer) {
    if (answer.stream == 0 || answer.reply == Reply::tokens) return;
    link.counter -= link.counter > 0;
    // A client that is refused connects again at once and does nothing else.
    if (answer.reply == Reply::refused) link.next = Clock::now() + std::chrono::milliseconds(20);
  };
  swarm.run(assault.until);
}

void churn(Assault& assault) {
  const Parameters& parameters = assault.parameters;
  std::mt19937_64 random(assault.seed);
  Swarm swarm({.socket = assault.socket, .connections = parameters.connections}, assault.tally);
  const auto ask = [&](Link& link) {
    const std::uint64_t stream = link.new_stream();
    if (parameters.kind == "embed") {
      const std::vector<std::string> inputs(1 + random() % 64, words(1 + random() % parameters.bytes, random()));
      return link.send(embed_frame(stream, inputs));
    }
    Asked asked{.stream = stream, .text = words(1 + random() % parameters.bytes, random()), .seed = stream};
    constexpr std::uint32_t kChoices[] = {1, 1, 1, 2, 8, 64};
    asked.n = kChoices[random() % std::size(kChoices)];
    asked.max_tokens = 1 + static_cast<std::uint32_t>(random() % 200);
    if (random() % 4 == 0)
      for (int i = 0; i < 16; ++i) asked.stop.push_back(words(256, random()));
    if (random() % 4 == 0) asked.num_biased = 1024;
    if (random() % 4 == 0) asked.credit = random() % 50;
    if (random() % 8 == 0) asked.priority = static_cast<std::int32_t>(random() % 1000);
    if (random() % 8 == 0) asked.deadline_ms = random() % 300;
    link.send(generate_frame(asked));
  };
  swarm.on_room = [&](Link& link) {
    if (Clock::now() < link.next) return;
    link.next = Clock::now() + std::chrono::milliseconds(random() % 100);
    for (std::size_t i = 0; i < parameters.streams; ++i) ask(link);
  };
  swarm.on_answer = [&](Link& link, const Answer& answer) {
    const std::uint64_t dice = random() % 200;
    if (dice == 0) return link.close();
    if (dice == 1)  // a storm of cancels
      for (std::uint64_t stream = 1; stream <= link.last_stream(); ++stream)
        link.send(plain_frame(Ask::cancel, stream));
    if (dice < 20) link.send(plain_frame(Ask::cancel, answer.stream));
  };
  swarm.run(assault.until);
}

}  // namespace troupe::adversary
