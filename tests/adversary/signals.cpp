#include "tests/adversary/signals.h"

#include <signal.h>

#include <array>
#include <filesystem>

#include "tests/adversary/attack.h"
#include "tests/adversary/child.h"

namespace troupe::adversary {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDrainTimeout{1'000};
constexpr milliseconds kBeyondDrain{5'000};  // a server that still runs then ends itself
constexpr milliseconds kSlack{1'000};
constexpr milliseconds kAtOnce{1'000};
constexpr milliseconds kSameSignalAgain{
    300};  // sooner the same signal counts as one (kSameSignal in cli/serve/serve.cpp)
constexpr milliseconds kOtherSignal{50};
constexpr milliseconds kGivesUp{20'000};
constexpr milliseconds kPatience{30'000};

constexpr std::array kPhases{"loading", "saving", "encoding", "prefill", "decode", "embedding", "draining", "asked"};

// Brings the server into the phase and keeps it there while `clients` are connected. Returns what went wrong; empty:
// nothing.
std::string bring_into(const std::string& phase, const ServerProcess& server, std::vector<Client>& clients,
                       std::vector<Child>& attackers) {
  if (phase == "asked") {
    for (const std::string_view name : attacks_through_stops())
      attackers.emplace_back(std::nullopt, 0, [&](int) {
        std::string ignored;
        const Plan plan = parse_plan(name, ignored);
        Tally tally;
        Assault assault{.socket = server.socket(),
                        .parameters = plan.parameters,
                        .until = Clock::now() + kPatience + kGivesUp,
                        .tally = tally};
        plan.attack->run(assault);
      });
  }
  clients.emplace_back(server.socket(), kPatience);
  Client& client = clients.back();
  if (!client.is_open()) return client.error();
  if (phase == "encoding") {
    const std::string text = words((4u << 20) - 4096, 1);
    for (int i = 0; i < 40; ++i) client.send(tokenize_frame(client.new_stream(), text));
    client.close();  // its answer is not needed any more
  } else if (phase == "embedding") {
    for (std::uint64_t i = 0; i < 60; ++i)
      client.send(embed_frame(client.new_stream(), std::vector<std::string>(200, words(3000, i))));
  } else if (phase == "prefill" || phase == "decode") {
    const std::size_t bytes = phase == "prefill" ? 3500 : 40;
    for (std::uint64_t i = 0; i < 60; ++i)
      client.send(generate_frame({.stream = client.new_stream(), .text = words(bytes, i), .max_tokens = 900}));
    if (phase == "decode" && !client.receive()) return client.error();
  } else if (phase == "draining") {  // a stream that does not end by itself
    client.send(generate_frame({.stream = client.new_stream(), .text = "Once", .max_tokens = 900, .credit = 1}));
    if (!client.receive()) return client.error();
  }
  return "";
}

std::string last_line(const std::string& log) {
  const std::size_t end = log.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = log.rfind('\n', end);
  return log.substr(begin + 1, end - begin);
}

struct Case {
  std::string phase;
  bool two = false;
  std::uint64_t seed = 0;
  int patience = 1;
  Report& report;

  void broken(std::string invariant, std::string measured, std::string bound, std::string detail = "") const {
    report.add({.invariant = std::move(invariant),
                .attack = "signals:" + phase + (two ? "/two" : "/one"),
                .seed = seed,
                .measured = std::move(measured),
                .bound = std::move(bound),
                .detail = std::move(detail)});
  }
};

void check_end(const Case& test, ServerProcess& server, Clock::time_point signalled, milliseconds promised,
               int expected_code, bool may_have_stopped) {
  const milliseconds bound = promised * test.patience;
  const auto code = server.wait(std::max(kGivesUp, bound));
  const auto time = Clock::now() - signalled;
  const std::string took = one_decimal(to_ms(time) / 1000) + " s";
  if (!code || time > bound)
    test.broken("exit in time", (code ? "ended after " : "lives after ") + took,
                one_decimal(static_cast<double>(bound.count()) / 1000) + " s", last_line(server.log()));
  // It may have come to its end between the two signals.
  const bool stopped = may_have_stopped && code == 0 && time < milliseconds(100);
  if (code && *code != expected_code && !stopped)
    test.broken("exit status", std::to_string(*code), std::to_string(expected_code), last_line(server.log()));
  if (code && server.socket_exists()) test.broken("the socket is removed", "it is there", "none");
  if (code == 0 && !last_line(server.log()).ends_with("stopped"))
    test.broken("\"stopped\" is the last line of the log", last_line(server.log()), "stopped");
  test.report.measured("signals:" + test.phase + (test.two ? "/two" : "/one"), test.seed,
                       {{"exit_seconds", to_ms(time) / 1000}, {"code", code.value_or(-1)}});
  test.report.say("  signals:" + test.phase + (test.two ? "/two" : "/one") + ": " + took + ", exit status " +
                  (code ? std::to_string(*code) : "none"));
}

}  // namespace

std::vector<std::string> signal_cases() {
  std::vector<std::string> names;
  for (const char* phase : kPhases)
    for (const char* number : {"/one", "/two"}) names.push_back(std::string(phase) + number);
  return names;
}

void run_signal_case(const std::string& name, const SignalSetting& setting, std::uint64_t seed, Report& report) {
  std::mt19937_64 random(seed);
  const Case test{.phase = name.substr(0, name.find('/')),
                  .two = name.ends_with("/two"),
                  .seed = seed,
                  .patience = setting.patience,
                  .report = report};
  ServerProcess::Options options{.program = setting.program,
                                 .folder = setting.folder + "/signals-" + test.phase + (test.two ? "-two" : "-one"),
                                 .arguments = setting.arguments};
  const bool loads = test.phase == "loading" || test.phase == "saving";
  options.arguments.insert(options.arguments.end(), {"--drain-timeout", std::to_string(kDrainTimeout.count()) + "ms"});
  if (loads && !setting.model.empty()) options.arguments.insert(options.arguments.end(), {"--model", setting.model});
  std::filesystem::remove_all(options.folder);
  options.arguments.insert(options.arguments.end(), {"--sessions-dir", options.folder + "/sessions"});
  if (test.phase == "saving")
    options.arguments.insert(options.arguments.end(), {"--weights-cache", options.folder + "/weights"});
  ServerProcess server(options);
  if (!server.wait_for_log(loads ? "loading" : "ready", kPatience))
    return test.broken("the server starts", last_line(server.log()), "ready");
  std::vector<Client> clients;
  std::vector<Child> attackers;
  const std::string error = loads ? "" : bring_into(test.phase, server, clients, attackers);
  if (!error.empty()) return test.broken("the server answers", error, "an answer");
  // Somewhere in the phase.
  pause_for(milliseconds(random() % (loads ? 10 : 100)));
  const int first = random() % 2 == 0 ? SIGTERM : SIGINT;
  server.signal(first);
  auto signalled = Clock::now();
  if (!test.two) return check_end(test, server, signalled, kDrainTimeout + kBeyondDrain + kSlack, 0, false);
  const bool same = random() % 2 == 0;
  const int second = same == (first == SIGTERM) ? SIGTERM : SIGINT;
  pause_for(same ? kSameSignalAgain : kOtherSignal);
  if (server.ended()) return check_end(test, server, signalled, kAtOnce, 0, true);
  server.signal(second);
  signalled = Clock::now();
  check_end(test, server, signalled, kAtOnce, 128 + second, true);
}

}  // namespace troupe::adversary
