// The frames of the protocol (ipc/troupe.proto) as bytes, and what the server's frames say.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/adversary/wire.h"

namespace troupe::adversary {

// Numbers of ClientFrame's body.
enum class Ask : std::uint32_t {
  hello = 1,
  generate = 2,
  cancel = 3,
  credit = 4,
  tokenize = 5,
  detokenize = 6,
  models = 7,
  status = 8,
  health = 9,
  embed = 10,
  usage = 14,
  session = 15,
};

// Numbers of ServerFrame's body.
enum class Reply : std::uint32_t {
  none = 0,
  welcome = 1,
  tokens = 2,
  done = 3,
  refused = 4,
  failed = 5,
  tokenized = 6,
  detokenized = 7,
  models = 8,
  status = 9,
  health = 10,
  draining = 11,
  embeddings = 12,
  usage = 14,
  sessions = 15,
};

std::string body_of(Ask ask, const Message& message);
std::string frame_of(Ask ask, const Message& message);

std::string hello_frame(std::string_view client = "adversary");
// Questions that hold nothing but a stream.
std::string plain_frame(Ask ask, std::uint64_t stream);
std::string status_frame(std::uint64_t stream, bool list_requests);
std::string tokenize_frame(std::uint64_t stream, std::string_view text);
std::string detokenize_frame(std::uint64_t stream, const std::vector<std::int32_t>& ids);
// Numbers of SessionRequest's questions.
enum class AskSession : std::uint32_t { list = 2, save = 3, fork = 4, remove = 5, inspect = 6 };
// name: not for list. to: the new session of a fork.
std::string session_frame(std::uint64_t stream, AskSession ask, std::string_view name = "", std::string_view to = "");
std::string credit_frame(std::uint64_t stream, std::uint64_t tokens, std::uint32_t choice = 0);
std::string embed_frame(std::uint64_t stream, const std::vector<std::string>& texts);

// The fields of a Generate that the attacks vary.
struct Asked {
  std::uint64_t stream = 1;
  std::string text{};
  std::optional<std::uint32_t> n{};
  float temperature = 0.8f;
  std::uint64_t seed = 1;
  std::uint32_t max_tokens = 16;
  bool ignore_eos = true;
  std::optional<std::uint64_t> credit{};
  std::optional<std::uint64_t> deadline_ms{};
  std::vector<std::string> stop{};
  std::vector<std::int32_t> stop_ids{};
  std::uint32_t num_biased = 0;  // ids 0, 1, ... get a bias
  std::int32_t priority = 0;
  std::string model{};
  std::string adapter{};  // a field that is not served
  std::string session{};
};
Message generate_message(const Asked& asked);
std::string generate_frame(const Asked& asked);

// The contents of a server's frame; Figures has those of a Status.
struct Answer {
  Reply reply = Reply::none;
  std::uint64_t stream = 0;
  std::uint32_t choice = 0;
  std::uint32_t outcome = 0;  // Done.reason, Refused.code, Failed.code
  std::vector<std::int32_t> ids{};
  std::string text{};  // Tokens.text, Detokenized.text
  std::string message{};
  std::string field{};  // Refused.field
  bool closing = false;
  std::string body{};  // a Status, encoded
};
// Nothing: these bytes are no ServerFrame.
std::optional<Answer> read_answer(std::string_view body);
std::string outcome_name(std::uint32_t outcome);
std::string to_string(const Answer& answer);  // one line

// The counters of a Status that are looked at here.
struct Figures {
  std::uint64_t received = 0;
  std::map<std::string, std::uint64_t> ended{};  // Generate and Embed, by outcome's name
  std::map<std::string, std::uint64_t> kinds{};  // of each kind of request: "health received", "health eos", ...
  std::uint64_t waiting = 0, running = 0, parked = 0;
  std::uint64_t connections = 0, streams = 0;
  std::uint64_t broken = 0, refused_connections = 0;
  std::uint64_t kv_bytes = 0, resident_bytes = 0;

  std::uint64_t all_ended() const;
  bool idle() const { return waiting + running + parked == 0; }
};
Figures read_figures(std::string_view status);

}  // namespace troupe::adversary
