#include "actors/status/scrub_pace.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr std::uint64_t kScrubPiece = engine::WeightScan::kPieceBytes;
constexpr ScrubPace::TimePoint kScrubBegin{std::chrono::hours(1)};

TEST_CASE("scrub pace: a fast one reads its share of each tick") {
  ScrubPace pace(1000 * kScrubPiece);
  CHECK(pace.allowed(kScrubBegin) == 100 * kScrubPiece);
  pace.read(100 * kScrubPiece, kScrubBegin);
  CHECK(pace.due() == kScrubBegin + ScrubPace::kTick);
  CHECK(pace.allowed(kScrubBegin + milliseconds(99)) == 0);
  CHECK(pace.allowed(kScrubBegin + milliseconds(100)) == 100 * kScrubPiece);
}

TEST_CASE("scrub pace: a slow one reads a piece, and the next when that is paid for, however often it is asked") {
  ScrubPace pace(kScrubPiece / 64);
  std::uint64_t bytes = 0;
  for (int second = 0; second < 640; ++second) {
    if (pace.allowed(kScrubBegin + seconds(second)) == 0) continue;
    CHECK(pace.allowed(kScrubBegin + seconds(second)) == kScrubPiece);
    pace.read(kScrubPiece, kScrubBegin + seconds(second));
    bytes += kScrubPiece;
  }
  CHECK(bytes == 10 * kScrubPiece);
}

TEST_CASE("scrub pace: none reads nothing") { CHECK(ScrubPace(0).allowed(kScrubBegin) == 0); }

}  // namespace
}  // namespace troupe::actors
