// Attacks below the protocol: connections that come and go, bytes that are no frames, frames that no client would send.
#include <sys/socket.h>

#include "tests/adversary/attack.h"

namespace troupe::adversary {
namespace {

constexpr std::size_t kMaxUnsent = 1 << 20;  // of one damaged conversation

std::uint64_t extreme(std::mt19937_64& random) {
  constexpr std::uint64_t kExtremes[] = {0,    1,     2,        63,         64,         65,         127,  128,
                                         1024, 65535, 1u << 31, 0xffffffff, 1ull << 32, 1ull << 63, ~0ull};
  return random() % 3 == 0 ? random() : kExtremes[random() % std::size(kExtremes)];
}

// A message of fields that the schema has, and some that it has not, with values of the right kind or another.
Message random_message(std::mt19937_64& random, int depth) {
  Message message;
  const std::size_t count = random() % 8;
  for (std::size_t i = 0; i < count; ++i) {
    const auto field = static_cast<std::uint32_t>(random() % 16 == 0 ? random() % 100'000 : 1 + random() % 20);
    switch (random() % 6) {
      case 0:
      case 1:
        message.number(field, extreme(random));
        break;
      case 2:
        message.real(field, static_cast<float>(extreme(random)));
        break;
      case 3:
        message.text(field, words(random() % 64, random()));
        break;
      case 4:
        message.packed(field, std::vector<std::int32_t>(random() % 100, static_cast<std::int32_t>(extreme(random))));
        break;
      default:
        if (depth > 0) message.message(field, random_message(random, depth - 1));
    }
  }
  return message;
}

// A request as a client sends it, with one or more fields said again, otherwise: the last one counts.
std::string absurd_request(Link& link, std::mt19937_64& random, std::size_t max_bytes) {
  const std::uint64_t stream = link.new_stream();
  Asked asked{.stream = stream, .text = words(random() % max_bytes, random()), .seed = random()};
  asked.n = static_cast<std::uint32_t>(random() % 80);
  asked.max_tokens = static_cast<std::uint32_t>(random() % 8);
  Message request = generate_message(asked);
  const Message more = random_message(random, 3);
  request.raw(more.bytes());
  const Ask ask = static_cast<Ask>(random() % 4 == 0 ? random() % 16 : 2);
  return body_of(ask, request);
}

std::string nested(std::size_t depth) {
  std::string inner;
  for (std::size_t i = 0; i < depth; ++i) inner = Message().text(2, inner).bytes();
  return inner;
}

void damage(std::string& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const std::size_t count = 1 + random() % 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 2:
        bytes.insert(at, 1 + random() % 8, static_cast<char>(random()));
        break;
      default:
        bytes.erase(at, 1 + random() % 8);
        if (bytes.empty()) return;
    }
  }
}

std::string garbage_frame(Link& link, std::mt19937_64& random, std::size_t max_bytes) {
  std::string body = absurd_request(link, random, max_bytes);
  switch (random() % 12) {
    case 0:
      damage(body, random);
      break;
    case 1: {  // a length that lies
      constexpr std::uint32_t kLengths[] = {0, 1, 0xffffffff, 1u << 24, 4u << 20, (4u << 20) + 1};
      return framed(body, kLengths[random() % std::size(kLengths)]);
    }
    case 2:
      return framed(nested(1 + random() % 300));
    case 3: {  // thousands of tiny entries
      Message request;
      request.number(1, link.new_stream());
      const std::size_t count = random() % 50'000;
      for (std::size_t i = 0; i < count; ++i) request.text(8, "");
      return frame_of(Ask::generate, request);
    }
    case 4: {  // bytes that mean nothing
      std::string bytes(random() % 256, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      return bytes;
    }
    default:
      break;
  }
  return framed(body);
}

// Connections that are opened and closed as fast as they can be.
void come_and_go(Assault& assault) {
  while (Clock::now() < assault.until) {
    std::vector<Descriptor> sockets;
    for (std::size_t i = 0; i < assault.parameters.connections; ++i) {
      Descriptor socket = connect_to(assault.socket, std::chrono::milliseconds(200));
      ++assault.tally[socket.is_open() ? "connected" : "not connected"];
      const std::string hello = hello_frame();
      if (socket.is_open() && i % 2 == 0) ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      sockets.push_back(std::move(socket));
    }
  }
}

}  // namespace

void storm(Assault& assault) {
  const std::string& kind = assault.parameters.kind;
  if (kind == "listed" || kind == "unlisted") return come_and_go(assault);
  Swarm swarm({.socket = assault.socket, .connections = assault.parameters.connections, .greets = kind == "half"},
              assault.tally);
  swarm.on_room = [&](Link& link) {
    if (link.counter++ > 0) return;
    if (kind == "half") link.send(tokenize_frame(1, words(1000, link.number)).substr(0, 500));
    if (kind == "broken") link.send(std::string(8, '\0'));  // refused, as http:kind=smuggled
    if (kind == "prefix") link.send(hello_frame().substr(0, 1 + link.number % 3));
    if (kind == "slow") link.send(hello_frame() + tokenize_frame(1, words(4000, link.number)));
  };
  swarm.on_turn = [&](Link& link) { link.max_write = kind == "slow" ? 1 : link.max_write; };
  swarm.run(assault.until);
}

void garbage(Assault& assault) {
  std::mt19937_64 random(assault.seed);
  Swarm swarm({.socket = assault.socket, .connections = assault.parameters.connections}, assault.tally);
  swarm.on_room = [&](Link& link) {
    const auto now = Clock::now();
    if (link.next == Clock::time_point{}) link.next = now + std::chrono::milliseconds(random() % 500);
    if (now > link.next) return link.close();  // also where the server waits for the rest of a frame
    if (link.unsent() < kMaxUnsent) link.send(garbage_frame(link, random, assault.parameters.bytes));
  };
  swarm.run(assault.until);
}

}  // namespace troupe::adversary
