// Decides whose a key is. A key is checked with scrypt once, on a thread of its own, and then known by a keyed hash in
// memory, so that a request costs a microsecond.
//
// What guessing learns: nothing but whether an id of 60 random bits exists, which opens nothing. An id that is not
// there, a wrong secret and an expired key's wrong secret cost the same scrypt and get the same answer; comparisons
// take constant time; the thread has a lower priority than those that compute. A key whose id does not exist cannot be
// right: those of a peer are limited (guess_limits.h) before they cost anything. One whose id exists may be right, so
// it is checked, in its turn (check_line.h), whatever others have guessed; only when it is found wrong does it count.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ipc/keys/check_line.h"
#include "ipc/keys/guess_limits.h"
#include "ipc/keys/key_text.h"
#include "ipc/keys/secrets.h"
#include "scheduler/shares/tenant.h"

namespace troupe::ipc {

// A key of the file, with the tenant that the server's rules make of it.
struct ServedKey {
  std::string name{};
  std::string id{};
  Salt salt{};
  Hash hash{};
  std::optional<std::int64_t> expires{};  // seconds since 1970
  scheduler::Tenant tenant{};
};

struct KeyVerdict {
  enum class Kind : std::uint8_t {
    accepted,
    wrong,     // there is no such key
    expired,   // it was right until it expired
    too_many,  // it is wrong, and so were too many of this peer
    busy,      // it was not checked: too many wait, most of them with its id and of its peer
  };
  Kind kind = Kind::wrong;
  std::string name{};              // of the accepted or expired key
  scheduler::Tenant tenant{};      // accepted
  double retry_after_seconds = 0;  // too_many, busy
};
using OnKeyVerdict = std::function<void(const KeyVerdict&)>;

struct KeyClock {
  std::int64_t unix_seconds = 0;  // for expiry
  double seconds = 0;             // of a clock that only goes forward, for the rate of guesses
};

// Thread-safe.
class KeyChecker {
 public:
  // `clock` is called on any thread. Throws std::system_error if the checking thread cannot be started.
  KeyChecker(std::vector<ServedKey> keys, std::function<KeyClock()> clock);
  // Waits for the check that runs. Verdicts that are not given yet never come.
  ~KeyChecker();
  KeyChecker(const KeyChecker&) = delete;
  KeyChecker& operator=(const KeyChecker&) = delete;

  // Calls `done` once: before it returns, or later on the checking thread. `address`: of the peer, as text. Takes some
  // microseconds.
  void check(std::string_view address, std::string_view text, OnKeyVerdict done);
  // New keys, from now on. What was checked before is still known of keys with the same hash.
  void replace(std::vector<ServedKey> keys);

  // How often scrypt was called, since the begin.
  [[nodiscard]] std::uint64_t num_checked() const;

 private:
  struct Known {
    ServedKey key;
    std::optional<Hash> digest;  // of the whole text, once it was checked
  };
  using Callers = std::vector<OnKeyVerdict>;
  // A verdict that is known at once, and who waits for it.
  struct Told {
    Callers callers;
    KeyVerdict verdict;
  };

  using Keys = std::unordered_map<std::string, Known>;  // by id

  void run();
  // With the lock held: whom to tell what, once it is given back; nullopt if `done` will be called later.
  std::optional<Told> enter(std::string_view address, std::string_view text, OnKeyVerdict done);
  // Counts a key that is wrong: the verdict.
  KeyVerdict wrong_key(const std::string& peer, double now);
  void on_checked(const KeyCheck& check, bool right);
  KeyVerdict verdict_of(const ServedKey& key) const;

  const std::function<KeyClock()> clock_;
  Hash process_key_{};  // of the digests: drawn at the start, so that they say nothing outside this process
  ServedKey nobody_;    // what an unknown id is checked against

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  Keys keys_;
  std::map<Hash, Callers> waiting_;  // by digest: a key is checked once for all that send it meanwhile
  GuessLimits guesses_;
  std::uint64_t num_checked_ = 0;
  CheckLine line_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace troupe::ipc
