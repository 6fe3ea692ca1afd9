// Sessions of a server that is killed while several clients make, continue and forget some.
#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "ipc/client/client.h"
#include "tests/cli/process.h"

using namespace troupe;
using namespace troupe::test;

namespace {

using SessionTokens = std::map<std::string, std::uint32_t>;  // tokens in each session

// A client with sessions of its own, and what it knows of them by the answers it got.
class Writer {
 public:
  Writer(const std::string& prefix, unsigned seed, SessionTokens known)
      : prefix_(prefix), random_(seed), known_(std::move(known)) {}

  // Acts until the connection is lost. `answered` is raised after each answer.
  void run(const std::string& socket, std::atomic<unsigned>& answered) {
    auto client = client::Client::connect({.socket = socket});
    if (!client) return;  // killed before it was let in
    for (;;) {
      const std::optional<Error> failed = act(**client);
      if (failed) {
        if (failed->code != ErrorCode::io) unexpected_ = failed->message;
        return;
      }
      in_doubt_.reset();
      ++answered;
      answered.notify_all();
    }
  }

  // `stored`: the sessions that the next server lists.
  void check(const SessionTokens& stored) {
    CHECK(unexpected_.empty());
    for (char name = 'a'; name <= 'd'; ++name) {
      const std::string session = prefix_ + name;
      INFO(session);
      const auto found = stored.find(session);
      const auto expected = known_.find(session);
      if (in_doubt_ == session) {  // the question was not answered: it was carried out, or it was not
        if (expected != known_.end() && found != stored.end()) CHECK(found->second >= expected->second);
      } else {
        REQUIRE((found != stored.end()) == (expected != known_.end()));
        if (found != stored.end()) CHECK(found->second == expected->second);
      }
    }
    std::erase_if(known_, [&](const auto& entry) { return !stored.contains(entry.first); });
    for (const auto& [session, tokens] : stored)
      if (session.starts_with(prefix_)) known_[session] = tokens;
    in_doubt_.reset();
  }

 private:
  std::string draw() { return prefix_ + static_cast<char>('a' + random_() % 4); }

  // One question. Returns why it failed.
  std::optional<Error> act(client::Client& client) {
    const std::string name = draw(), other = draw();
    in_doubt_ = name;
    if (!known_.contains(name)) {
      if (!known_.contains(other)) return turn(client, name);
      const auto forked = client.fork_session(other, name);
      if (!forked) return forked.error();
      known_[name] = known_.at(other);
      return std::nullopt;
    }
    switch (random_() % 4) {
      case 0: {
        if (const Status deleted = client.delete_session(name); !deleted) return deleted.error();
        known_.erase(name);
        return std::nullopt;
      }
      case 1: {
        const auto saved = client.save_session(name);
        return saved ? std::nullopt : std::optional(saved.error());
      }
      default:
        return turn(client, name);
    }
  }

  std::optional<Error> turn(client::Client& client, const std::string& name) {
    const auto answer = client.complete(
        {.prompt = " and then", .sampling = {.temperature = 0, .max_tokens = 4, .ignore_eos = true}, .session = name});
    if (!answer) return answer.error();
    if (answer->ended.outcome != scheduler::Outcome::length) return Error{ErrorCode::protocol, answer->ended.message};
    const auto info = client.inspect_session(name);
    if (!info) {  // answered all the same, and longer than it was
      ++known_[name];
      return info.error();
    }
    known_[name] = info->tokens;
    return std::nullopt;
  }

  const std::string prefix_;
  std::mt19937 random_;
  SessionTokens known_;
  std::optional<std::string> in_doubt_;
  std::string unexpected_;
};

}  // namespace

TEST_CASE("what several clients were told of is there after each kill -9") {
  constexpr unsigned kClients = 3, kKills = 8;
  const TempFolder folder;
  std::mt19937 random(30);
  std::vector<Writer> writers;
  for (unsigned i = 0; i < kClients; ++i) writers.emplace_back(fmt::format("w{}", i), i, SessionTokens());
  for (unsigned kill = 0; kill <= kKills; ++kill) {
    INFO("after " << kill << " kills");
    ServerProcess server({"--sessions-dir", folder.path("sessions")});
    const auto client = client::Client::connect({.socket = server.socket()});
    REQUIRE(client);
    const auto listed = (*client)->sessions();
    REQUIRE(listed);
    SessionTokens stored;
    for (const client::SessionInfo& info : *listed) {
      CHECK(info.problem.empty());
      stored[info.name] = info.tokens;
    }
    for (Writer& writer : writers) writer.check(stored);
    if (kill == kKills) break;
    std::atomic<unsigned> answered = 0;
    std::vector<std::thread> threads;
    for (Writer& writer : writers) threads.emplace_back([&] { writer.run(server.socket(), answered); });
    const unsigned until = 10 + random() % 60;
    for (unsigned now = answered; now < until; now = answered) answered.wait(now);
    server.process().signal(SIGKILL);
    (void)server.process().wait();
    for (std::thread& thread : threads) thread.join();
  }
}
