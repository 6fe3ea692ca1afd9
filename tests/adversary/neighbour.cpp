#include "tests/adversary/neighbour.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>
#include <thread>

namespace troupe::adversary {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxTimes = 5000;  // that one late answer stands for

constexpr const char* kSmallText = "hello";
constexpr std::int32_t kSmallId = 42;
constexpr std::uint32_t kFirstTokens = 5;
constexpr std::size_t kLongPromptBytes = 5000;
constexpr std::size_t kTurnsOfASession = 12;

Asked short_request() { return {.text = "Once upon a time", .seed = 7, .max_tokens = kFirstTokens}; }

// Five kilobytes of few tokens, so that it fits a small context.
Asked long_request() {
  std::string text;
  while (text.size() < kLongPromptBytes) text += " everything together another something";
  return {.text = text.substr(0, kLongPromptBytes), .seed = 7, .max_tokens = 1};
}

// Sends one kind of request at a steady pace. Requests that were due while an answer was late count as late, too:
// otherwise a server that stops for a second would cause one late answer only.
class Prober {
 public:
  Prober(const NeighbourSetting& setting, milliseconds period)
      : setting_(setting), period_(period), client_(setting.socket, setting.patience) {
    if (!client_.is_open()) wrong("connect: " + client_.error());
  }

  // ask(client): whether to go on with this connection.
  template <class AskOnce>
  void run(const AskOnce& ask) {
    for (auto due = Clock::now(); due < setting_.until; due = std::max(due + period_, Clock::now())) {
      std::this_thread::sleep_until(due);
      add(kTimerTime, Clock::now() - due, milliseconds(0));
      if (!client_.is_open()) client_ = Client(setting_.socket, setting_.patience);
      ask(client_);
    }
  }

  void add(const char* what, Clock::duration time, milliseconds period) {
    std::vector<double>& times = measured_.times[what];
    times.push_back(to_ms(time));
    if (period.count() == 0) return;
    std::size_t more = 0;
    for (auto rest = time - period; rest > Clock::duration::zero() && more < kMaxTimes; rest -= period, ++more)
      times.push_back(to_ms(rest));
  }
  void add(const char* what, Clock::duration time) { add(what, time, period_); }

  // Whether this is the expected answer; if not, records the difference.
  bool expect(const char* what, const std::optional<Answer>& answer, Reply wanted) {
    if (answer && answer->reply == wanted) return true;
    if (answer && answer->reply == Reply::refused)
      measured_.refused.push_back(std::string(what) + ": " + to_string(*answer));
    else
      wrong(std::string(what) + ": " + (answer ? to_string(*answer) : client_.error()));
    return false;
  }

  void wrong(std::string line) { measured_.wrong.push_back(std::move(line)); }
  Measured& measured() { return measured_; }

