#include "tests/adversary/rounds.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace troupe::adversary {
namespace {

using std::chrono::milliseconds;

constexpr uid_t kAttackers[] = {12345, 12346};
constexpr uid_t kNeighbour = 12347;
constexpr uid_t kUnlisted = 12348;      // and the next ones
constexpr int kAttackersNiceness = 10;  // what is measured is the server, not a fight for the CPU

// A fourth of the defaults, so that memory beyond them shows early and on a machine of any size.
constexpr std::uint64_t kMaxOutboxBytes = 4u << 20;
constexpr std::uint64_t kMaxBufferBytes = 128u << 20;
constexpr std::uint64_t kMaxSessionBufferBytes = 64u << 20;
constexpr std::uint64_t kGuestsShare = 4;      // the part of a limit that one guest may hold is one in so many
constexpr std::uint64_t kMemory = 256u << 20;  // the embedded model with a whole KV cache
constexpr std::size_t kMaxConnections = 1024;  // of a user: max-connections-per-uid
constexpr milliseconds kDrainTimeout{5'000};
constexpr milliseconds kBeyondDrain{6'000};
constexpr milliseconds kStart{30'000};
constexpr milliseconds kComesToRest{10'000};
constexpr milliseconds kLongestAnswer{15'000};  // longer no answer takes, whatever the attack
constexpr milliseconds kGrace{30'000};          // of children that should have ended
constexpr milliseconds kBetweenLooks{10};
constexpr milliseconds kBeforeStop{500};  // of the attacks that go on through a stop
constexpr int kRestingLooks = 5;          // in a row at which no thread of the server has work
// Memory that the limits do not count: fragments of the heap, stacks, kernels' scratch.
constexpr std::uint64_t kUncounted = 64u << 20;
constexpr double kMemoryFactor = 1.5;
// A machine that answers slower than the bound without an attack has this many times its own pace as the bound.
constexpr double kOfCalmHealth = 2;
// If other processes use more than this share of the CPUs, they slow the server: only gross delays count.
constexpr double kBusyShare = 0.2;
constexpr double kBusyFactor = 20;

std::string allowed_uids() {
  return std::to_string(kAttackers[0]) + "," + std::to_string(kAttackers[1]) + "," + std::to_string(kNeighbour);
}

// Writes an attacker's figures as text for the pipe.
std::string to_text(const Tally& tally) {
  std::string text;
  for (const auto& [what, count] : tally) text += what + "\t" + std::to_string(count) + "\n";
  return text;
}

Tally read_tally(const std::string& text) {
  Tally tally;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t tab = line.rfind('\t'); tab != std::string::npos)
      tally[line.substr(0, tab)] += std::strtoull(line.c_str() + tab, nullptr, 10);
  return tally;
}

Child start_attacker(const Plan& plan, std::optional<uid_t> uid, const ServerProcess& server, std::uint64_t seed,
                     Clock::time_point until) {
  return Child(uid, kAttackersNiceness, [&](int fd) {
    Tally tally;
    Assault assault{.socket = server.socket(),
                    .parameters = plan.parameters,
                    .seed = seed,
                    .until = until,
                    .tally = tally,
                    .tcp = server.tcp()};
    plan.attack->run(assault);
    const std::string text = to_text(tally);
    if (::write(fd, text.data(), text.size()) < 0) ::_exit(1);
  });
}

bool has_control_character(const std::string& log) {
  for (std::size_t i = 0; i < log.size(); ++i) {
    const auto byte = static_cast<unsigned char>(log[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return true;
    const bool c1 = byte == 0xc2 && i + 1 < log.size() && static_cast<unsigned char>(log[i + 1]) < 0xa0;
    if (c1) return true;
  }
  return false;
}

std::string last_line(const std::string& log) {
  const std::size_t end = log.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  return log.substr(log.rfind('\n', end) + 1, end - log.rfind('\n', end));
}

}  // namespace

// Measured while an attack ran.
struct Rounds::Observed {
  std::uint64_t peak = 0;      // resident
  double share_of_others = 0;  // of the CPUs' time: of processes that have nothing to do with this
  bool stopped_early = false;
  Tally tally;
  Measured neighbour;
};

Rounds::Rounds(const Options& options, std::string folder, Report& report)
    : options_(options), folder_(std::move(folder)), report_(report), has_users_(::geteuid() == 0) {
  limits_.max_outbox_bytes = kMaxOutboxBytes;
  limits_.buffer_bytes = kMaxBufferBytes;
  limits_.session_buffer_bytes = kMaxSessionBufferBytes;
  if (has_users_)  // else the attackers are the owner, whose share is nearly everything
    for (std::uint64_t* limit :
         {&limits_.buffer_bytes, &limits_.queued_text_bytes, &limits_.embed_bytes, &limits_.session_buffer_bytes})
      *limit /= kGuestsShare;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // a child that the server leaves behind becomes ours
}

void Rounds::broken(std::string invariant, std::string measured, std::string bound, std::string detail) {
  report_.add({.invariant = std::move(invariant),
               .attack = attack_name_,
               .seed = seed_,
               .measured = std::move(measured),
               .bound = std::move(bound),
               .detail = std::move(detail)});
}

std::vector<std::string> Rounds::server_arguments() const {
  std::vector<std::string> arguments{"--max-outbox-bytes",
                                     std::to_string(kMaxOutboxBytes),
                                     "--max-buffer-bytes",
                                     std::to_string(kMaxBufferBytes),
                                     "--max-session-buffer-bytes",
                                     std::to_string(kMaxSessionBufferBytes),
                                     "--sessions-dir",
                                     folder_ + "/sessions",
                                     "--memory",
                                     std::to_string(kMemory),
                                     "--drain-timeout",
                                     std::to_string(kDrainTimeout.count()) + "ms"};
  if (has_users_) arguments.insert(arguments.end(), {"--allow-uid", allowed_uids()});
  arguments.insert(arguments.end(), options_.server_arguments.begin(), options_.server_arguments.end());
  return arguments;
}

bool Rounds::start_server() {
  const ServerProcess::Options options{.program = options_.troupe,
                                       .folder = folder_ + "/server-" + std::to_string(++num_servers_),
                                       .arguments = server_arguments(),
                                       .with_key = true};
  server_ = std::make_unique<ServerProcess>(options);
  if (!server_->wait_for_log("ready", kStart)) {
    broken("the server starts", last_line(server_->log()), "ready");
    return false;
  }
  Client client(server_->socket(), kLongestAnswer);
  std::string error = client.error();
  if (client.is_open() && num_servers_ == 1) {
    expected_ = ask_expected(client, error);
  } else if (client.is_open()) {
    error = compare_with(expected_, client);
  }
  if (const auto figures = client.status()) kv_bytes_ = figures->kv_bytes;
  if (!error.empty()) broken("a new server answers", error, "the same ids");
  rss_at_start_ = resident_bytes(server_->pid());
  return error.empty();
}

// The last line of --print-limits is the sum, the bytes first.
bool Rounds::read_limits() {
  std::vector<std::string> command{options_.troupe, "serve", "--print-limits"};
  for (std::string& argument : server_arguments()) command.push_back(std::move(argument));
  const std::string sum = last_line(output_of(command).value_or(""));
  documented_total_ = sum.ends_with(" total") ? std::strtoull(sum.c_str(), nullptr, 10) : 0;
  if (documented_total_ == 0) broken("--print-limits ends with the sum", sum, "BYTES ... total");
  report_.say("documented limits: " + mebibytes(documented_total_) + " together");
  return documented_total_ > 0;
}

bool Rounds::begin() {
  attack_name_ = "none";
  seed_ = options_.seed;
  if (!read_limits() || !start_server()) return false;
  report_.say("server: resident " + mebibytes(rss_at_start_) + ", KV cache up to " + mebibytes(kv_bytes_));
  if (!has_users_) {
    report_.say("not root: attackers and neighbour would be one user, so nothing is said of neighbours");
    return true;
  }
  const double seconds = std::clamp(options_.seconds / 10, 1.0, 5.0);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  calm_ = observe({}, until).neighbour;
  report_.say("without an attack: Health p99 " + one_decimal(calm_.percentile(kHealthTime, 0.99)) +
              " ms, first token p99 " + one_decimal(calm_.percentile(kFirstTokenTime, 0.99)) + " ms, own timer p99 " +
              one_decimal(calm_.percentile(kTimerTime, 0.99)) + " ms");
  const std::size_t findings = report_.num_findings();
  judge_answers(calm_);  // its times are what this machine can do
  return report_.num_findings() == findings;
}

Rounds::Observed Rounds::observe(std::vector<Child> attackers, Clock::time_point until) {
  Observed observed;
  const auto begin = Clock::now();
  const auto used_by_us = [&] { return own_cpu_time() + cpu_time(server_->pid()); };
  const Seconds others = machine_cpu_time() - used_by_us();
  std::optional<Child> neighbour;
  if (has_users_)
    neighbour.emplace(start_neighbour({.uid = kNeighbour,
                                       .socket = server_->socket(),
                                       .until = until,
                                       .patience = kLongestAnswer * options_.bounds.patience(),
                                       .expected = expected_,
                                       .tcp = server_->tcp(),
                                       .key = server_->key()}));
  reset_peak(server_->pid());
  bool running = true;
  while (running) {
    const auto now = Clock::now();
    running = now < until;
    for (Child& child : attackers) running |= child.collect(milliseconds(0));
    if (neighbour) running |= neighbour->collect(milliseconds(0));
    pause_for(milliseconds(10));
    const std::uint64_t resident = resident_bytes(server_->pid());
    observed.peak = std::max(observed.peak, resident);
    observed.stopped_early |= resident > options_.bounds.stop_rss;
    if (server_->ended() || observed.stopped_early || now > until + kGrace * options_.bounds.patience())
      for (Child& child : attackers) child.kill();
    if (resident > options_.bounds.stop_rss * 3 / 2) server_->signal(SIGKILL);
    if (neighbour && (server_->ended() || now > until + kGrace * options_.bounds.patience())) neighbour->kill();
  }
  observed.peak = std::max(observed.peak, peak_resident_bytes(server_->pid()));
  for (const Child& child : attackers)
    for (const auto& [what, count] : read_tally(child.text())) observed.tally[what] += count;
  if (neighbour) observed.neighbour = read_measured(neighbour->text());
  attackers.clear();
  neighbour.reset();
  const double cpu_seconds =
      Seconds(Clock::now() - begin).count() * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  observed.share_of_others = (machine_cpu_time() - used_by_us() - others).count() / cpu_seconds;
  return observed;
}

std::uint64_t Rounds::allowed_growth(const std::vector<Plan>& plans) const {
  std::uint64_t sum = 0;
  for (const Plan& plan : plans) {
    Parameters accepted = plan.parameters;  // the server takes no more connections of these users
    const std::size_t num_attackers = plan.attack->num_attackers;
    accepted.connections = std::min(accepted.connections, kMaxConnections * std::size(kAttackers) / num_attackers);
    sum += num_attackers * plan.attack->allowed_bytes(accepted, limits_);
  }
  const bool computes = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.computes(); });
  return (computes ? kv_bytes_ : 0) + kUncounted + static_cast<std::uint64_t>(kMemoryFactor * static_cast<double>(sum));
}

bool Rounds::attack(const std::vector<Plan>& plans, std::uint64_t seed, Clock::duration time) {
  attack_name_.clear();
  for (const Plan& plan : plans) attack_name_ += (attack_name_.empty() ? "" : ",") + to_string(plan);
  seed_ = seed;
  report_.say(attack_name_ + ", seed " + std::to_string(seed));
  const std::size_t findings = report_.num_findings();
  std::vector<Finding> late = attack_once(plans, time);
  if (!late.empty() && report_.num_findings() == findings) {
    // Once may have been the machine's fault.
    report_.say("  late: " + late.front().invariant + ", " + late.front().measured + "; once more");
    late = attack_once(plans, time);
  }
  for (Finding& finding : late) report_.add(std::move(finding));
  if (report_.num_findings() == findings) return true;
  // The next attack gets a new server.
  judge_log();
  return start_server();
}

std::vector<Finding> Rounds::attack_once(const std::vector<Plan>& plans, Clock::duration time) {
  const std::uint64_t before = resident_bytes(server_->pid());
  const auto until = Clock::now() + time;
  bool of_control = true;
  std::vector<Child> attackers;
  for (const Plan& plan : plans) {
    of_control &= plan.attack->of_control;
    for (std::size_t i = 0; i < plan.attack->num_attackers; ++i) {
      std::optional<uid_t> uid;
      if (has_users_)
        uid =
            plan.unlisted() ? kUnlisted + static_cast<uid_t>(i) : kAttackers[attackers.size() % std::size(kAttackers)];
      attackers.push_back(start_attacker(plan, uid, *server_, seed_ + i, until));
    }
  }
  const Observed observed = observe(std::move(attackers), until);
  const std::uint64_t growth = allowed_growth(plans);
  describe(observed, before, growth);
  if (const auto code = server_->ended()) {
    broken("the process lives", "exit status " + std::to_string(*code), "lives", last_line(server_->log()));
    return {};
  }
  judge_memory(observed, before, growth);
  judge_answers(observed.neighbour);
  judge_after(before + growth);
  return late_answers(observed, of_control);
}

void Rounds::describe(const Observed& observed, std::uint64_t before, std::uint64_t growth) {
  std::string seen;
  for (const auto& [what, count] : observed.tally)
    seen += (seen.empty() ? "" : ", ") + what + " " + std::to_string(count);
  report_.say("  attackers: " + seen);
  std::map<std::string, double> figures{{"peak_rss_bytes", static_cast<double>(observed.peak)},
                                        {"rss_bound_bytes", static_cast<double>(before + growth)}};
  std::string line = "  resident " + mebibytes(before) + ", peak " + mebibytes(observed.peak) + " (bound " +
                     mebibytes(options_.bounds.max_rss > 0 ? options_.bounds.max_rss : before + growth) + ")";
  for (const auto& [what, times] : observed.neighbour.times) {
    const double median = observed.neighbour.percentile(what, 0.5), p99 = observed.neighbour.percentile(what, 0.99);
    figures[what + " p50 ms"] = median;
    figures[what + " p99 ms"] = p99;
    figures[what + " samples"] = static_cast<double>(times.size());
    line += "; " + what + " p50 " + one_decimal(median) + " p99 " + one_decimal(p99) + " ms of " +
            std::to_string(times.size());
  }
  figures["neighbour refused"] = static_cast<double>(observed.neighbour.refused.size());
  report_.say(line + "; refused " + std::to_string(observed.neighbour.refused.size()));
  report_.measured(attack_name_, seed_, std::move(figures));
}

void Rounds::judge_memory(const Observed& observed, std::uint64_t before, std::uint64_t growth) {
  const std::uint64_t given = options_.bounds.max_rss;
  const std::uint64_t bound = given > 0 ? given : before + growth;
  if (observed.peak > bound)
    broken("memory within 1.5 times the limits of the attack",
           mebibytes(observed.peak) + (observed.stopped_early ? " when it was stopped" : ""), mebibytes(bound));
  if (given == 0 && observed.peak > documented_total_)
    broken("memory within the sum of all limits", mebibytes(observed.peak), mebibytes(documented_total_));
}

void Rounds::judge_answers(const Measured& measured) {
  if (!measured.refused.empty())
    broken("a neighbour is not refused", std::to_string(measured.refused.size()) + " times", "never",
           measured.refused.front());
  if (!measured.wrong.empty())
    broken("a neighbour is answered as alone", std::to_string(measured.wrong.size()) + " times not", "always",
           measured.wrong.front());
}

std::vector<Finding> Rounds::late_answers(const Observed& observed, bool of_control) const {
  const Bounds& bounds = options_.bounds;
  std::vector<Finding> late;
  if (!bounds.latency || !has_users_) return late;
  const Measured& measured = observed.neighbour;
  const double own_lateness = measured.percentile(kTimerTime, 0.99);
  const bool busy = observed.share_of_others > kBusyShare;
  if (busy)
    report_.say("  others use " + one_decimal(observed.share_of_others * 100) + " % of the CPUs: bounds are wide");
  const auto judge = [&](const char* what, double bound_ms) {
    const double p99 = measured.percentile(what, 0.99);
    const double bound = (bound_ms + own_lateness) * (busy ? kBusyFactor : 1);
    if (p99 > bound)
      late.push_back({.invariant = std::string("a neighbour's ") + what + " p99",
                      .attack = attack_name_,
                      .seed = seed_,
                      .measured = one_decimal(p99) + " ms",
                      .bound = one_decimal(bound) + " ms",
                      .detail = std::to_string(measured.count(what)) + " samples, median " +
                                one_decimal(measured.percentile(what, 0.5)) + " ms"});
  };
  // Attacks with computation take CPU time from the io thread, too; and a machine may be slow.
  const double health = of_control ? bounds.health_ms : bounds.busy_health_ms;
  judge(kHealthTime, std::max(health, kOfCalmHealth * calm_.percentile(kHealthTime, 0.99)));
  judge(kConnectTime, bounds.connect_ms);
  judge(kKeyTime, bounds.wait_ms);
  judge(kTokenizeTime, bounds.wait_ms);
  judge(kDetokenizeTime, bounds.wait_ms);
  judge(kPromptTime, bounds.compute_ms);
  const double calm = std::max(calm_.percentile(kFirstTokenTime, 0.99), bounds.first_token_ms);
  judge(kSessionTime, calm_.percentile(kSessionTime, 0.99) + bounds.session_ms);
  judge(kFirstTokenTime, of_control ? bounds.first_token_factor * calm : bounds.compute_ms);
  return late;
}

void Rounds::judge_after(std::uint64_t idle_bound) {
  const auto begin = Clock::now();
  Client client(server_->socket(), kLongestAnswer * options_.bounds.patience());
  std::optional<Figures> figures;
  bool resting = false, counted = false;
  while (!resting && Clock::now() < begin + kComesToRest * options_.bounds.patience()) {
    figures = client.status();
    if (!figures) break;
    counted = figures->received == figures->all_ended();
    resting = figures->idle() && figures->connections == 1 && counted;
    for (int look = 0; look < kRestingLooks && resting; ++look) {
      pause_for(kBetweenLooks);
      resting = !has_work(server_->pid());
    }
  }
  if (!figures) return broken("the server answers after an attack", client.error(), "an answer");
  if (!counted)
    broken("every request ends in one counter", std::to_string(figures->received) + " received",
           std::to_string(figures->all_ended()) + " ended");
  else if (!resting)
    broken("comes to rest after an attack",
           std::to_string(figures->waiting + figures->running + figures->parked) + " requests, " +
               std::to_string(figures->connections) + " connections, and whatever else it computes",
           one_decimal(to_ms(kComesToRest * options_.bounds.patience()) / 1000) + " s");
  const std::uint64_t resident = resident_bytes(server_->pid());
  report_.say("  after " + one_decimal(to_ms(Clock::now() - begin) / 1000) + " s: resident " + mebibytes(resident));
  const std::uint64_t bound = options_.bounds.max_rss > 0 ? options_.bounds.max_rss : idle_bound;
  if (resident > bound) broken("memory comes back", mebibytes(resident), mebibytes(bound));
  if (const std::string differs = compare_with(expected_, client); !differs.empty())
    broken("the same answers after an attack", differs, "the same ids");
}

void Rounds::judge_log() {
  const std::string log = server_->log();
  if (has_control_character(log)) broken("the log has no control characters", "it has", "none");
  for (const char* word : {"assert", "Assertion", "AddressSanitizer", "runtime error"})
    if (const std::size_t at = log.find(word); at != std::string::npos)
      broken("the log reports no bug of the server", log.substr(at, 200), "none");
}

void Rounds::count(std::uint64_t seed) {
  attack_name_ = "counts";
  seed_ = seed;
  const CountsResult result = compare_counts(server_->socket());
  if (!result.error.empty()) return broken("requests are counted", result.error, "an answer");
  report_.say("counts: " + std::to_string(result.num_requests) + " requests, " + std::to_string(result.wrong.size()) +
              " counters differ");
  for (const Miscount& wrong : result.wrong)
    broken("every request is counted once: " + wrong.what, std::to_string(wrong.counted) + " counted",
           std::to_string(wrong.seen) + " seen");
}

void Rounds::end() {
  attack_name_ = "questions through a stop";
  seed_ = options_.seed;
  std::vector<Child> attackers;
  std::string ignored;
  for (const std::string_view plan : attacks_through_stops()) {
    attackers.push_back(
        start_attacker(parse_plan(plan, ignored),
                       has_users_ ? std::optional(kAttackers[attackers.size() % std::size(kAttackers)]) : std::nullopt,
                       *server_, seed_, Clock::now() + kGrace * options_.bounds.patience()));
  }
  pause_for(kBeforeStop);
  const auto begin = Clock::now();
  server_->signal(SIGTERM);
  const milliseconds bound = (kDrainTimeout + kBeyondDrain) * options_.bounds.patience();
  const auto code = server_->wait(bound);
  report_.say("SIGTERM: " + (code ? "exit status " + std::to_string(*code) : "lives") + " after " +
              one_decimal(to_ms(Clock::now() - begin) / 1000) + " s");
  if (!code) broken("exit in time", "lives", one_decimal(to_ms(bound) / 1000) + " s", last_line(server_->log()));
  if (code && *code != 0) broken("exit status", std::to_string(*code), "0", last_line(server_->log()));
  if (code && server_->socket_exists()) broken("the socket is removed", "it is there", "none");
  attackers.clear();
  judge_log();
  server_.reset();
  if (const pid_t stray = ::waitpid(-1, nullptr, WNOHANG); stray >= 0)
    broken("no child is left", "process " + std::to_string(stray), "none");
}

}  // namespace troupe::adversary
