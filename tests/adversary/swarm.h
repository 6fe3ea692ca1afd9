// Many connections of one attacker, in one thread: sends bytes as fast as the server takes them, and reads or does not
// read the answers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/adversary/client.h"

namespace troupe::adversary {

// An attacker's counts, by name: "connected", "sent_bytes", "Health", "Refused quota max_streams".
using Tally = std::map<std::string, std::uint64_t>;

// One connection of a swarm.
class Link {
 public:
  void send(std::string_view bytes) { out_.append(bytes); }
  std::uint64_t new_stream() { return ++last_stream_; }
  std::uint64_t last_stream() const { return last_stream_; }
  std::size_t unsent() const { return out_.size() - sent_; }
  void close() { closed_ = true; }  // what is unsent is dropped

  std::size_t number = 0;  // of the connection, from 0
  bool reads = true;       // false: nothing is taken from the socket
  std::size_t max_read = 1 << 16;
  std::size_t max_write = 1 << 18;  // bytes of one send()
  Clock::time_point next{};         // for the attack's own use
  std::uint64_t counter = 0;        // likewise

 private:
  friend class Swarm;
  Descriptor socket_;
  std::string out_;
  std::size_t sent_ = 0;
  std::uint64_t last_stream_ = 0;
  FrameCutter cutter_;
  bool closed_ = false;
};

struct SwarmOptions {
  std::string socket{};
  std::size_t connections = 1;
  bool greets = true;        // begins each connection with Hello
  bool speaks_http = false;  // answers are counted by their status, as "HTTP 400"; on_answer is not called
  bool comes_again = true;   // connects anew when a connection has ended
  int receive_buffer = 0;    // SO_RCVBUF; 0: the kernel's
};

class Swarm {
 public:
  Swarm(SwarmOptions options, Tally& tally) : options_(std::move(options)), tally_(tally) {}

  std::function<void(Link&)> on_room = [](Link&) {};  // all was sent; may append more
  std::function<void(Link&, const Answer&)> on_answer = [](Link&, const Answer&) {};
  std::function<void(Link&)> on_turn = [](Link&) {};  // some thousand times a second, whatever happens

  void run(Clock::time_point until);

 private:
  void open(std::size_t number);
  void write(Link& link);
  void read(Link& link);
  void count_statuses(std::string_view bytes);
  void turn();

  SwarmOptions options_;
  Tally& tally_;
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace troupe::adversary