 private:
  const NeighbourSetting& setting_;
  milliseconds period_;
  Client client_;
  Measured measured_;
};

void probe_health(Prober& prober) {
  prober.run([&](Client& client) {
    const std::uint64_t stream = client.new_stream();
    const auto begin = Clock::now();
    const auto answer = client.ask(stream, plain_frame(Ask::health, stream));
    if (prober.expect(kHealthTime, answer, Reply::health)) prober.add(kHealthTime, Clock::now() - begin);
  });
}

void probe_first_token(Prober& prober, const NeighbourSetting& setting) {
  prober.run([&](Client& client) {
    const Generated generated = client.generate(short_request());
    if (!prober.expect(kFirstTokenTime, generated.end, Reply::done)) return;
    if (generated.ids != setting.expected.first_ids) return prober.wrong("Generate: other ids than at the start");
    const auto time = std::chrono::duration<double, std::milli>(generated.first_token_ms);
    prober.add(kFirstTokenTime, std::chrono::duration_cast<Clock::duration>(time));
  });
}

void probe_texts(Prober& prober, const NeighbourSetting& setting) {
  prober.run([&](Client& client) {
    const std::uint64_t tokenize = client.new_stream(), detokenize = client.new_stream();
    auto begin = Clock::now();
    const auto tokenized = client.ask(tokenize, tokenize_frame(tokenize, kSmallText));
    if (prober.expect(kTokenizeTime, tokenized, Reply::tokenized)) {
      prober.add(kTokenizeTime, Clock::now() - begin);
      if (tokenized->ids != setting.expected.hello_ids) prober.wrong("Tokenize: other ids than at the start");
    }
    begin = Clock::now();
    const auto detokenized = client.ask(detokenize, detokenize_frame(detokenize, {kSmallId}));
    if (prober.expect(kDetokenizeTime, detokenized, Reply::detokenized)) {
      prober.add(kDetokenizeTime, Clock::now() - begin);
      if (detokenized->text != setting.expected.text) prober.wrong("Detokenize: another text than at the start");
    }
  });
}

void probe_long_prompt(Prober& prober) {
  prober.run([&](Client& client) {
    const auto begin = Clock::now();
    const Generated generated = client.generate(long_request());
    if (prober.expect(kPromptTime, generated.end, Reply::done)) prober.add(kPromptTime, Clock::now() - begin);
  });
}

// A session of a few turns, each of which is answered with one token; then it is deleted and begins again.
void probe_session(Prober& prober) {
  const std::string name = "neighbour-" + std::to_string(::getpid());
  std::vector<std::vector<std::int32_t>> of_first;  // by turn, of the first round
  std::size_t turn = 0;
  const auto forget = [&](Client& client) {
    const std::uint64_t stream = client.new_stream();
    prober.expect("deleting a session", client.ask(stream, session_frame(stream, AskSession::remove, name)),
                  Reply::sessions);
    turn = 0;
  };
  Client* last = nullptr;
  prober.run([&](Client& client) {
    last = &client;
    Asked asked = short_request();
    asked.max_tokens = 1;
    asked.session = name;
    const auto begin = Clock::now();
    const Generated generated = client.generate(asked);
    if (!prober.expect(kSessionTime, generated.end, Reply::done)) return;
    prober.add(kSessionTime, Clock::now() - begin);
    if (turn == of_first.size()) of_first.push_back(generated.ids);
    if (generated.ids != of_first[turn]) prober.wrong("a session's turn: other ids than the first time");
    if (++turn == kTurnsOfASession) forget(client);
  });
  if (turn > 0 && last && last->is_open()) forget(*last);
}

void probe_connect(Prober& prober, const NeighbourSetting& setting) {
  prober.run([&](Client&) {
    const auto begin = Clock::now();
    const Client newcomer(setting.socket, setting.patience);
    if (newcomer.is_open())
      prober.add(kConnectTime, Clock::now() - begin);
    else
      prober.wrong("connect: " + newcomer.error());
  });
}

// With a key over TCP, on a connection of its own each time.
void probe_with_key(Prober& prober, const NeighbourSetting& setting) {
  const std::string request =
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nx-api-key: " + setting.key + "\r\n\r\n";
  constexpr std::string_view kGood = "HTTP/1.1 200 ";
  prober.run([&](Client&) {
    const auto begin = Clock::now();
    const Descriptor socket = connect_to(setting.tcp, setting.patience);
    std::string status(kGood.size(), '\0');
    const bool is_sent = socket.is_open() && ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0;
    const ssize_t size = is_sent ? ::recv(socket.get(), status.data(), status.size(), MSG_WAITALL) : 0;
    status.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    if (status == kGood)
      prober.add(kKeyTime, Clock::now() - begin);
    else
      prober.wrong("with a key: " + (status.empty() ? "the connection ended" : status));
  });
}

void write_all(int fd, const std::string& text) {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::write(fd, text.data() + sent, text.size() - sent);
    if (count <= 0) return;
    sent += static_cast<std::size_t>(count);
  }
}

// One line for each time and each complaint.
std::string to_text(const Measured& measured) {
  std::ostringstream text;
  for (const auto& [what, times] : measured.times)
    for (const double time : times) text << "time\t" << what << '\t' << time << '\n';
  for (const std::string& line : measured.refused) text << "refused\t" << line << "\t0\n";
  for (const std::string& line : measured.wrong) text << "wrong\t" << line << "\t0\n";
  return std::move(text).str();
}

