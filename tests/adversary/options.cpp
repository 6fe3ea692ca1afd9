#include "tests/adversary/options.h"

#include <charconv>
#include <functional>
#include <map>
#include <sstream>

namespace troupe::adversary {
namespace {

template <class Number>
bool read(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && number >= 0;
}

// "512MiB", "4GiB" or bytes.
bool read_bytes(const std::string& text, std::uint64_t& bytes) {
  const std::size_t unit = text.find_first_not_of("0123456789");
  if (!read(text.substr(0, unit), bytes)) return false;
  const std::string rest = unit == std::string::npos ? "" : text.substr(unit);
  if (rest == "MiB") bytes <<= 20;
  if (rest == "GiB") bytes <<= 30;
  return rest.empty() || rest == "MiB" || rest == "GiB";
}

// Attacks are separated by commas, and so are the parameters of one: a part that has a '=' but no ':' belongs to the
// attack before it.
void split_attacks(const std::string& text, std::vector<std::string>& attacks) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const bool continues = part.find('=') != std::string::npos && part.find(':') == std::string::npos;
    if (continues && !attacks.empty())
      attacks.back() += "," + part;
    else if (part != "all")
      attacks.push_back(part);
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments, std::string& error) {
  Options options;
  Bounds& bounds = options.bounds;
  using Take = std::function<bool(const std::string&)>;
  const std::map<std::string, Take> values{
      {"--troupe", [&](const std::string& text) { return !(options.troupe = text).empty(); }},
      {"--seconds", [&](const std::string& text) { return read(text, options.seconds); }},
      {"--seed", [&](const std::string& text) { return read(text, options.seed); }},
      {"--attack", [&](const std::string& text) { return split_attacks(text, options.attacks), true; }},
      {"--health-ms", [&](const std::string& text) { return read(text, bounds.health_ms); }},
      {"--first-token-factor", [&](const std::string& text) { return read(text, bounds.first_token_factor); }},
      {"--first-token-ms", [&](const std::string& text) { return read(text, bounds.first_token_ms); }},
      {"--busy-health-ms", [&](const std::string& text) { return read(text, bounds.busy_health_ms); }},
      {"--compute-ms", [&](const std::string& text) { return read(text, bounds.compute_ms); }},
      {"--wait-ms", [&](const std::string& text) { return read(text, bounds.wait_ms); }},
      {"--session-ms", [&](const std::string& text) { return read(text, bounds.session_ms); }},
      {"--connect-ms", [&](const std::string& text) { return read(text, bounds.connect_ms); }},
      {"--max-rss", [&](const std::string& text) { return read_bytes(text, bounds.max_rss); }},
      {"--stop-rss", [&](const std::string& text) { return read_bytes(text, bounds.stop_rss); }},
      {"--report", [&](const std::string& text) { return !(options.report = text).empty(); }},
      {"--model", [&](const std::string& text) { return !(options.model = text).empty(); }},
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      options.server_arguments.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (argument == "--help" || argument == "-h") {
      options.help = true;
    } else if (argument == "--list") {
      options.list = true;
    } else if (argument == "--no-latency") {
      bounds.latency = false;
    } else if (const auto found = values.find(argument); found == values.end()) {
      error = argument + " is not known; --help shows what is";
    } else if (i + 1 == arguments.size() || !found->second(arguments[i + 1])) {
      error = argument + " needs a value that it can use; --help shows which";
      break;
    } else {
      ++i;
    }
  }
  if (error.empty() && options.troupe.empty() && !options.help && !options.list)
    error = "--troupe PATH is needed: the server's program, build/release/troupe";
  return options;
}

std::string help_text() {
  return R"(usage: adversary --troupe PATH [options] [-- ARGUMENTS OF troupe serve]

Starts a server with the embedded model on a private socket, attacks it from outside with a protocol writer of its own,
watches it and a neighbour that shares it, and checks invariants:

  - the process lives, and after each attack a fixed request still gets the same ids;
  - resident memory stays within the documented limits, and comes back when the attack is over;
  - a neighbour of another uid is never refused, and waits no longer than the bounds below;
  - every request is counted once;
  - the server stops in time, by one signal or two, in every phase, and leaves no socket and no child behind;
  - its log has no control characters.

As root the attackers, the neighbour and the server's owner are different users. Without root there is one user, and
what is said of neighbours is not checked.

  --troupe PATH              the server's program
  --seconds S                how long to attack (60); starting and stopping comes on top
  --seed N                   order, kinds and contents of the attacks (1)
  --attack LIST              all, or names with parameters: "pipeline,flood:kind=status,connections=60" (all)
  --list                     show the attacks and their parameters, and stop
  --report FILE              write findings and figures as JSON
  --model FILE               a model that is slow to load, for signals during loading; none: the embedded one

Bounds:
  --no-latency               bound no times: for sanitizers and busy machines
  --health-ms X              a neighbour's Health under floods of control, p99 (20); on a machine that is slower without
                             an attack, twice that
  --first-token-factor X     its time to a first token under floods of control, p99, as a multiple of that without an
                             attack (3)
  --first-token-ms X         taken as the latter where that is less (5)
  --busy-health-ms X         its Health where the attack makes the server compute, p99 (100)
  --compute-ms X             its Generates where the attack makes the server compute, p99 (10000)
  --wait-ms X                its small Tokenize and Detokenize, p99 (2000)
  --session-ms X             its session turn of one token, p99, above that without an attack (400: two steps of the
                             longest stall and 200)
  --connect-ms X             connecting until Welcome, p99 (250)
                             to each of these the 99th percentile is added by which the neighbour's own timers were
                             late; on a machine that is busy with something else they are 20 times as long; and what is
                             late counts when it is late again in a second try
  --max-rss SIZE             resident memory; none: what `troupe serve --print-limits` adds up to, and for each attack
                             1.5 times the limits that it can fill
  --stop-rss SIZE            stop an attack that made the server hold as much (4GiB)

Exit status: 0 when every invariant held, 1 when not, 2 for a wrong command line.

Examples:
  adversary --troupe build/release/troupe
  adversary --troupe build/release/troupe --seconds 3600 --seed 42 --report figures.json
  adversary --troupe build/release/troupe --attack pipeline:kind=health,connections=64 --seconds 10
  adversary --troupe build/release/troupe --attack signals
  adversary --troupe build/asan/troupe --no-latency --max-rss 6GiB
  adversary --troupe build/release/troupe --attack texts -- --max-queued-texts 16
)";
}

}  // namespace troupe::adversary
