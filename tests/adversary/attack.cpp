#include "tests/adversary/attack.h"

#include <algorithm>
#include <charconv>

namespace troupe::adversary {
namespace {

// Per connection: bytes that were read and not yet handled.
constexpr std::uint64_t kReadBytes = 128u << 10;
// While a frame of tiny entries is decoded it takes this many times its bytes; one frame of all connections at a time.
constexpr std::uint64_t kDecodedFactor = 30;

std::uint64_t of_connections(const Parameters& parameters, const ServerLimits& limits) {
  return parameters.connections * kReadBytes +
         std::min(parameters.connections * limits.max_outbox_bytes, limits.buffer_bytes);
}

// Large frames half read are in buffer_bytes, too.
std::uint64_t of_texts(const Parameters& parameters, const ServerLimits& limits) {
  return parameters.connections * kReadBytes + limits.buffer_bytes + kDecodedFactor * limits.max_frame_bytes +
         limits.queued_text_bytes + limits.embed_bytes;
}

std::uint64_t of_sessions(const Parameters& parameters, const ServerLimits& limits) {
  return of_texts(parameters, limits) + limits.session_buffer_bytes;
}

const std::vector<Attack>& table() {
  static const std::vector<Attack> kTable{
      {.name = "pipeline",
       .description = "connections that send one kind of frame without end and read nothing",
       .kinds = {"health", "status", "usage", "models", "tokenize", "detokenize", "cancel", "refused", "zero",
                 "in-use"},
       .defaults = {.kind = "health", .connections = 12},
       .of_control = true,
       .allowed_bytes = of_connections,
       .run = pipeline},
      {.name = "flood",
       .description = "connections that send one kind of frame without end and read what comes",
       .kinds = {"health", "status", "usage", "list", "models", "credit", "cancel", "mixed"},
       .defaults = {.kind = "status", .connections = 60},
       .of_control = true,
       .allowed_bytes = of_connections,
       .run = flood},
      {.name = "trickle",
       .description = "streams without end that get one token of credit at a time",
       .kinds = {},
       .defaults = {.connections = 8, .streams = 64, .seconds_between = 4},
       .num_attackers = 2,
       .allowed_bytes = of_connections,
       .run = trickle},
      {.name = "texts",
       .description = "large texts to tokenize, to embed or to continue, and clients that do not wait for it",
       .kinds = {"tokenize", "embed", "generate", "vanish"},
       .defaults = {.kind = "tokenize", .connections = 40, .streams = 4, .bytes = 1 << 20},
       .allowed_bytes = of_texts,
       .run = texts},
      {.name = "storm",
       .description = "connections that come and go, say nothing, or send their bytes one by one",
       .kinds = {"listed", "unlisted", "silent", "half", "prefix", "slow", "broken"},
       .defaults = {.kind = "listed", .connections = 32},
       .num_attackers = 4,
       .of_control = true,
       .allowed_bytes = of_connections,
       .run = storm},
      {.name = "garbage",
       .description = "damaged frames, frames with absurd values, lengths that lie",
       .kinds = {},
       .defaults = {.connections = 16, .bytes = 4096},
       .allowed_bytes = of_texts,
       .run = garbage},
      {.name = "churn",
       .description = "requests that are cancelled or left at a random token, with everything that a request can hold",
       .kinds = {"generate", "embed"},
       .defaults = {.kind = "generate", .connections = 16, .streams = 8, .bytes = 400},
       .allowed_bytes = of_texts,
       .run = churn},
      {.name = "slow-readers",
       .description = "connections with a small buffer that read a byte a second",
       .kinds = {},
       .defaults = {.connections = 32, .streams = 16},
       .allowed_bytes = of_connections,
       .run = slow_readers},
      {.name = "http",
       .description = "HTTP requests on the socket: many, damaged, with bodies or heads without end, sent ahead",
       .kinds = {"questions", "health", "models", "smuggled", "bodies", "chunks", "heads", "ahead", "leaves"},
       .defaults = {.kind = "questions", .connections = 16},
       .allowed_bytes = of_texts,
       .run = http},
      {.name = "slowloris",
       .description = "connections that send an HTTP head or body byte by byte, and come again",
       .kinds = {"head", "body"},
       .defaults = {.kind = "head", .connections = 500},
       .of_control = true,
       .allowed_bytes = of_connections,
       .run = slowloris},
      {.name = "strangers",
       .description = "connections over TCP without a right key, more than there are places, that come again",
       .kinds = {"silent", "half", "page", "unread", "guesses"},
       .defaults = {.kind = "guesses", .connections = 150, .seconds_between = 0.05},
       .of_control = true,
       .allowed_bytes = of_connections,
       .run = strangers},
      {.name = "again",
       .description = "questions, many at a time, each asked again as soon as it is answered",
       .kinds = {"health", "models", "status", "usage", "sessions", "tokenize", "generate", "mixed"},
       .defaults = {.kind = "mixed", .connections = 2, .streams = 60},
       .allowed_bytes = of_texts,
       .run = again},
      {.name = "sessions",
       .description = "sessions that are continued, listed, saved, looked at, forked and deleted, in the same way",
       .kinds = {"turns", "list", "save", "inspect", "fork", "delete", "mixed"},
       .defaults = {.kind = "mixed", .connections = 2, .streams = 60},
       .allowed_bytes = of_sessions,
       .run = sessions},
  };
  return kTable;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool set(Plan& plan, std::string_view key, std::string_view value) {
  Parameters& parameters = plan.parameters;
  if (key == "connections") return read_number(value, parameters.connections) && parameters.connections <= 1024;
  if (key == "streams") return read_number(value, parameters.streams);
  if (key == "bytes") return read_number(value, parameters.bytes);
  if (key == "seconds-between") return read_number(value, parameters.seconds_between);
  if (key != "kind") return false;
  parameters.kind = value;
  const auto& kinds = plan.attack->kinds;
  return std::find(kinds.begin(), kinds.end(), value) != kinds.end();
}

}  // namespace

std::span<const Attack> attacks() { return table(); }

const Attack* find_attack(std::string_view name) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const Attack& attack) { return attack.name == name; });
  return found == table().end() ? nullptr : &*found;
}

