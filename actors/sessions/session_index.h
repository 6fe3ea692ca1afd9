// Which named conversations there are, which are in use, and what is evicted for a new one: plain logic, no file.
//
// A session belongs to a tenant; equal names of different tenants are different sessions. It has two files: its tokens,
// which are never lost to save room as long as the session exists, and the contents (K, V and state), without which it
// continues by computing its tokens again. At a limit of bytes the contents of the tenant's sessions go first, those
// that were not used for longest before others; then whole sessions, in the same order. A session in use is never
// evicted, nor are its contents.
//
// Every decision to write or to delete a file has a number, counted up. Threads may carry decisions out in another
// order: a deletion leaves alone what was written by a later decision (session_files.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "actors/requests/session_info.h"
#include "config/options/server_limits.h"
#include "scheduler/shares/shared_limit.h"

namespace troupe::actors {

// 1 to 64 of A-Z, a-z, 0-9, ".", "_", "-", the first not a "."; such a name is a file's name as it stands.
[[nodiscard]] bool is_session_name(std::string_view name);

// field: the request's field at fault, or the name of the limit.
[[nodiscard]] scheduler::Refusal session_refusal(scheduler::Outcome outcome, std::string message,
                                                 std::string field = "session",
                                                 std::optional<std::uint64_t> limit = std::nullopt);

struct SessionKey {
  TenantId tenant{};
  std::string name;
  friend auto operator<=>(const SessionKey&, const SessionKey&) = default;
};

enum class SessionPart : std::uint8_t { tokens, contents };

// To be deleted, as far as it was written by an earlier decision; the index does not count it any more.
struct Evicted {
  SessionKey key;
  bool whole = false;        // false: its contents only
  std::uint64_t number = 0;  // of this decision
};

// A turn of a session, or another use of it that excludes others.
struct SessionUse {
  SessionKey key;
  // Of this session: one with its name that is begun after its end has another. The number of the decision to begin it:
  // no file of it is older.
  std::uint64_t generation = 0;
  bool is_new = false;  // it has no file yet
};

// Not thread-safe. Calls are O(sessions of the tenant) where they evict, else O(log sessions). `now`: seconds.
class SessionIndex {
 public:
  explicit SessionIndex(const config::SessionLimits& limits);

  // A session that was found on disk. The limits may be exceeded; they hold again after the next reserve().
  void add(const SessionKey& key, std::uint64_t token_bytes, std::uint64_t content_bytes, std::uint64_t last_used);
  // A session whose tokens are there, but cannot be used (a folder in their place). It takes no room, is not evicted,
  // and is no new one for begin(), until tokens are reserved for it or it is removed.
  void add_unusable(const SessionKey& key, std::uint64_t last_used);

  // Takes a session into use, and enters it if it is new. Refused: the name is none, it is in use, or as many as the
  // tenant may have are.
  std::variant<SessionUse, scheduler::Refusal> begin(TenantId tenant, const std::string& name);
  // The same for a session that must exist (must_exist) or must not. Refused also for that.
  std::variant<SessionUse, scheduler::Refusal> begin(TenantId tenant, const std::string& name, bool must_exist);
  // The use has ended. A session without tokens is forgotten; returned, if contents were written for it.
  std::optional<Evicted> end(const SessionUse& use, std::uint64_t now);
  // Forgets a session in use, which its use (from begin()) names.
  Evicted remove(const SessionUse& use);

  // Counts the file of this part with so many bytes, in place of what it had: the decision to write it, whose number is
  // the entry's then. Refused if it cannot fit: then nothing has changed, and nothing is to be written. A session that
  // was removed meanwhile (another generation) is refused, too. Evictions are appended: for bytes, or because a new
  // session is one too many.
  std::optional<scheduler::Refusal> reserve(const SessionUse& use, const scheduler::Tenant& tenant, SessionPart part,
                                            std::uint64_t bytes, std::vector<Evicted>& evicted);
  // Whether the session is still the one of this use.
  [[nodiscard]] bool is_current(const SessionUse& use) const;

  struct Entry {
    std::uint64_t generation = 0;
    std::uint64_t token_bytes = 0;
    std::uint64_t content_bytes = 0;
    std::uint64_t last_used = 0;
    std::uint64_t use_number = 0;               // counted up: the order of uses that ended in one second
    std::uint64_t content_number = 0;           // of the decision to write its contents
    std::uint64_t token_number = 0;             // likewise
    std::uint64_t num_changes = 0;              // decisions about its files, and writes of them
    std::shared_ptr<const SessionInfo> info{};  // as it was read since the last change; null: it was not
    bool in_use = false;
    bool is_new = false;       // its first use has not ended: its tokens may not be there yet
    bool is_unusable = false;  // add_unusable()
    // Whether it is one that can be continued, as its tenant sees it.
    [[nodiscard]] bool is_there() const { return is_unusable || (token_bytes > 0 && !is_new); }
    [[nodiscard]] std::uint64_t bytes() const { return token_bytes + content_bytes; }
  };
  // What was read of the session's files while it had so many changes; kept if there were none since.
  void set_info(const SessionUse& use, std::uint64_t num_changes, const SessionInfo& info);
  // A file of it was written.
  void forget_info(const SessionUse& use);
  [[nodiscard]] const Entry* find(const SessionKey& key) const;
  [[nodiscard]] std::vector<std::pair<std::string, Entry>> of(TenantId tenant) const;  // by name
  [[nodiscard]] std::uint64_t bytes_of(TenantId tenant) const;
  [[nodiscard]] std::size_t size() const { return sessions_.size(); }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_.held(); }

 private:
  using Sessions = std::map<SessionKey, Entry>;
  struct Going {
    SessionKey key;
    bool whole = false;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::vector<Sessions::const_iterator> may_go(const SessionUse& use) const;
  [[nodiscard]] std::vector<Going> make_room(const SessionUse& use, SessionPart part, std::uint64_t bytes,
                                             std::uint64_t& left) const;
  [[nodiscard]] std::size_t count_of(TenantId tenant) const;
  void count(TenantId tenant, std::uint64_t before, std::uint64_t after);
  void evict(const Going& going, std::vector<Evicted>& evicted);

  config::SessionLimits limits_;
  Sessions sessions_;
  std::map<TenantId, std::uint64_t> bytes_;
  scheduler::SharedLimit total_;
  std::uint64_t last_number_ = 0;  // of a decision
};

}  // namespace troupe::actors
