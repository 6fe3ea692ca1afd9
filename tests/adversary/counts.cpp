#include "tests/adversary/counts.h"

#include <map>

#include "tests/adversary/child.h"

namespace troupe::adversary {
namespace {

using Counts = std::map<std::string, std::uint64_t>;  // as Figures::kinds

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr std::chrono::seconds kSettles{5};  // until the server has noticed that a client is gone
// A Status may be up to this old: one query answers all questions that came meanwhile.
constexpr std::chrono::milliseconds kFresh{150};
constexpr std::uint32_t kLoadModel = 11;  // of ClientFrame: not served

const std::string kStatus = "status";

// Sends frames on a connection of its own and counts how each ended.
class Asker {
 public:
  explicit Asker(const std::string& socket) : socket_(socket), client_(socket, kPatience) {}

  // A Generate for this many answers.
  void generate(Asked asked) {
    asked.stream = client_.new_stream();
    ask("generate", generate_frame(asked), asked.stream, asked.n.value_or(1));
  }
  void embed(const std::vector<std::string>& texts) {
    const std::uint64_t stream = client_.new_stream();
    ask("embed", embed_frame(stream, texts), stream);
  }
  // Any frame; its answer carries `stream`. num_requests: as which it counts.
  void ask(const std::string& kind, const std::string& frame, std::uint64_t stream, std::uint64_t num_requests = 1) {
    seen_[kind + " received"] += num_requests;
    client_.send(frame);
    hear_ends(kind, stream, num_requests);
  }
  // One of these whose stream is new.
  template <class ToFrame>
  void question(const std::string& kind, const ToFrame& to_frame) {
    const std::uint64_t stream = client_.new_stream();
    ask(kind, to_frame(stream), stream);
  }

  // A second request with the number of one that is under way, and a cancel of that one.
  void number_in_use() {
    const std::uint64_t stream = begin_stream();
    ask("generate", generate_frame({.stream = stream, .text = "Once"}), 0);
    end_stream(stream);
  }

  // More streams than a connection may have, and then all of them cancelled.
  void too_many_streams(std::uint64_t max_streams) {
    std::vector<std::uint64_t> open;
    while (open.size() < max_streams) open.push_back(begin_stream());
    for (int i = 0; i < 3; ++i) generate({.text = "Once"});
    question("health", [](std::uint64_t stream) { return plain_frame(Ask::health, stream); });
    question("tokenize", [](std::uint64_t stream) { return tokenize_frame(stream, "Once"); });
    for (const std::uint64_t stream : open) end_stream(stream);
  }

  // A connection that goes in the middle of its requests: each of them is cancelled.
  void vanish(std::uint64_t num_streams) {
    Client client(socket_, kPatience);
    for (std::uint64_t i = 0; i < num_streams; ++i) client.send(endless(client.new_stream()));
    for (std::uint64_t i = 0; i < num_streams; ++i) client.receive();  // the first token of each
    client.close();
    seen_["generate received"] += num_streams;
    seen_["generate cancelled"] += num_streams;
  }

  // The counters once nothing is under way.
  std::optional<Figures> settled() {
    const auto until = Clock::now() + kSettles;
    std::optional<Figures> figures;
    do {
      pause_for(kFresh);
      figures = client_.status();
      ++num_statuses_;
    } while (figures && !(figures->idle() && figures->connections == 1) && Clock::now() < until);
    return figures;
  }

  const Counts& seen() const { return seen_; }
  // Asked by settled() since the first one, which counts itself or not as the last one does.
  std::uint64_t num_statuses() const { return num_statuses_; }
  const std::string& error() const { return client_.error(); }

 private:
  static std::string endless(std::uint64_t stream) {
    return generate_frame({.stream = stream, .text = "Once", .max_tokens = 900, .credit = 1});
  }
  std::uint64_t begin_stream() {
    const std::uint64_t stream = client_.new_stream();
    ++seen_["generate received"];
    client_.send(endless(stream));
    return stream;
  }
  void end_stream(std::uint64_t stream) {
    client_.send(plain_frame(Ask::cancel, stream));
    hear_ends("generate", stream, 1);
  }

  // Waits until all choices of the stream have ended. What comes on others is of streams without credit.
  void hear_ends(const std::string& kind, std::uint64_t stream, std::uint64_t num_requests) {
    for (std::uint64_t ended = 0; ended < num_requests;) {
      const auto answer = client_.receive(stream);
      if (!answer) return;
      if (answer->reply == Reply::tokens) continue;
      const bool refused = answer->reply == Reply::refused;  // all of them together
      const std::uint64_t count = refused ? num_requests : 1;
      seen_[kind + " " + (answer->outcome == 0 ? "eos" : outcome_name(answer->outcome))] += count;
      ended += count;
    }
  }