void probe_all(int fd, const NeighbourSetting& setting) {
  std::mutex mutex;
  const auto probe = [&](milliseconds period, const auto& ask) {
    Prober prober(setting, period);
    ask(prober);
    const std::lock_guard lock(mutex);
    write_all(fd, to_text(prober.measured()));
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { probe(milliseconds(10), probe_health); });
  threads.emplace_back([&] { probe(milliseconds(25), [&](Prober& prober) { probe_first_token(prober, setting); }); });
  threads.emplace_back([&] { probe(milliseconds(50), [&](Prober& prober) { probe_texts(prober, setting); }); });
  threads.emplace_back([&] { probe(milliseconds(100), probe_long_prompt); });
  threads.emplace_back([&] { probe(milliseconds(50), probe_session); });
  threads.emplace_back([&] { probe(milliseconds(50), [&](Prober& prober) { probe_connect(prober, setting); }); });
  threads.emplace_back([&] { probe(milliseconds(50), [&](Prober& prober) { probe_with_key(prober, setting); }); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Expected ask_expected(Client& client, std::string& error) {
  Expected expected;
  const auto check = [&](const std::optional<Answer>& answer, Reply wanted) {
    if (answer && answer->reply == wanted) return;
    if (error.empty()) error = answer ? to_string(*answer) : client.error();
  };
  const Generated first = client.generate(short_request());
  check(first.end, Reply::done);
  expected.first_ids = first.ids;
  Asked longer = short_request();
  longer.max_tokens = 64;
  const Generated whole = client.generate(longer);
  check(whole.end, Reply::done);
  expected.long_ids = whole.ids;
  const Generated prompt = client.generate(long_request());
  check(prompt.end, Reply::done);
  expected.prompt_ids = prompt.ids;
  const std::uint64_t tokenize = client.new_stream(), detokenize = client.new_stream();
  const auto tokenized = client.ask(tokenize, tokenize_frame(tokenize, kSmallText));
  check(tokenized, Reply::tokenized);
  if (tokenized) expected.hello_ids = tokenized->ids;
  const auto detokenized = client.ask(detokenize, detokenize_frame(detokenize, {kSmallId}));
  check(detokenized, Reply::detokenized);
  if (detokenized) expected.text = detokenized->text;
  return expected;
}

std::string compare_with(const Expected& expected, Client& client) {
  std::string error;
  const Expected now = ask_expected(client, error);
  if (!error.empty()) return error;
  if (now.first_ids != expected.first_ids || now.long_ids != expected.long_ids || now.prompt_ids != expected.prompt_ids)
    return "Generate: other ids than at the start";
  if (now.hello_ids != expected.hello_ids) return "Tokenize: other ids than at the start";
  if (now.text != expected.text) return "Detokenize: another text than at the start";
  return "";
}

double Measured::percentile(const std::string& what, double share) const {
  const auto found = times.find(what);
  if (found == times.end() || found->second.empty()) return 0;
  std::vector<double> sorted = found->second;
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

std::size_t Measured::count(const std::string& what) const {
  const auto found = times.find(what);
  return found == times.end() ? 0 : found->second.size();
}

Child start_neighbour(const NeighbourSetting& setting) {
  return Child(setting.uid, 0, [&](int fd) { probe_all(fd, setting); });
}

Measured read_measured(const std::string& text) {
  Measured measured;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find('\t'), last = line.rfind('\t');
    if (first == std::string::npos || last <= first) continue;
    const std::string kind = line.substr(0, first), what = line.substr(first + 1, last - first - 1);
    if (kind == "time") measured.times[what].push_back(std::strtod(line.c_str() + last, nullptr));
    if (kind == "refused") measured.refused.push_back(what);
    if (kind == "wrong") measured.wrong.push_back(what);
  }
  return measured;
}

}  // namespace troupe::adversary
