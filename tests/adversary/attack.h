// An attack, and the list of all attacks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/adversary/swarm.h"

namespace troupe::adversary {

// The parameters of an attack, as they are written after its name: "pipeline:kind=status,connections=64".
struct Parameters {
  std::string kind{};
  std::size_t connections = 1;  // of each attacker
  std::size_t streams = 1;      // requests at a time of each connection
  std::size_t bytes = 0;        // of a text
  double seconds_between = 0;   // where an attack paces itself
};

// The context of a running attacker.
struct Assault {
  std::string socket;
  Parameters parameters;
  std::uint64_t seed = 1;
  Clock::time_point until;
  Tally& tally;
  std::string tcp{};  // where clients need a key
};

// Limits of the server under attack that bound what one of its users may make it hold: options of `troupe serve`, or a
// guest's share of them.
struct ServerLimits {
  std::uint64_t max_outbox_bytes = 0;  // of a connection
  std::uint64_t max_frame_bytes = 4u << 20;
  std::uint64_t buffer_bytes = 0;  // of a user, as are the next
  std::uint64_t queued_text_bytes = 64u << 20;
  std::uint64_t embed_bytes = 64u << 20;
  std::uint64_t session_buffer_bytes = 512u << 20;
};

struct Attack {
  std::string_view name;
  std::string_view description;
  std::vector<std::string> kinds;  // values of `kind`; empty: there is one
  Parameters defaults;
  std::size_t num_attackers = 1;  // processes side by side; the first belongs to one user, the second to another, ...
  bool of_control = false;        // computes nothing, so that a neighbour should not notice it
  // The most that the limits of the server let it hold for one attacker, without the KV cache.
  std::uint64_t (*allowed_bytes)(const Parameters&, const ServerLimits&);
  void (*run)(Assault&);
};

std::span<const Attack> attacks();
const Attack* find_attack(std::string_view name);

// An attack with its parameters.
struct Plan {
  const Attack* attack = nullptr;
  Parameters parameters;

  // Whether it may fill the KV cache, too.
  bool computes() const;
  // Whether the attackers are users that the server refuses.
  bool unlisted() const { return parameters.kind == "unlisted"; }
};
std::string to_string(const Plan& plan);
// Parses "name" or "name:key=value,..."; on error the attack is null and `error` has the reason.
Plan parse_plan(std::string_view text, std::string& error);
// The attack with a kind and a size drawn at random.
Plan random_plan(const Attack& attack, std::mt19937_64& random);

// The attacks that go on while the server is stopped: what is asked again and again must not keep it.
std::span<const std::string_view> attacks_through_stops();

// A text of so many bytes that is words to a tokenizer.
std::string words(std::size_t bytes, std::uint64_t seed);

// The attacks themselves: attacks_again.cpp, attacks_control.cpp, attacks_work.cpp, attacks_wire.cpp, attacks_http.cpp.
void pipeline(Assault& assault);
void flood(Assault& assault);
void slow_readers(Assault& assault);
void trickle(Assault& assault);
void texts(Assault& assault);
void churn(Assault& assault);
void storm(Assault& assault);
void garbage(Assault& assault);
void http(Assault& assault);
void slowloris(Assault& assault);
void strangers(Assault& assault);
void again(Assault& assault);
void sessions(Assault& assault);

}  // namespace troupe::adversary
