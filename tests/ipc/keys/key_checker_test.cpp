// Whose a key is, and how many may be tried: with an injected clock.
#include "ipc/keys/key_checker.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ipc/keys/guess_limits.h"

using namespace troupe;
using namespace troupe::ipc;
using Kind = KeyVerdict::Kind;

namespace {

constexpr const char* kPeer = "192.0.2.1";

struct NewKey {
  std::string text;
  ServedKey key;
};

NewKey new_key(const std::string& name) {
  NewKey made{.text = draw_key(), .key = {.name = name}};
  made.key.id = split_key(made.text)->id;
  fill_random(made.key.salt);
  made.key.hash = *scrypt(split_key(made.text)->secret, made.key.salt);
  made.key.tenant = {.id = scheduler::named_tenant("key:" + name)};
  return made;
}

// The text with another secret.
std::string wrong_secret(const NewKey& key) {
  return key.text.substr(0, key.text.size() - kKeySecretChars) + random_base62(kKeySecretChars);
}

// A checker, and a clock that stands still.
struct CheckerFixture {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<KeyVerdict> verdicts;
  std::atomic<std::int64_t> unix_seconds = 1'000;
  std::atomic<double> seconds = 50;
  bool held = false;  // the checking thread waits at its next verdict
  KeyChecker checker;

  explicit CheckerFixture(std::vector<ServedKey> keys)
      : checker(std::move(keys), [this] {
          return KeyClock{unix_seconds, seconds};
        }) {}

  void ask(const std::string& text, const std::string& peer = kPeer) {
    checker.check(peer, text, [this](const KeyVerdict& told) {
      const std::lock_guard lock(mutex);
      verdicts.push_back(told);
      changed.notify_all();
    });
  }
  // Keeps the checking thread from going on until the result is destroyed.
  auto hold() {
    std::unique_lock lock(mutex);
    checker.check("192.0.2.255", draw_key(), [this](const KeyVerdict&) {
      std::unique_lock inner(mutex);
      held = true;
      changed.notify_all();
      changed.wait(inner, [this] { return !held; });
    });
    changed.wait(lock, [this] { return held; });
    lock.unlock();
    const auto release = [this](void*) {
      const std::lock_guard inner(mutex);
      held = false;
      changed.notify_all();
    };
    return std::unique_ptr<void, decltype(release)>(this, release);
  }
  std::vector<KeyVerdict> take(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return verdicts.size() >= count; });
    return std::exchange(verdicts, {});
  }
  std::vector<Kind> kinds_now() {
    const std::lock_guard lock(mutex);
    std::vector<Kind> kinds;
    for (const KeyVerdict& verdict : std::exchange(verdicts, {})) kinds.push_back(verdict.kind);
    return kinds;
  }
  KeyVerdict check(const std::string& text, const std::string& peer = kPeer) {
    ask(text, peer);
    return take(1).front();
  }
};

}  // namespace

TEST_CASE("a key is its tenant's, is hashed once, and no other secret passes") {
  const NewKey key = new_key("ci"), other = new_key("web");
  CheckerFixture server({key.key, other.key});
  for (int i = 0; i < 5; ++i) {
    const KeyVerdict verdict = server.check(key.text);
    REQUIRE(verdict.kind == Kind::accepted);
    CHECK(verdict.name == "ci");
    CHECK(verdict.tenant.id == key.key.tenant.id);
    CHECK_FALSE(verdict.tenant.is_owner);
  }
  CHECK(server.checker.num_checked() == 1);
  CHECK(server.check(wrong_secret(key)).kind == Kind::wrong);
  const std::string mixed = "trp_" + key.key.id + other.text.substr(4 + kKeyIdChars);
  CHECK(server.check(mixed).kind == Kind::wrong);
  for (const std::string& bad : {std::string(), std::string("x"), key.text + " ", std::string(1 << 20, 'a')})
    CHECK(server.check(bad).kind == Kind::wrong);
}

TEST_CASE("an unknown id is hashed as a known one is") {
  const NewKey key = new_key("ci");
  CheckerFixture server({key.key});
  CHECK(server.check(draw_key()).kind == Kind::wrong);
  CHECK(server.checker.num_checked() == 1);
  CHECK(server.check(wrong_secret(key)).kind == Kind::wrong);
  CHECK(server.checker.num_checked() == 2);
}