std::span<const std::string_view> attacks_through_stops() {
  static constexpr std::string_view kPlans[] = {"again:kind=mixed", "again:kind=sessions", "sessions:kind=mixed"};
  return kPlans;
}

bool Plan::computes() const {
  const std::string& kind = parameters.kind;  // of those that only control, some begin a stream first
  return !attack->of_control || kind == "credit" || kind == "mixed" || kind == "in-use";
}

std::string to_string(const Plan& plan) {
  const Parameters& parameters = plan.parameters;
  std::string text(plan.attack->name);
  text += ":connections=" + std::to_string(parameters.connections);
  if (!parameters.kind.empty()) text += ",kind=" + parameters.kind;
  if (parameters.streams != 1) text += ",streams=" + std::to_string(parameters.streams);
  if (parameters.bytes != 0) text += ",bytes=" + std::to_string(parameters.bytes);
  return text;
}

Plan parse_plan(std::string_view text, std::string& error) {
  const std::string_view name = text.substr(0, text.find(':'));
  Plan plan{.attack = find_attack(name), .parameters = {}};
  if (!plan.attack) {
    error = "there is no attack " + std::string(name) + "; --list shows them";
    return plan;
  }
  plan.parameters = plan.attack->defaults;
  std::string_view rest = name.size() == text.size() ? "" : text.substr(name.size() + 1);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !set(plan, entry.substr(0, equals), entry.substr(equals + 1))) {
      error = std::string(name) + ": " + std::string(entry) + " is not KEY=VALUE of --list";
      return {};
    }
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
  }
  return plan;
}

Plan random_plan(const Attack& attack, std::mt19937_64& random) {
  Plan plan{.attack = &attack, .parameters = attack.defaults};
  if (!attack.kinds.empty()) plan.parameters.kind = attack.kinds[random() % attack.kinds.size()];
  if (plan.parameters.kind == "vanish") {
    plan.parameters.connections = 1;
    plan.parameters.streams = 60;
    plan.parameters.bytes = (4u << 20) - 4096;
  } else if (attack.name == "pipeline" || attack.name == "flood" || attack.name == "storm") {
    constexpr std::size_t kSizes[] = {12, 32, 60};
    plan.parameters.connections = kSizes[random() % 3];
  }
  return plan;
}

std::string words(std::size_t bytes, std::uint64_t seed) {
  static constexpr std::string_view kWords[] = {
      "once ", "upon ", "a ",      "time ", "there ", "was ",  "little ", "girl ", "who ",   "had ", "one ",  "cat ",
      "and ",  "they ", "played ", "all ",  "day ",   "long ", "in ",     "the ",  "park. ", "tom ", "said ", "yes! "};
  std::mt19937_64 random(seed);
  std::string text;
  text.reserve(bytes + 16);
  while (text.size() < bytes) text += kWords[random() % std::size(kWords)];
  text.resize(bytes);
  return text;
}

}  // namespace troupe::adversary
