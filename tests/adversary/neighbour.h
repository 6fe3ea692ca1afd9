// A user of the server that is not part of an attack: sends small requests at a steady pace, in a process of its
// own, and measures how long the answers take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/adversary/child.h"

namespace troupe::adversary {

// The answers of an undisturbed server.
struct Expected {
  std::vector<std::int32_t> first_ids{};   // of the short Generate
  std::vector<std::int32_t> long_ids{};    // of the long one
  std::vector<std::int32_t> hello_ids{};   // of the small Tokenize
  std::string text{};                      // of the small Detokenize
  std::vector<std::int32_t> prompt_ids{};  // of the long prompt
};
// Requests all of them; `error` says what went wrong, or is left empty.
Expected ask_expected(Client& client, std::string& error);
// Asks again and compares; what differs, or nothing.
std::string compare_with(const Expected& expected, Client& client);

// Times in milliseconds, by what was asked.
struct Measured {
  std::map<std::string, std::vector<double>> times{};
  std::vector<std::string> refused{};  // a line for each
  std::vector<std::string> wrong{};    // other answers than expected, lost connections

  // 0 if there are none.
  double percentile(const std::string& what, double share) const;
  std::size_t count(const std::string& what) const;
};

// Names in Measured::times.
inline constexpr const char* kHealthTime = "Health";
inline constexpr const char* kFirstTokenTime = "first token";
inline constexpr const char* kTokenizeTime = "Tokenize";
inline constexpr const char* kDetokenizeTime = "Detokenize";
inline constexpr const char* kPromptTime = "long prompt";
inline constexpr const char* kSessionTime = "session turn";
inline constexpr const char* kConnectTime = "connect";
inline constexpr const char* kKeyTime = "models with a key";
inline constexpr const char* kTimerTime = "own timer";  // by how much this process itself was late

struct NeighbourSetting {
  uid_t uid = 0;
  std::string socket;
  Clock::time_point until;             // it ends by itself once this has passed and all is answered
  std::chrono::milliseconds patience;  // longer than this no answer may take, whatever the attack
  Expected expected;
  std::string tcp;  // where it asks with its key
  std::string key;
};
Child start_neighbour(const NeighbourSetting& setting);
// Parses the neighbour's output.
Measured read_measured(const std::string& text);

}  // namespace troupe::adversary
