#include "actors/threads/text_threads.h"

#include <catch2/catch.hpp>

#include <future>
#include <string>
#include <thread>

#include "actors/requests/request_check.h"
#include "engine/compute/interrupt.h"

namespace troupe::actors {
namespace {

using scheduler::kMaxSmallTextBytes;
using scheduler::Outcome;

const scheduler::Tenant kOwner{TenantId{0}, true};
const scheduler::Tenant kAnn{TenantId{1001}, false};
const scheduler::Tenant kBen{TenantId{1002}, false};
constexpr std::uint64_t kLarge = kMaxSmallTextBytes + 1;

// How a job ended; can hold the thread that works on it.
class Job {
 public:
  TextJob make(scheduler::Tenant tenant, std::uint64_t bytes) {
    TextJob job;
    job.tenant = tenant;
    job.bytes = job.first_part = bytes;
    job.unwanted = unwanted;
    job.work = [this] {
      ++num_parts;
      return std::uint64_t{0};
    };
    job.ended = [this](std::optional<End> end) { told.set_value(std::move(end)); };
    return job;
  }
  // Keeps its thread until go() or until it is interrupted.
  TextJob make_blocking(scheduler::Tenant tenant, std::uint64_t bytes) {
    TextJob job = make(tenant, bytes);
    job.work = [this] {
      began.set_value();
      while (!let_go) {
        if (*unwanted) throw engine::Interrupted();
        std::this_thread::yield();
      }
      return std::uint64_t{0};
    };
    return job;
  }
  void wait_began() { began.get_future().wait(); }
  void go() { let_go = true; }
  std::optional<End> end() { return told.get_future().get(); }

  const CancelFlag unwanted = std::make_shared<std::atomic<bool>>(false);
  std::atomic<int> num_parts{0};