  std::string socket_;
  Client client_;
  Counts seen_;
  std::uint64_t num_statuses_ = 0;
};

void ask_for_every_outcome(Asker& asker) {
  const std::string text = "Once upon a time", long_text(100'000, 'x');
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < 64; ++id) ids.push_back(id * 5 + 260);
  asker.generate({.text = text, .max_tokens = 3});                                           // length
  asker.generate({.text = text, .n = 5, .max_tokens = 3});                                   // length, five times
  asker.generate({.text = text, .temperature = 0, .max_tokens = 900, .ignore_eos = false});  // eos, or length
  asker.generate({.text = text, .max_tokens = 900, .stop = {"a", "e", " "}});                // stop_string
  asker.generate({.text = text, .max_tokens = 900, .stop_ids = ids});                        // stop_id, or length
  asker.generate({.text = text, .credit = 1, .deadline_ms = 100});                           // deadline
  asker.generate({.text = text, .max_tokens = 900, .ignore_eos = true, .deadline_ms = 1});   // deadline_unmeetable
  asker.generate({.text = text, .temperature = -1});                                         // invalid_argument
  asker.generate({.text = text, .n = 5, .temperature = -1});                                 // likewise, five times
  asker.generate({.text = text, .model = "another"});                                        // unknown_model
  asker.generate({.text = text, .adapter = "a"});                                            // unsupported
  asker.generate({.text = long_text});                                                       // too_long
  asker.ask("generate", generate_frame({.stream = 0, .text = text}), 0);                     // invalid_argument
  asker.number_in_use();                                                                     // likewise, and cancelled
  asker.too_many_streams(64);                                                                // quota, cancelled
  asker.vanish(20);                                                                          // cancelled
  asker.embed({"one", "two"});
  asker.embed({long_text});                        // too_long
  asker.embed({});                                 // invalid_argument
  asker.embed(std::vector<std::string>(300, ""));  // invalid_argument
  asker.question("tokenize", [&](std::uint64_t stream) { return tokenize_frame(stream, text); });
  asker.question("tokenize", [&](std::uint64_t stream) { return tokenize_frame(stream, long_text); });
  asker.question("detokenize", [](std::uint64_t stream) { return detokenize_frame(stream, {42}); });
  asker.question("detokenize", [](std::uint64_t stream) { return detokenize_frame(stream, {-1}); });
  asker.question("models", [](std::uint64_t stream) { return plain_frame(Ask::models, stream); });
  asker.question("health", [](std::uint64_t stream) { return plain_frame(Ask::health, stream); });
  asker.ask("health", plain_frame(Ask::health, 0), 0);  // invalid_argument
  asker.question(kStatus, [](std::uint64_t stream) { return status_frame(stream, true); });
  asker.question("other", [](std::uint64_t stream) {
    Message frame;
    frame.message(kLoadModel, Message().number(1, stream));
    return framed(frame.bytes());  // unsupported
  });
}

// The differences between two counts, by name.
Counts difference(const Counts& after, const Counts& before) {
  Counts counts = after;
  for (const auto& [what, count] : before) counts[what] -= count;
  return counts;
}

// The counters of Generate and Embed together in Status.
Counts sums(const Figures& figures) {
  Counts counts = figures.ended;
  counts["received"] = figures.received;
  return counts;
}

Counts of_generate_and_embed(const Counts& seen) {
  Counts counts;
  for (const auto& [what, count] : seen)
    if (what.starts_with("generate ") || what.starts_with("embed ")) counts[what.substr(what.find(' ') + 1)] += count;
  return counts;
}

void compare(const Counts& seen, const Counts& counted, std::vector<Miscount>& wrong) {
  Counts both = counted;
  for (const auto& [what, count] : seen) both.try_emplace(what, 0);
  for (const auto& [what, count] : both) {
    const auto found = seen.find(what);
    const std::uint64_t wanted = found == seen.end() ? 0 : found->second;
    if (count != wanted) wrong.push_back({what, wanted, count});
  }
}

}  // namespace

CountsResult compare_counts(const std::string& socket) {
  Asker asker(socket);
  const auto before = asker.settled();
  if (!before) return {.error = "no Status: " + asker.error(), .wrong = {}};
  const std::uint64_t statuses_before = asker.num_statuses();
  ask_for_every_outcome(asker);
  const auto after = asker.settled();
  if (!after) return {.error = "no Status: " + asker.error(), .wrong = {}};
  CountsResult result;
  for (const auto& [what, count] : asker.seen())
    if (what.ends_with(" received")) result.num_requests += count;
  compare(of_generate_and_embed(asker.seen()), difference(sums(*after), sums(*before)), result.wrong);
  Counts seen = asker.seen();
  const std::uint64_t statuses = asker.num_statuses() - statuses_before;
  seen[kStatus + " received"] += statuses;
  seen[kStatus + " eos"] += statuses;
  compare(seen, difference(after->kinds, before->kinds), result.wrong);
  return result;
}

}  // namespace troupe::adversary
