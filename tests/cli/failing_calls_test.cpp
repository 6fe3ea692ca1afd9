// Each call of the C library that can fail does so once, from the start to the first answer and the end.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "tests/cli/interposed.h"
#include "tests/cli/process.h"

using namespace troupe::test;

namespace {

constexpr std::chrono::seconds kHang{10};
constexpr std::uint64_t kSeed = 20261122;
// Of the thousands of times that memory is taken; of the other kinds every call fails once.
constexpr long kMostOfAKind = 120;
const std::set<int> kDocumented{1, 65, 71, 73};

class Matrix {
 public:
  // One good run: the answer, and how often each kind is called.
  void count() {
    const std::string file = folder_.path("counts");
    Process server(spawn({{"COUNT_CALLS", file}}));
    REQUIRE(server.wait_for_err(" ready\n"));
    const Finished answer = ask();
    REQUIRE(answer.code == 0);
    expected_ = answer.out;
    server.signal(SIGTERM);
    REQUIRE(server.wait().code == 0);
    std::ifstream lines(file);
    std::string kind;
    for (long count = 0; lines >> kind >> count;) counts_[kind] = count;
  }

  const std::map<std::string, long>& counts() const { return counts_; }

  // What is wrong when this call fails; empty: nothing.
  std::string failing(const std::string& kind, long number) {
    Process server(spawn({{"FAIL_CALL", kind + ":" + std::to_string(number)}}));
    const bool ready = server.wait_for_err(" ready\n", kHang);
    bool answered = false;
    // The connection that the failure hit may have gone with it.
    for (int attempt = 0; ready && !answered && attempt < 2; ++attempt) {
      const Finished answer = ask();
      if (answer.by_signal) return "the client waited in vain";
      answered = answer.code == 0 && answer.out == expected_;
    }
    if (ready) server.signal(SIGTERM);
    const Finished ended = server.wait(kHang);
    const std::string log = "\n" + ended.err;
    if (ended.by_signal) return (ended.code == 128 + SIGKILL ? "it hung" : "it died by a signal") + log;
    if (std::filesystem::exists(socket())) return "its socket file is still there" + log;
    if (ended.code == 0) return answered ? "" : "it served no answer" + log;
    if (kDocumented.count(ended.code) == 0) return "it ended with " + std::to_string(ended.code) + log;
    return ended.err.empty() ? "it ended without a word" : "";
  }

 private:
  std::string socket() const { return folder_.path("t.sock"); }
  Spawn spawn(std::map<std::string, std::string> environment) const {
    environment["LD_PRELOAD"] = fail_call_library();
    return {.arguments = {"serve", "--socket", socket(), "-t", "2", "--drain-timeout", "1s"},
            .environment = std::move(environment)};
  }
  Finished ask() const {
    Process client(Spawn{.arguments = {"run", "--socket", socket(), "--temp", "0", "-n", "4", "Once upon a time"}});
    return client.wait(kHang);
  }

  TempFolder folder_;
  std::string expected_;
  std::map<std::string, long> counts_;
};

}  // namespace

TEST_CASE("whichever call fails, a server answers or ends with a documented code and a reason") {
  if (!kCanInterpose) return;
  Matrix matrix;
  matrix.count();
  std::mt19937_64 random(kSeed);
  for (const char* kind : {"malloc", "mmap", "thread", "open", "socket", "event", "write"}) {
    const long count = matrix.counts().at(kind);
    INFO(kind << " is called " << count << " times");
    CHECK(count > 0);
    const double stride = std::max(1.0, static_cast<double>(count) / kMostOfAKind);
    for (double at = 1; at <= static_cast<double>(count); at += stride) {
      const long number = static_cast<long>(at + static_cast<double>(random() % 1000) / 1000 * (stride - 1));
      INFO("call " << number);
      CHECK(matrix.failing(kind, number) == "");
    }
  }
}