 private:
  std::promise<void> began;
  std::atomic<bool> let_go{false};
  std::promise<std::optional<End>> told;
};

TEST_CASE("text threads: small texts of any user are done while large ones wait and run") {
  TextThreads threads({.max_large = 2, .max_texts = 1000});
  std::vector<Job> large(160), small(20);
  for (Job& job : large) REQUIRE_FALSE(threads.post(job.make_blocking(kAnn, kLarge)));
  for (std::size_t i = 0; i < small.size(); ++i) {
    REQUIRE_FALSE(threads.post(small[i].make(i % 2 == 0 ? kBen : kAnn, 5)));
    REQUIRE_FALSE(small[i].end());
  }
  for (Job& job : large) job.go();
  for (Job& job : large) REQUIRE_FALSE(job.end());
}

TEST_CASE("text threads: unwanted texts are not worked on, and are dropped before another text is refused") {
  TextThreads threads({.max_large = 1, .max_texts = 8, .max_bytes = 8 * kLarge});
  Job running, unwanted, refused, next, other;
  REQUIRE_FALSE(threads.post(running.make_blocking(kAnn, kLarge)));
  running.wait_began();
  REQUIRE_FALSE(threads.post(unwanted.make(kAnn, kLarge)));
  const auto no = threads.post(refused.make(kAnn, kLarge));
  REQUIRE(no);
  CHECK(no->outcome == Outcome::quota);
  CHECK(no->field == "max_queued_texts");
  CHECK(no->limit == 2);
  CHECK(no->retry_after);
  *unwanted.unwanted = true;
  REQUIRE_FALSE(threads.post(next.make(kAnn, kLarge)));
  CHECK(unwanted.end()->outcome == Outcome::cancelled);
  CHECK(unwanted.num_parts == 0);
  // A running text is interrupted too.
  *running.unwanted = true;
  CHECK(running.end()->outcome == Outcome::cancelled);
  CHECK_FALSE(next.end());
  REQUIRE_FALSE(threads.post(other.make(kAnn, kLarge)));
  CHECK_FALSE(other.end());
}

TEST_CASE("text threads: an unwanted text that is popped is not begun") {
  TextThreads threads({.max_large = 1});
  Job large, small, unwanted, next;
  REQUIRE_FALSE(threads.post(large.make_blocking(kAnn, kLarge)));
  REQUIRE_FALSE(threads.post(small.make_blocking(kAnn, 5)));
  for (Job* job : {&large, &small}) job->wait_began();
  REQUIRE_FALSE(threads.post(unwanted.make(kAnn, 5)));
  REQUIRE_FALSE(threads.post(next.make(kAnn, 5)));
  *unwanted.unwanted = true;
  small.go();
  CHECK(unwanted.end()->outcome == Outcome::cancelled);
  CHECK(unwanted.num_parts == 0);
  CHECK_FALSE(next.end());
  large.go();
  for (Job* job : {&large, &small}) CHECK_FALSE(job->end());
}

TEST_CASE("text threads: the bytes of waiting texts have a limit and shares, and come back") {
  TextThreads threads({.max_large = 1, .max_texts = 1000, .max_bytes = 1 << 20});
  Job running, first, second, refused, owner, small;
  TextJob nothing = running.make_blocking(kOwner, 0);
  nothing.first_part = kLarge;
  REQUIRE_FALSE(threads.post(std::move(nothing)));
  running.wait_began();
  REQUIRE_FALSE(threads.post(first.make(kAnn, 200 << 10)));
  const auto no = threads.post(refused.make(kAnn, 100 << 10));
  REQUIRE(no);
  CHECK(no->outcome == Outcome::quota);
  CHECK(no->field == "max_queued_text_bytes");
  CHECK(no->limit == 256 << 10);
  REQUIRE_FALSE(threads.post(small.make(kAnn, 56 << 10)));
  REQUIRE_FALSE(threads.post(second.make(kBen, 700 << 10)));  // alone, beyond its share, within the limit
  CHECK(threads.post(refused.make({TenantId{1003}, false}, 100 << 10))->outcome == Outcome::queue_full);
  REQUIRE_FALSE(threads.post(owner.make(kOwner, 60 << 10)));
  running.go();
  for (Job* job : {&running, &first, &second, &small, &owner}) CHECK_FALSE(job->end());
  Job all;
  REQUIRE_FALSE(threads.post(all.make(kAnn, 900 << 10)));
  CHECK_FALSE(all.end());
}

TEST_CASE("text threads: between the parts of one text those of other users are done") {
  TextThreads threads({.max_large = 1});
  Job running, parts, other;
  REQUIRE_FALSE(threads.post(running.make_blocking(kOwner, kLarge)));
  running.wait_began();
  TextJob job = parts.make(kAnn, 10 * kLarge);
  job.first_part = kLarge;
  job.work = [&parts, &other] {
    CHECK((other.num_parts > 0) == (parts.num_parts >= 1));  // it is popped second
    return ++parts.num_parts < 10 ? kLarge : 0;
  };
  REQUIRE_FALSE(threads.post(std::move(job)));
  REQUIRE_FALSE(threads.post(other.make(kBen, kLarge)));
  running.go();
  CHECK_FALSE(parts.end());
  CHECK(parts.num_parts == 10);
  CHECK_FALSE(other.end());
}

TEST_CASE("text threads: a stop ends waiting texts, interrupts running ones, and refuses new ones") {
  Job running, waiting, late;
  bool empty = false;
  {
    TextThreads threads({.max_large = 1});
    REQUIRE_FALSE(threads.post(running.make_blocking(kAnn, kLarge)));
    running.wait_began();
    REQUIRE_FALSE(threads.post(waiting.make(kBen, kLarge)));
    threads.when_empty([&] { empty = true; });
    threads.drop_all();
    CHECK(threads.post(late.make(kBen, 1))->outcome == Outcome::draining);
  }
  CHECK(empty);
  const auto cut = running.end();
  REQUIRE(cut);
  CHECK(cut->outcome == Outcome::cancelled);
  CHECK_FALSE(cut->message.empty());
  const auto refused = waiting.end();
  REQUIRE(refused);
  CHECK(refused->outcome == Outcome::draining);
  CHECK(refused->retry_after);
  CHECK(waiting.num_parts == 0);
}

TEST_CASE("text threads: renderings for one model are dropped, running ones too, and others go on") {
  TextThreads threads({.max_large = 1});
  const int model = 0, other_model = 0;
  Job running, waiting, other, text, later;
  const auto rendering = [](TextJob job, const int& of) {
    job.renders = &of;
    return job;
  };
  REQUIRE_FALSE(threads.post(rendering(running.make_blocking(kAnn, 60), model)));
  running.wait_began();
  REQUIRE_FALSE(threads.post(rendering(waiting.make(kAnn, 60), model)));
  REQUIRE_FALSE(threads.post(rendering(other.make(kBen, 60), other_model)));
  REQUIRE_FALSE(threads.post(text.make(kBen, kLarge)));
  threads.drop_renderings(&model, ended_as(Outcome::model_unloaded, "gone"));
  for (Job* job : {&running, &waiting}) {
    const auto end = job->end();
    REQUIRE(end);
    CHECK(end->outcome == Outcome::model_unloaded);
    CHECK(end->message == "gone");
  }
  CHECK(waiting.num_parts == 0);
  CHECK_FALSE(other.end());
  CHECK_FALSE(text.end());
  REQUIRE_FALSE(threads.post(rendering(later.make(kAnn, 60), model)));
  CHECK_FALSE(later.end());
}

TEST_CASE("text threads: a form that is compiled is large until one of its user's has been quick") {
  TextThreads threads({.max_large = 1});
  Job first, second, other;
  TextJob form = first.make_blocking(kAnn, 5);
  form.compiles = true;
  REQUIRE_FALSE(threads.post(std::move(form)));
  first.wait_began();
  form = second.make(kAnn, 5);
  form.compiles = true;
  REQUIRE_FALSE(threads.post(std::move(form)));
  REQUIRE_FALSE(threads.post(other.make(kBen, 5)));
  CHECK_FALSE(other.end());
  CHECK(second.num_parts == 0);
  first.go();
  CHECK_FALSE(first.end());
  CHECK_FALSE(second.end());
}

TEST_CASE("text threads: what other limits bound is taken beside as many texts as there may be") {
  TextThreads threads({.max_large = 1, .max_texts = 4});
  Job running, counted, refused;
  std::vector<Job> free(20);
  REQUIRE_FALSE(threads.post(running.make_blocking(kAnn, kLarge)));
  running.wait_began();
  for (Job& job : free) {
    TextJob made = job.make(kAnn, kLarge);
    made.is_counted = false;
    REQUIRE_FALSE(threads.post(std::move(made)));
  }
  CHECK(threads.post(refused.make(kAnn, kLarge))->outcome == Outcome::quota);
  running.go();
  for (Job& job : free) CHECK_FALSE(job.end());
  CHECK_FALSE(running.end());
  REQUIRE_FALSE(threads.post(counted.make(kAnn, kLarge)));
  CHECK_FALSE(counted.end());
}

TEST_CASE("text threads: posted by many threads, stopped at any time, every text ends once and stops counting then") {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    int taken = 0;
    {
      TextThreads threads({.max_large = 2, .max_texts = 40, .max_bytes = 40 * kLarge});
      std::vector<std::thread> users;
      std::atomic<int> posted{0};
      for (std::uint32_t uid = 0; uid < 4; ++uid) {
        users.emplace_back([&, uid] {
          for (int i = 0; i < 50; ++i) {
            TextJob job;
            job.tenant = {TenantId{uid}, uid == 0};
            job.bytes = job.first_part = (i % 3 == 0 ? kLarge : 10);
            *job.unwanted = i % 7 == 0;
            job.work = [left = std::uint64_t{2}]() mutable { return --left; };
            job.ended = [&](const std::optional<End>&) { ++ended; };
            if (!threads.post(std::move(job))) ++posted;
          }
        });
      }
      if (round % 2 == 0) threads.drop_all();
      for (std::thread& user : users) user.join();
      taken = posted;
    }
    REQUIRE(ended == taken);
  }
}

}  // namespace
}  // namespace troupe::actors
