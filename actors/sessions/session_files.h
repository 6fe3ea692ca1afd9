// The names of sessions' files, changed as if one decision after the other had been carried out, whichever thread comes
// first.
//
// Every decision has a number (session_index.h). A deletion leaves what a later decision has written: a session that
// was deleted or evicted, and begun again under its name, keeps its new files, however late the old ones are deleted.
// What takes long (to write, to sync, to free a large file) is done without a lock; names change under one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/sessions/session_store.h"

namespace troupe::actors {

// Thread-safe, but for two writes of one file at a time: tokens are written by the use that has the session, contents
// by one thread.
class SessionFiles {
 public:
  explicit SessionFiles(SessionStore store) : store_(std::move(store)) {}

  struct Written {
    Status status = Ok{};  // Ok: on disk
    bool is_there = true;  // the file is the new one; with an error: but the disk did not confirm it
  };
  Written write_tokens(const SessionKey& key, std::uint64_t number, const engine::SequenceRecord& record);
  // is_wanted: asked just before the file gets its name, under the lock of this class; no: it does not get it.
  Written write_contents(const SessionKey& key, std::uint64_t number, const engine::SequenceRecord& record,
                         const engine::SequenceImage& image, const std::function<bool()>& is_wanted);
  // SessionStore::link_contents(). Not synced: a write of the tokens does that.
  Status link_contents(const SessionKey& from, const SessionKey& to, std::uint64_t number);

  // Deletes the files, but those that were written by a later decision. The contents first: cut off in between, or if
  // the tokens cannot be deleted, it is a session still, whose contents are computed again. Not synced: it may come
  // back after a crash of the system, not after one of the process.
  Status remove(const Evicted& gone);
  [[nodiscard]] Status sync(TenantId tenant) const { return store_.sync(tenant); }

  [[nodiscard]] const SessionStore& store() const { return store_; }  // to read

 private:
  using File = std::pair<SessionKey, SessionPart>;
  [[nodiscard]] bool is_newer(const File& file, std::uint64_t number) const;

  const SessionStore store_;
  std::mutex names_;                       // while a name changes; taken before any lock of is_wanted
  std::map<File, std::uint64_t> numbers_;  // of the files that are there and were written here; others are older
};

}  // namespace troupe::actors
