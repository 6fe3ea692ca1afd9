#include "actors/serving/stop_matcher.h"

#include <catch2/catch.hpp>

#include <random>

namespace troupe::actors {
namespace {

TEST_CASE("without stop strings all text passes at once") {
  StopMatcher matcher({});
  CHECK(matcher.push("abc").text == "abc");
  CHECK(matcher.flush().empty());
}

TEST_CASE("text that might begin a stop string is held back until it cannot") {
  StopMatcher matcher({"END"});
  CHECK(matcher.push("x E").text == "x ");
  CHECK(matcher.push("N").text.empty());
  const auto found = matcher.push("T");
  CHECK(found.text == "ENT");
  CHECK_FALSE(found.stop);
}

TEST_CASE("a match may span pieces and ends the text before it") {
  StopMatcher matcher({"nope", "END"});
  CHECK(matcher.push("a E").text == "a ");
  CHECK(matcher.push("N").text.empty());
  const auto found = matcher.push("D tail");
  CHECK(found.text.empty());
  REQUIRE(found.stop);
  CHECK(*found.stop == 1);
  CHECK(matcher.flush().empty());
}

TEST_CASE("the earliest match wins, and the first given among equals") {
  StopMatcher matcher({"cd", "bc", "bcd"});
  const auto found = matcher.push("abcd");
  CHECK(found.text == "a");
  CHECK(found.stop == std::optional<std::size_t>(1));
}

TEST_CASE("an overlapping false start does not hide a match") {
  StopMatcher matcher({"aab"});
  CHECK(matcher.push("aa").text.empty());
  CHECK(matcher.push("a").text == "a");
  const auto found = matcher.push("b");
  CHECK(found.stop);
  CHECK(found.text.empty());
}

TEST_CASE("what is held when the stream ends is given out") {
  StopMatcher matcher({"STOP"});
  CHECK(matcher.push("go STO").text == "go ");
  CHECK(matcher.flush() == "STO");
}

TEST_CASE("any cutting of the text gives what one search over all of it gives") {
  std::mt19937 random(20);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops;
    for (int i = 0; i < 2; ++i) stops.push_back(text.substr(random() % 20, 1 + random() % 4) + (i ? "a" : "b"));
    const std::size_t first = std::min(text.find(stops[0]), text.find(stops[1]));

    StopMatcher matcher(stops);
    std::string out;
    bool stopped = false;
    for (std::size_t at = 0; at < text.size() && !stopped;) {
      const std::size_t n = 1 + random() % 3;
      const auto found = matcher.push(text.substr(at, n));
      out += found.text;
      stopped = found.stop.has_value();
      at += n;
    }
    if (!stopped) out += matcher.flush();
    // A match that ends earlier can begin later than one that ends in a later piece.
    if (stopped) {
      CHECK(first != std::string::npos);
      CHECK(text.compare(0, out.size(), out) == 0);
      const std::string rest = text.substr(out.size());
      CHECK((rest.rfind(stops[0], 0) == 0 || rest.rfind(stops[1], 0) == 0));
    } else {
      CHECK(first == std::string::npos);
      CHECK(out == text);
    }
  }
}

}  // namespace
}  // namespace troupe::actors