TEST_CASE("a key expires between two requests, and only its holder is told so") {
  NewKey key = new_key("ci");
  key.key.expires = 2'000;
  CheckerFixture server({key.key});
  CHECK(server.check(key.text).kind == Kind::accepted);
  server.unix_seconds = 2'000;
  CHECK(server.check(key.text).kind == Kind::expired);
  CHECK(server.check(wrong_secret(key)).kind == Kind::wrong);
}

TEST_CASE("a key that is revoked is refused from then on, also while it is being checked") {
  const NewKey key = new_key("ci"), stays = new_key("stays"), late = new_key("late");
  CheckerFixture server({key.key, stays.key, late.key});
  CHECK(server.check(key.text).kind == Kind::accepted);
  CHECK(server.check(stays.text).kind == Kind::accepted);
  {
    const auto held = server.hold();
    server.ask(late.text);
    server.checker.replace({stays.key});
  }
  CHECK(server.take(1).front().kind == Kind::wrong);
  CHECK(server.check(key.text).kind == Kind::wrong);
  const std::uint64_t before = server.checker.num_checked();
  CHECK(server.check(stays.text).kind == Kind::accepted);
  CHECK(server.checker.num_checked() == before);  // still known
}

TEST_CASE("a key made anew under the same id forgets the old secret") {
  const NewKey key = new_key("ci");
  NewKey fresh = new_key("ci");
  fresh.key.id = key.key.id;
  CheckerFixture server({key.key});
  CHECK(server.check(key.text).kind == Kind::accepted);
  server.checker.replace({fresh.key});
  CHECK(server.check(key.text).kind == Kind::wrong);
}

TEST_CASE("guesses of a peer are limited, its own known key and other peers are not") {
  const NewKey key = new_key("ci");
  CheckerFixture server({key.key});
  CHECK(server.check(key.text).kind == Kind::accepted);
  for (int i = 0; i < kMaxGuesses; ++i) CHECK(server.check("guess" + std::to_string(i)).kind == Kind::wrong);
  const std::uint64_t hashed = server.checker.num_checked();
  const KeyVerdict verdict = server.check(draw_key());
  CHECK(verdict.kind == Kind::too_many);
  CHECK(verdict.retry_after_seconds == Approx(1 / kGuessesPerSecond));
  CHECK(server.checker.num_checked() == hashed);  // costs nothing
  CHECK(server.check(wrong_secret(key)).kind == Kind::too_many);
  CHECK(server.checker.num_checked() == hashed + 1);  // it might have been right
  CHECK(server.check(key.text).kind == Kind::accepted);
  CHECK(server.check(wrong_secret(key), "192.0.2.2").kind == Kind::wrong);
  server.seconds = 50 + 1 / kGuessesPerSecond;
  CHECK(server.check(wrong_secret(key)).kind == Kind::wrong);
  CHECK(server.check(wrong_secret(key)).kind == Kind::too_many);
}

TEST_CASE("a right key is accepted at its first use, whatever was guessed from its address, also with its id") {
  const NewKey key = new_key("ci"), other = new_key("web");
  CheckerFixture server({key.key, other.key});
  for (int i = 0; i < 2 * kMaxGuesses; ++i) server.check(i % 2 == 0 ? draw_key() : wrong_secret(key));
  CHECK(server.check(draw_key()).kind == Kind::too_many);
  CHECK(server.check(key.text).kind == Kind::accepted);
  {
    const auto held = server.hold();
    for (std::size_t i = 0; i < 3 * kMaxWaitingKeys; ++i) server.ask(wrong_secret(key));
    server.ask(other.text);
  }
  // Others of the first id were given up for it.
  std::size_t accepted = 0;
  for (const KeyVerdict& verdict : server.take(3 * kMaxWaitingKeys + 1))
    accepted += verdict.kind == Kind::accepted ? 1u : 0u;
  CHECK(accepted == 1);
}

TEST_CASE("the first use of a right key waits for two checks at most while others guess without an id") {
  const NewKey key = new_key("ci");
  CheckerFixture server({key.key});
  {
    const auto held = server.hold();
    for (std::size_t i = 0; i < kMaxWaitingGuesses; ++i) server.ask(draw_key(), "192.0.2." + std::to_string(i));
    server.ask(key.text);
  }
  const auto verdicts = server.take(kMaxWaitingGuesses + 1);
  CHECK((verdicts[0].kind == Kind::accepted || verdicts[1].kind == Kind::accepted));
}

