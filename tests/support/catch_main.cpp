// Catch2's main(), compiled once for all test programs, and what it tells of skipped cases.
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Where a program is started without standard input, output or error, a test's first pipe or socket would become it.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // takes the lowest number: fd
}

struct Skipped {
  bool whole = false;
  std::string reason, test_case;
};
std::vector<Skipped> skipped;
std::size_t num_cases = 0, num_skipped_cases = 0;

// Collects warnings that begin with "skipped: " (tests/support/skip.h). A case that has one and checked nothing was
// skipped as a whole, another one in part.
class SkipListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    constexpr std::string_view kPrefix = "skipped: ";
    const Catch::AssertionResult& result = stats.assertionResult;
    if (result.getResultType() != Catch::ResultWas::Warning) return false;
    const std::string message = result.getMessage();
    if (message.compare(0, kPrefix.size(), kPrefix) == 0) reasons_.push_back(message.substr(kPrefix.size()));
    return false;
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const bool whole = !reasons_.empty() && stats.totals.assertions.total() == 0;
    ++num_cases;
    if (whole) ++num_skipped_cases;
    for (std::string& reason : reasons_) skipped.push_back({whole, std::move(reason), stats.testInfo.name});
    reasons_.clear();
    TestEventListenerBase::testCaseEnded(stats);
  }

 private:
  std::vector<std::string> reasons_;
};
CATCH_REGISTER_LISTENER(SkipListener)

// Fields lie between tabs, for tools/skipped.sh. ctest knows the last line (cmake/TroupeTargets.cmake).
void list_skipped(int result) {
  for (const Skipped& each : skipped)
    std::printf("skipped\t%s\t%s\t%s\n", each.whole ? "case" : "part", each.reason.c_str(), each.test_case.c_str());
  if (result == 0 && num_cases != 0 && num_skipped_cases == num_cases)
    std::printf("skipped: all %zu test cases\n", num_cases);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  const int result = Catch::Session().run(argc, argv);
  list_skipped(result);
  return result;
}