TEST_CASE("right keys that are checked for the first time do not use up guesses") {
  std::vector<NewKey> keys;
  std::vector<ServedKey> served;
  for (int i = 0; i < kMaxGuesses + 5; ++i) {
    keys.push_back(new_key("k" + std::to_string(i)));
    served.push_back(keys.back().key);
  }
  CheckerFixture server(served);
  for (const NewKey& key : keys) CHECK(server.check(key.text).kind == Kind::accepted);
}

TEST_CASE("a key that many send at once is hashed once") {
  const NewKey key = new_key("ci");
  CheckerFixture server({key.key});
  {
    const auto held = server.hold();
    for (int i = 0; i < 40; ++i) server.ask(key.text);
    CHECK(server.kinds_now().empty());
  }
  for (const KeyVerdict& verdict : server.take(40)) CHECK(verdict.kind == Kind::accepted);
  CHECK(server.checker.num_checked() == 2);  // with the one that held the thread
}

TEST_CASE("only so many keys wait to be checked, and one of them does not count as a guess") {
  CheckerFixture server({});
  {
    const auto held = server.hold();
    for (std::size_t i = 0; i < kMaxWaitingGuesses; ++i) server.ask(draw_key(), "192.0.2." + std::to_string(i));
    CHECK(server.kinds_now().empty());
    for (int i = 0; i < kMaxGuesses + 1; ++i) server.ask(draw_key(), "192.0.2.200");
    CHECK(server.kinds_now() == std::vector<Kind>(kMaxGuesses + 1, Kind::busy));
  }
  for (const KeyVerdict& verdict : server.take(kMaxWaitingGuesses)) CHECK(verdict.kind == Kind::wrong);
}

TEST_CASE("peers behind one IPv6 network guess together, IPv4 addresses each for itself") {
  CHECK(guessing_peer("2001:db8:1:2::1") == guessing_peer("2001:db8:1:2:ffff::2"));
  CHECK(guessing_peer("2001:db8:1:2::1") != guessing_peer("2001:db8:1:3::1"));
  CHECK(guessing_peer("::ffff:192.0.2.1") == "192.0.2.1");
  CHECK(guessing_peer("192.0.2.1") != guessing_peer("192.0.2.2"));
  CHECK(guessing_peer("fe80::1%eth0") == guessing_peer("fe80::2"));
  CHECK(guessing_peer("no address") == "no address");
}

TEST_CASE("memory for guessing peers is bounded, and one more guesses with the others") {
  GuessLimits limits;
  for (std::size_t i = 0; i < kMaxGuessingPeers; ++i) REQUIRE(limits.take(std::to_string(i), 0) == 0);
  for (int i = 0; i < kMaxGuesses; ++i) CHECK(limits.take("late" + std::to_string(i), 0) == 0);
  CHECK(limits.take("later", 0) > 0);
  CHECK(limits.num_peers() == kMaxGuessingPeers);
  // After two seconds each has its one guess again, and is forgotten.
  CHECK(limits.take("later", 1 / kGuessesPerSecond) == 0);
  CHECK(limits.num_peers() == 1);
}

TEST_CASE("comparing finds a difference in every bit, and hashes depend on key, salt and secret") {
  Hash a{};
  fill_random(a);
  CHECK(equal_in_constant_time(a, a));
  for (std::size_t bit = 0; bit < 8 * kHashBytes; ++bit) {
    Hash b = a;
    b[bit / 8] = static_cast<std::uint8_t>(b[bit / 8] ^ (1u << (bit % 8)));
    CHECK_FALSE(equal_in_constant_time(a, b));
  }
  Salt salt{}, other{};
  other[0] = 1;
  CHECK(*scrypt("secret", salt) == *scrypt("secret", salt));
  CHECK(*scrypt("secret", salt) != *scrypt("secret", other));
  CHECK(*scrypt("secret", salt) != *scrypt("secreT", salt));
  CHECK(keyed_hash(a, "x") != keyed_hash(Hash{}, "x"));
}
